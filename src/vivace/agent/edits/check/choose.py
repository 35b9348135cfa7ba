"""Which of several proposals to take: one that can be used, that does what was asked, that is likeliest.

Owns the order of the signs: whether it breaks anything; the examples that hold; whether it does other than
the old code, where that was said to be wrong; the model's own likelihood. Code is run only in the sandbox
(`trial`); without one its likelihood decides, and the choice says so.
"""

import ast
import re
from collections.abc import Sequence
from dataclasses import dataclass

from vivace.agent.edits.check.examples import Example, find_examples
from vivace.agent.edits.check.trial import Trials, try_out
from vivace.agent.edits.find.languages import PYTHON, language_for
from vivace.agent.edits.find.outline import list_units
from vivace.agent.edits.proposal import FileProposal

_FAULT = re.compile(
    r"\b(fix(es|ed|ing)?|bugs?|buggy|wrong(ly)?|incorrect(ly)?|correct(s|ed|ing|ly)?|broken|mistakes?|faults?"
    r"|faulty|mend(s|ed|ing)?|repair(s|ed|ing)?|crash(es|ed|ing)?|fails?|failing)\b",
    re.IGNORECASE,
)


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
    calls: int = 0  # made-up ones, by which candidates were compared with the old code
    others: tuple[FileProposal, ...] = ()  # those that could be used and were not chosen, the best first


async def choose(candidates: Sequence[Candidate], *, runs_examples: bool) -> Choice:
    """Return the best candidate. The first one is returned if none can be used."""
    usable = list({each.proposal.new_bytes: each for each in reversed(candidates) if each.is_usable}.values())
    if not usable:
        return Choice(candidates[0].proposal, 0, 0, 0)
    first = usable[0].proposal
    examples = examples_for(first) if runs_examples else []
    trials = await _try(usable, examples) if runs_examples and len(usable) > 1 else None
    if trials is None:
        best, *others = _ordered(usable, [(_is_sound(each), each.nats_per_token) for each in usable])
        return Choice(best, len(usable), 0, 0, others=tuple(others))
    ranks = [
        (_is_sound(each), sum(trial.held), trial.differing > 0, each.nats_per_token)
        for trial, each in zip(trials.each, usable, strict=True)
    ]
    best, *others = _ordered(usable, ranks)
    return Choice(best, len(usable), len(examples), int(max(ranks)[1]), trials.calls, tuple(others))


def _ordered(usable: Sequence[Candidate], ranks: Sequence[tuple[float, ...]]) -> list[FileProposal]:
    """Return the proposals by their ranks, the best first."""
    order = sorted(range(len(usable)), key=lambda index: ranks[index], reverse=True)
    return [usable[index].proposal for index in order]


def _is_sound(candidate: Candidate) -> bool:
    return not candidate.proposal.faults


async def _try(usable: Sequence[Candidate], examples: Sequence[Example]) -> Trials | None:
    """Run the candidates, if there is anything to learn from that."""
    first = usable[0].proposal
    functions = functions_of(first) if speaks_of_a_fault(first.instruction) else []
    if not examples and not functions:
        return None
    codes = [each.proposal.new_bytes.decode("utf-8", "replace") for each in usable]
    return await try_out(first.source.text, codes, examples, functions)


def speaks_of_a_fault(instruction: str) -> bool:
    """Return whether the code is said to be wrong, so that right code must do something else."""
    return bool(_FAULT.search(instruction))


def functions_of(proposal: FileProposal) -> list[str]:
    """Return the names of the unit's functions that can be called by themselves, if the file is Python."""
    source, unit = proposal.source, proposal.unit
    if language_for(source.path) is not PYTHON:
        return []
    return [
        each.name
        for each in list_units(source, PYTHON)
        if unit.first_line <= each.first_line and each.last_line <= unit.last_line
        if each.kind == "function" and "." not in each.qualified_name
    ]


def examples_for(proposal: FileProposal) -> list[Example]:
    """Return the examples of the instruction and of the unit's own docstring, if the file is Python."""
    names = functions_of(proposal)
    return find_examples(f"{proposal.instruction}\n\n{_docstrings(proposal.source.text, names)}", names)


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
