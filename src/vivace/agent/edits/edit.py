"""One edit, from the user's words to a proposal: read, locate, rewrite, verify, choose. Writes nothing.

`read_scope` needs no model; `propose` goes on in order and yields what happens. Owns the order of these
steps. Does not own how one unit is rewritten (`rewriting`), ask the user or write the file (`flow`).
"""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass

from vivace.agent.edits.apply.source import SourceFile, check_writable, read_source
from vivace.agent.edits.find.languages import Language, language_for
from vivace.agent.edits.find.locate import locate
from vivace.agent.edits.find.outline import list_units
from vivace.agent.edits.find.target import Lines, Target
from vivace.agent.edits.find.units import Unit, find_unit, lines_unit
from vivace.agent.edits.proposal import FileProposal, Proposal
from vivace.agent.edits.rewriting import UnitTask, Writing, rewrite_unit
from vivace.agent.effort import BUDGETS, Effort
from vivace.agent.events import EditProposed, UnitLocated
from vivace.agent.model import Model
from vivace.errors import UsageError


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


Proposing = UnitLocated | Writing | EditProposed


async def propose(
    model: Model, scopes: Sequence[EditScope], instruction: str, effort: Effort
) -> AsyncGenerator[Proposing]:
    """Yield the events of one edit; the last is the proposal."""
    scope = scopes[0]
    source = scope.source
    unit = scope.unit or await locate(model, source, scope.units, instruction)
    yield UnitLocated(source, unit, was_ranked=scope.unit is None)
    task = UnitTask(source, scope.language, scope.units, unit, instruction)
    async with aclosing(rewrite_unit(model, task, BUDGETS[effort])) as events:
        async for event in events:
            if isinstance(event, FileProposal):
                yield EditProposed(Proposal((event,)), by="model")
            else:
                yield event


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
