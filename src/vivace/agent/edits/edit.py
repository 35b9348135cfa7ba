"""One edit, from the user's words to a proposal: read, locate, rewrite, splice, verify. Writes nothing.

`take_aim` needs no model; `propose` goes on in order and yields what happens, for a person or a program to
watch. Owns the order of the steps. Does not draw (`cli`), and does not write the file: `Journal.apply` does,
once the user said yes.
"""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass

from vivace.agent.edits.apply.source import SourceFile, check_writable, read_source, source_from_bytes, splice
from vivace.agent.edits.check.tidy import tidy
from vivace.agent.edits.check.verify import verify
from vivace.agent.edits.find.languages import Language, language_for
from vivace.agent.edits.find.locate import locate
from vivace.agent.edits.find.outline import list_units
from vivace.agent.edits.find.target import Lines, Target
from vivace.agent.edits.find.units import Unit, find_unit, lines_unit
from vivace.agent.edits.write.answer import FenceReader
from vivace.agent.edits.write.live_diff import LiveDiff, Row
from vivace.agent.edits.write.rewrite import rewrite_request
from vivace.agent.model import Model
from vivace.errors import ContextOverflow, EditRejected, RequestRefused, UsageError


@dataclass(frozen=True)
class Located:
    """The unit is known; the model starts to write."""

    unit: Unit
    was_ranked: bool  # by the model; otherwise the user named it


@dataclass(frozen=True)
class Writing:
    """The new text so far, as rows of a diff."""

    rows: list[Row]
    delta: str


@dataclass(frozen=True)
class Proposal:
    """What the file would become."""

    source: SourceFile
    unit: Unit
    new_bytes: bytes
    rows: list[Row]  # the whole diff, with hunk headers
    problems: list[str]  # why it must not be written; empty when it may

    @property
    def changes_bytes(self) -> bool:
        """Return whether the file would differ at all. A change of line ends alone has no rows."""
        return self.new_bytes != self.source.raw


EditEvent = Located | Writing | Proposal


@dataclass(frozen=True)
class Aim:
    """What an edit is about, as far as it is known without a model."""

    source: SourceFile
    language: Language | None
    units: list[Unit]
    unit: Unit | None  # None: the model shall choose


def take_aim(target: Target, *, to_write: bool) -> Aim:
    """Read the file and find what the user named in it. Whatever is wrong with either is said here."""
    source = read_source(target.path)
    if to_write:
        check_writable(source)
    language = language_for(target.path)
    units = list_units(source, language)
    return Aim(source, language, units, named_unit(source, units, target))


async def propose(model: Model, aim: Aim, instruction: str) -> AsyncGenerator[EditEvent]:
    """Events of one edit; the last is the `Proposal`."""
    source, language, units = aim.source, aim.language, aim.units
    unit = aim.unit or await locate(model, source, units, instruction)
    yield Located(unit, was_ranked=aim.unit is None)
    request = rewrite_request(source, units, unit, instruction)
    reader = FenceReader(request.fence, request.opening)
    diff = LiveDiff(source.lines[unit.first_line - 1 : unit.last_line], unit.first_line)
    diff.feed(reader.lines)
    try:
        text = model.write(
            request.messages,
            max_tokens=request.max_tokens,
            stop=request.stop,
            prediction=request.prediction,
        )
        async with aclosing(text) as deltas:
            async for delta in deltas:
                diff.feed(reader.feed(delta))
                yield Writing(diff.rows(reader.partial), delta)
    except RequestRefused as error:
        raise _narrowed(error, source, unit) from error
    reader.finish()
    if model.was_cut:
        raise EditRejected(
            f"The model's answer did not end within {request.max_tokens} tokens; nothing was written.",
            "Name a smaller part, such as PATH:NAME, or say the instruction more simply.",
        )
    new_text = tidy(source, language, unit, reader.text)
    new_bytes = splice(source, unit.first_line, unit.last_line, new_text)
    problems = verify(source, language, unit, new_bytes, instruction)
    yield Proposal(source, unit, new_bytes, whole_diff(source, new_bytes), problems)


def checked_instruction(instruction: str) -> str:
    if not instruction.strip():
        raise UsageError("The instruction is empty.", 'Say what to change: vivace edit PATH "INSTRUCTION".')
    return instruction.strip()


def named_unit(source: SourceFile, units: list[Unit], target: Target) -> Unit | None:
    """The unit that the user named, if any."""
    match target.selector:
        case None:
            return None
        case Lines(first=first, last=last):
            return lines_unit(source, first, last)
        case name:
            return find_unit(units, name)


def whole_diff(source: SourceFile, new_bytes: bytes) -> list[Row]:
    """The exact diff of the file, with hunk headers.

    What both texts begin and end with is set aside first: the alignment takes a byte a pair of lines.
    """
    old, new = source.lines, source_from_bytes(source.path, new_bytes).lines
    first = _common_lines(old, new)
    last = _common_lines(old[first:][::-1], new[first:][::-1])
    middle = slice(first, len(old) - last)
    diff = LiveDiff(old[middle], first + 1, above=old[:first], below=old[len(old) - last :])
    diff.feed(new[first : len(new) - last])
    return diff.final()


def _common_lines(one: tuple[str, ...], other: tuple[str, ...]) -> int:
    """How many lines both begin with."""
    pairs = zip(one, other, strict=False)
    return next((n for n, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))


def _narrowed(error: RequestRefused, source: SourceFile, unit: Unit) -> Exception:
    """A context overflow told in terms of the file: how large, and how to narrow."""
    if error.code != ContextOverflow.code:
        return error
    lines = unit.last_line - unit.first_line + 1
    return ContextOverflow(
        f"{unit.qualified_name} of {source.path} ({lines} lines) is too large: {error.message}",
        f"Name a smaller part, such as {source.path}:NAME or {source.path}:1-80.",
    )
