"""Which of several proposals to take: one that can be used, that the examples hold for, that is likeliest.

Owns the order of these three. Examples are run only in the sandbox; without one they are left out, and the
choice says so.
"""

import ast
import json
from collections.abc import Sequence
from dataclasses import dataclass

from vivace.agent.edits.check.examples import Example, find_examples, program_for
from vivace.agent.edits.find.languages import PYTHON, language_for
from vivace.agent.edits.find.outline import list_units
from vivace.agent.edits.proposal import FileProposal
from vivace.agent.sandbox.run import Limits, run_sandboxed
from vivace.child_python import python_command
from vivace.errors import SandboxUnavailable

LIMITS = Limits(seconds=40.0, cpu_seconds=30.0)  # for all candidates together


@dataclass(frozen=True)
class Candidate:
    proposal: FileProposal
    nats_per_token: float

    @property
    def is_usable(self) -> bool:
        return bool(self.proposal.hunks) and not self.proposal.problems


@dataclass(frozen=True)
class Choice:
    """What was chosen, and by what."""

    proposal: FileProposal
    answers: int  # distinct ones that could be used
    examples: int  # that were run; 0: none were
    held: int  # of them, for the chosen one


async def choose(candidates: Sequence[Candidate], *, runs_examples: bool) -> Choice:
    """Return the best candidate. The first one is returned if none can be used."""
    usable = list({each.proposal.new_bytes: each for each in reversed(candidates) if each.is_usable}.values())
    if not usable:
        return Choice(candidates[0].proposal, 0, 0, 0)
    proposals = [each.proposal for each in usable]
    examples = examples_for(proposals[0]) if runs_examples and len(usable) > 1 else []
    held = await _count_held(proposals, examples) if examples else None
    counts = held or [0] * len(usable)
    best = max(range(len(usable)), key=lambda index: (counts[index], usable[index].nats_per_token))
    return Choice(proposals[best], len(usable), len(examples) if held else 0, counts[best])


def examples_for(proposal: FileProposal) -> list[Example]:
    """Return the examples of the instruction and of the unit's own docstring, if the file is Python."""
    source, unit = proposal.source, proposal.unit
    if language_for(source.path) is not PYTHON:
        return []
    inside = [
        each
        for each in list_units(source, PYTHON)
        if unit.first_line <= each.first_line and each.last_line <= unit.last_line
    ]
    names = [each.name for each in inside if each.kind == "function" and "." not in each.qualified_name]
    return find_examples(f"{proposal.instruction}\n\n{_docstrings(source.text, names)}", names)


def _docstrings(text: str, names: Sequence[str]) -> str:
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ""
    found = [
        ast.get_docstring(node) or ""
        for node in tree.body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name in names
    ]
    return "\n\n".join(found)


async def _count_held(proposals: Sequence[FileProposal], examples: list[Example]) -> list[int] | None:
    """Return how many examples hold for each proposal, or None if they could not be run."""
    codes = [each.new_bytes.decode("utf-8", "replace") for each in proposals]
    program = program_for(codes, examples).encode()
    try:
        outcome = await run_sandboxed(
            python_command("-I", "program.py"), files={"program.py": program}, limits=LIMITS
        )
    except SandboxUnavailable:
        return None
    try:
        counts = json.loads(outcome.output.splitlines()[-1])
    except (ValueError, IndexError):
        return None
    return counts if isinstance(counts, list) and len(counts) == len(codes) else None
