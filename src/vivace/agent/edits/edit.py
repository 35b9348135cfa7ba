"""One edit, from the user's words to a proposal: read, locate, rewrite, splice, verify. Writes nothing.

`read_scope` needs no model; `propose` goes on in order and yields what happens. Owns the order of these
steps. Does not ask the user and does not write the file (`flow`).
"""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass

from vivace.agent.edits.apply.source import SourceFile, check_writable, read_source, splice
from vivace.agent.edits.check.tidy import tidy
from vivace.agent.edits.find.languages import Language, language_for
from vivace.agent.edits.find.locate import locate
from vivace.agent.edits.find.outline import list_units
from vivace.agent.edits.find.target import Lines, Target
from vivace.agent.edits.find.units import Unit, find_unit, lines_unit
from vivace.agent.edits.proposal import make_proposal
from vivace.agent.edits.write.answer import FenceReader
from vivace.agent.edits.write.live_diff import LiveDiff
from vivace.agent.edits.write.rewrite import rewrite_request
from vivace.agent.events import DiffGrew, EditProposed, UnitLocated
from vivace.agent.model import Model
from vivace.errors import ContextOverflow, EditRejected, RequestRefused, UsageError


@dataclass(frozen=True)
class EditScope:
    """What an edit is about, as far as it is known without a model."""

    source: SourceFile
    language: Language | None
    units: list[Unit]
    unit: Unit | None  # None: the model shall choose


def read_scope(target: Target, *, to_write: bool) -> EditScope:
    """Read the file and find what the user named in it, or raise what is wrong with either."""
    source = read_source(target.path)
    if to_write:
        check_writable(source)
    language = language_for(target.path)
    units = list_units(source, language)
    return EditScope(source, language, units, named_unit(source, units, target))


async def propose(
    model: Model, scope: EditScope, instruction: str
) -> AsyncGenerator[UnitLocated | DiffGrew | EditProposed]:
    """Yield the events of one edit; the last is the proposal."""
    source, language, units = scope.source, scope.language, scope.units
    unit = scope.unit or await locate(model, source, units, instruction)
    yield UnitLocated(source, unit, was_ranked=scope.unit is None)
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
                yield DiffGrew(delta, diff, reader.partial)
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
    yield EditProposed(make_proposal(source, unit, instruction, new_bytes), by="model")


def checked_instruction(instruction: str) -> str:
    if not instruction.strip():
        raise UsageError("The instruction is empty.", 'Say what to change: vivace edit PATH "INSTRUCTION".')
    return instruction.strip()


def named_unit(source: SourceFile, units: list[Unit], target: Target) -> Unit | None:
    """Return the unit that the user named, if any."""
    match target.selector:
        case None:
            return None
        case Lines(first=first, last=last):
            return lines_unit(source, first, last)
        case name:
            return find_unit(units, name)


def _narrowed(error: RequestRefused, source: SourceFile, unit: Unit) -> Exception:
    """Return a context overflow in terms of the file: how large it is, and how to name less of it."""
    if error.code != ContextOverflow.code:
        return error
    lines = unit.last_line - unit.first_line + 1
    return ContextOverflow(
        f"{unit.qualified_name} of {source.path} ({lines} lines) is too large: {error.message}",
        f"Name a smaller part, such as {source.path}:NAME or {source.path}:1-80.",
    )
