"""Real edits to measure with: which rows there are, which of them are taken, and what the model is asked.

Owns the choice and the prompt's tokens, made by the agent's own code so that the bench measures what users
get. Does not run anything.

The choice is the same on every machine with the same tokenizer: in file order, the rows where the smallest
function, method or class that holds all changed lines has at most `UNIT_TOKENS` tokens.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

import msgspec

from vivace.agent.edits.apply.source import source_from_bytes
from vivace.agent.edits.find.languages import language_for
from vivace.agent.edits.find.outline import list_units
from vivace.agent.edits.find.units import Unit
from vivace.agent.edits.write.rewrite import Rewrite, rewrite_request
from vivace.errors import FileProblem
from vivace.models.families.base import Family, Message, OutputSpec
from vivace.models.tokenizer import Tokenizer

UNIT_TOKENS = 400
QUICK_UNIT_TOKENS = 100  # a quick run takes no unit smaller than this: there would be too little to time
ROWS_FILE = "commit_edits.jsonl"
SHIPPED_FILE = "edits.jsonl"
KINDS = ("function", "method", "class")


class Row(msgspec.Struct, frozen=True):
    """One file before and after a small change, and the words that asked for it. Other fields are ignored."""

    repo: str
    path: str
    instruction: str
    before: str
    after: str


@dataclass(frozen=True)
class RowSet:
    rows: list[Row]
    source: str  # where they are from, for people


@dataclass(frozen=True)
class EditCase:
    """A row as the engine gets it."""

    name: str
    prompt: list[int]  # all of it, the opening of the answer included
    prediction: list[int]  # what the answer will resemble: the old unit behind the opening, and the fence
    stop: list[str]
    unit_tokens: int


def read_rows(folder: Path | None) -> RowSet:
    """Return the rows of `folder`, or those that ship."""
    if folder and (file := folder / ROWS_FILE).is_file():
        rows = _decode(file, file.read_bytes())
        return RowSet(rows, f"{len(rows)} real commits ({file.name})")
    shipped = files("vivace.bench") / SHIPPED_FILE
    rows = _decode(Path(SHIPPED_FILE), shipped.read_bytes())
    missing = f"there is no {folder / ROWS_FILE}" if folder else "no --data folder was given"
    return RowSet(rows, f"{len(rows)} edits that ship with Vivace, written by us ({missing})")


def choose_cases(rows: Sequence[Row], tokenizer: Tokenizer, template: Family, count: int) -> list[EditCase]:
    """Return the first `count` usable rows as cases."""
    chosen: list[EditCase] = []
    for row in rows:
        if len(chosen) == count:
            break
        if case := make_case(row, tokenizer, template):
            chosen.append(case)
    return chosen


def quickest(cases: Sequence[EditCase], count: int) -> list[EditCase]:
    """Return the cases with the shortest prompts that have something to write, in file order."""
    enough = [case for case in cases if case.unit_tokens >= QUICK_UNIT_TOKENS] or list(cases)
    taken = sorted(enough, key=lambda case: len(case.prompt))[:count]
    return [case for case in enough if case in taken]


def make_case(row: Row, tokenizer: Tokenizer, template: Family) -> EditCase | None:
    """Return the row's prompt for the smallest unit that holds the change, or None if it is too large."""
    source = source_from_bytes(Path(row.path), row.before.encode())
    units = list_units(source, language_for(source.path))
    unit = smallest_unit(units, *changed_lines(row.before, row.after))
    if unit is None:
        return None
    old = source.text_of(unit.first_line, unit.last_line)
    unit_tokens = len(tokenizer.encode(old))
    if unit_tokens > UNIT_TOKENS:
        return None
    request = rewrite_request(source, units, unit, row.instruction)
    return EditCase(
        name=f"{row.path}:{unit.qualified_name}",
        prompt=_prompt(request, template),
        prediction=tokenizer.encode(request.prediction),
        stop=request.stop,
        unit_tokens=unit_tokens,
    )


def changed_lines(before: str, after: str) -> tuple[int, int]:
    """Return the first and last changed line of `before` (1-based); of an insertion, its neighbours."""
    old, new = before.splitlines(), after.splitlines()
    above = _common(old, new)
    below = _common(old[above:][::-1], new[above:][::-1])
    first, last = above + 1, len(old) - below
    return (first, last) if first <= last else (last, first)


def smallest_unit(units: Sequence[Unit], first_line: int, last_line: int) -> Unit | None:
    holding = [
        unit
        for unit in units
        if unit.kind in KINDS and unit.first_line <= first_line and last_line <= unit.last_line
    ]
    return min(holding, key=lambda unit: unit.last_line - unit.first_line, default=None)


def as_messages(given: Sequence[dict[str, str]]) -> list[Message]:
    """Return the agent's messages as a family renders them."""
    shaped = [{"role": each["role"], "text": each["content"], "is_open": "status" in each} for each in given]
    return msgspec.convert(shaped, list[Message])


def _prompt(request: Rewrite, template: Family) -> list[int]:
    """Return the tokens that the server makes of the agent's request."""
    tokens = template.render(as_messages(request.messages))
    return tokens + template.answer(tokens, OutputSpec())


def _common(one: Sequence[str], other: Sequence[str]) -> int:
    """Return how many lines both begin with."""
    pairs = zip(one, other, strict=False)
    return next((n for n, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))


def _decode(file: Path, raw: bytes) -> list[Row]:
    try:
        return msgspec.json.decode(b"[" + b",".join(raw.splitlines()) + b"]", type=list[Row])
    except msgspec.MsgspecError as error:
        raise FileProblem(
            f"{file} does not hold edits: {error}.", "Name another folder with --data."
        ) from error
