"""What candidates do when they are called: with the examples that a person wrote, and with made-up arguments.

Owns the run in the sandbox and how its report is read. Without a sandbox nothing is run. Does not own the
program inside (`trial_program`) or what follows from a trial (`choose`).
"""

import ast
import asyncio
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from vivace.agent.edits.check import trial_program
from vivace.agent.edits.check.examples import Example
from vivace.agent.sandbox.run import Limits, run_sandboxed
from vivace.child_python import python_command
from vivace.errors import SandboxUnavailable

SECONDS = 35.0  # for all candidates; what was not run by then counts as failed
PROGRAM = Path(trial_program.__file__)
LIMITS = Limits(seconds=SECONDS + 10, cpu_seconds=30.0, output_bytes=1 << 20)
MAX_FUNCTIONS = 3  # that are called with made-up arguments


@dataclass(frozen=True)
class Trial:
    """What came of one candidate."""

    came: tuple[str, ...]  # of each example: the value as Python writes it, or `ValueError: …`
    held: tuple[bool, ...]  # whether that is what the example says
    differing: int  # made-up calls on which it did other than the old code


@dataclass(frozen=True)
class Trials:
    each: tuple[Trial, ...]
    calls: int  # made-up ones that say something


async def try_out(
    old: str, codes: Sequence[str], examples: Sequence[Example], functions: Sequence[str]
) -> Trials | None:
    """Call every candidate in one sandbox. Return None if nothing can be run here."""
    given = {
        "old": old,
        "codes": list(codes),
        "examples": [each.call for each in examples],
        "names": list(functions[:MAX_FUNCTIONS]),
        "seconds": SECONDS,
    }
    files = {
        "program.py": await asyncio.to_thread(PROGRAM.read_bytes),
        "given.json": json.dumps(given).encode(),
    }
    try:
        outcome = await run_sandboxed(python_command("-I", "program.py"), files=files, limits=LIMITS)
    except SandboxUnavailable:
        return None
    try:
        report = json.loads(outcome.output.splitlines()[-1])
        each = tuple(_trial(one["came"], examples, one["differing"]) for one in report["trials"])
        return Trials(each, report["calls"]) if len(each) == len(codes) else None
    except (ValueError, IndexError, KeyError, TypeError):
        return None


def _trial(came: list[str], examples: Sequence[Example], differing: int) -> Trial:
    held = [_is_expected(text, each.expected) for text, each in zip(came, examples, strict=True)]
    return Trial(tuple(came), tuple(held), int(differing))


def _is_expected(came: str, expected: str) -> bool:
    try:
        return _is_close(ast.literal_eval(came), ast.literal_eval(expected))
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return came == expected


def _is_close(one: object, other: object) -> bool:
    """Return whether two values are equal, up to the rounding of floats."""
    if isinstance(one, float) or isinstance(other, float):
        if not isinstance(one, int | float) or not isinstance(other, int | float):
            return False
        return math.isclose(one, other, rel_tol=1e-6, abs_tol=1e-9)
    if isinstance(one, list | tuple) and isinstance(other, list | tuple) and type(one) is type(other):
        return len(one) == len(other) and all(map(_is_close, one, other))
    return one == other
