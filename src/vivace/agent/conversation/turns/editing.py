"""An edit as a turn of a conversation: which file, what was rejected before, then the edit itself.

Owns what the conversation adds to an edit: "shorten it" is about the unit that was edited before. Does not
own the edit (`edits.flow`).
"""

import asyncio
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from vivace.agent.conversation.message.mentions import target_of
from vivace.agent.conversation.message.missing import check_all_made
from vivace.agent.conversation.message.more_files import files_listed, files_using, paths_to_make
from vivace.agent.conversation.message.repository import (
    Choice,
    choose_place,
    file_by_words,
)
from vivace.agent.conversation.transcript.history import EditResult, History, Turn
from vivace.agent.edits.apply.files import DISK, Files
from vivace.agent.edits.apply.journal import Journal
from vivace.agent.edits.find.locate import locate_messages, shortlist, surely_meant
from vivace.agent.edits.find.target import Target
from vivace.agent.edits.flow import EditTask, run_edit
from vivace.agent.edits.part_writing import first_messages
from vivace.agent.edits.places.index import FileIndex
from vivace.agent.edits.plan.planning import plan_by_evidence
from vivace.agent.edits.plan.wording import is_spoken_of
from vivace.agent.edits.repair.user_tests import AllowedTests
from vivace.agent.edits.rewriting import UnitTask
from vivace.agent.edits.scope import EditScope, checked_instruction, read_scope
from vivace.agent.effort import Effort
from vivace.agent.events.turn import FileChosen, PlacesAsked
from vivace.agent.memory.recall import NOTHING, Memory
from vivace.agent.model import Model
from vivace.agent.options import Approval
from vivace.agent.presenter import Presenter
from vivace.agent.prompting import Message
from vivace.errors import PlaceUnclear, UnitNotFound

_BACK = re.compile(r"\b(it|its|that|this|them|again|instead|the same|back|shorter|longer)\b", re.I)
_NUMBERS = (("1", "first", "one"), ("2", "second", "two"), ("3", "third", "three"))
_NAMED = re.compile(r"`|\w_\w|[a-z][A-Z]|\w\(|\w\.\w|\b(function|method|class|file|module)\b")


async def edit_in_turn(
    history: History,
    model: Model,
    presenter: Presenter,
    journal: Journal,
    *,
    text: str,
    mentions: Sequence[str],
    approval: Approval,
    effort: Effort,
    test_command: str = "",
    memory: Memory | None = None,
    files: Files = DISK,
    index: FileIndex | None = None,
    asked_at_s: float | None = None,
) -> None:
    """Find the file that the message is about, and do the edit.

    `index`: of the folder's words, where it is kept. `asked_at_s`: when the user pressed Enter.
    """
    asked_at_s = time.perf_counter() if asked_at_s is None else asked_at_s
    await asyncio.to_thread(journal.heal)  # an edit that was cut short is finished before its file is read
    instruction = checked_instruction(without_mentions(text, mentions))
    reading = _Reading(files, to_write=approval != "never")
    tests = AllowedTests(test_command, Path(history.folder)) if test_command else None
    try:
        scopes = await _scopes(history, model, presenter, instruction, mentions, reading, index)
        wanted = with_reference(history, instruction)
        task = EditTask(scopes, wanted, approval, effort, tests, memory, asked_at_s)
        await run_edit(task, model, presenter, journal)
    except PlaceUnclear as error:
        places = [place.removeprefix(f"{history.folder}/") for place in error.places]
        presenter.show(PlacesAsked(tuple(places)))
        raise PlaceUnclear(places) from error


async def _scopes(
    history: History,
    model: Model,
    presenter: Presenter,
    instruction: str,
    mentions: Sequence[str],
    reading: "_Reading",
    index: FileIndex | None,
) -> tuple[EditScope, ...]:
    """Return what the edit is about: the mentions, what was edited just before, or what is found."""
    folder = Path(history.folder)
    paths = paths_to_make(instruction, folder)
    await asyncio.to_thread(check_all_made, instruction, folder, paths, reading.files)
    made = [await reading.scope(Target(path, None), instruction) for path in paths]
    if mentions:
        targets = [target_of(mention, folder) for mention in _to_change(mentions, instruction)]
        for path in dict.fromkeys(target.path for target in targets):
            presenter.show(FileChosen(str(path), "mention"))
        return (*[await reading.scope(target) for target in targets], *made)
    if made:
        for scope in made:
            presenter.show(FileChosen(str(scope.source.path), "name"))
        return tuple(made)
    before = edit_before(history)
    if before and before.edits and refers_back(instruction):
        last = [edit for edit in before.edits if edit.attempt == before.edits[-1].attempt]
        for edit in last:
            presenter.show(FileChosen(str(folder / edit.path), "recent"))
        return tuple([scope for edit in last for scope in await _scopes_of(folder, edit, reading)])
    if listed := await asyncio.to_thread(files_listed, folder, instruction, index):
        for path in listed:
            presenter.show(FileChosen(str(path), "name"))
        return tuple([await reading.scope(Target(path, None)) for path in listed])
    recent = target_of(history.last_mention, folder).path if history.last_mention else None
    choice = await choose_place(model, folder, instruction, recent, index)
    chosen = choice.file
    presenter.show(chosen)
    path = Path(chosen.path)
    scope = await reading.scope(Target(path, None))
    is_found = chosen.by != "recent" and path.name not in instruction
    scope = replace(scope, is_found=is_found, favoured=choice.favoured)
    others = await asyncio.to_thread(files_using, folder, scope, instruction)
    return (scope, *[await reading.scope(Target(path, None)) for path in others])


@dataclass(frozen=True)
class _Reading:
    """How the files of an edit are read: as the face has them now."""

    files: Files
    to_write: bool

    async def scope(self, target: Target, instruction: str = "") -> EditScope:
        await self.files.refresh([target.path])
        return read_scope(target, to_write=self.to_write, instruction=instruction, files=self.files)


def _to_change(mentions: Sequence[str], instruction: str) -> Sequence[str]:
    """Return the mentions without those that are only spoken of ("like the one in @b.py"); at least one."""
    meant = []
    for mention in mentions:
        at = instruction.find(without_mentions(f"@{mention}", [mention]))
        if at < 0 or not is_spoken_of(instruction, at):
            meant.append(mention)
    return meant or mentions[:1]


async def _scopes_of(folder: Path, edit: EditResult, reading: _Reading) -> list[EditScope]:
    """Return the units that were edited before, or the whole file to choose from if one is not there now."""
    path = folder / edit.path
    try:
        return [await reading.scope(Target(path, name)) for name in edit.unit.split(", ")]
    except UnitNotFound:
        return [await reading.scope(Target(path, None))]


@dataclass(frozen=True)
class Answered:
    """An edit that was asked back about, with the place that the user chose."""

    text: str
    mentions: tuple[str, ...]


def answer_to_places(history: History, text: str) -> Answered | None:
    """Return the edit of the turn before, if this message chooses one of the places that it asked about."""
    before = history.turns[-2] if len(history.turns) > 1 else None
    if before is None or not before.places:
        return None
    said = text.strip().rstrip(".!").lower().removeprefix("@")
    numbered = {name: place for names, place in zip(_NUMBERS, before.places, strict=False) for name in names}
    by_name = {place.lower(): place for place in before.places}
    by_name |= {place.rpartition(":")[2].lower(): place for place in reversed(before.places)}
    place = numbered.get(re.sub(r"^(?:number|the|take|no\.?) +|(?: one| place)$", "", said)) or by_name.get(
        said
    )
    return Answered(before.text, (place,)) if place else None


def draft_messages(
    folder: Path, text: str, mention: str, memory: Memory | None = None, files: Files = DISK
) -> list[Message]:
    """Return what the model will read first when this draft is sent as an edit of what it mentions."""
    scope = read_scope(target_of(mention, folder), to_write=False, files=files)
    return _first_read(scope, without_mentions(text, [mention]).strip(), memory)


def unnamed_draft_messages(
    history: History, text: str, memory: Memory | None, files: Files, index: FileIndex
) -> list[Message]:
    """Return the same for a draft that mentions nothing; nothing if words do not say which file it means."""
    folder, instruction = Path(history.folder), text.strip()
    if paths_to_make(instruction, folder) or (edit_before(history) and refers_back(instruction)):
        return []
    recent = target_of(history.last_mention, folder).path if history.last_mention else None
    listed = files_listed(folder, instruction, index)
    if not listed:
        found = file_by_words(folder, instruction, recent, index)
        listed = [Path(found.file.path)] if isinstance(found, Choice) else []
    if not listed:
        return []
    scope = read_scope(Target(listed[0], None), to_write=False, files=files)
    return _first_read(scope, instruction, memory)


def _first_read(scope: EditScope, instruction: str, memory: Memory | None) -> list[Message]:
    """Return the rewrite's prompt where the unit is known without the model, or else what chooses it."""
    steps = plan_by_evidence([scope], instruction)
    unit = steps[0].unit if steps else surely_meant(scope.source, scope.units, instruction)
    if unit:
        recalled = memory.recall(instruction, [scope.source.path]) if memory else NOTHING
        task = UnitTask(scope.source, scope.language, scope.units, unit, instruction, recalled=recalled)
        return first_messages(task)
    short = shortlist(scope.source, scope.units, instruction)
    return locate_messages(scope.source, short, instruction)[:-1]  # without the beginning of the answer


def without_mentions(text: str, mentions: Sequence[str]) -> str:
    """Return the instruction with names where it has mentions: `@src/app.py:main` is `main`."""
    for mention in mentions:
        path, _, name = mention.partition(":")
        plain = name if name and not name[0].isdigit() else Path(path).name
        text = text.replace(f'@"{mention}"', plain).replace(f"@{mention}", plain)
    return text


def edit_before(history: History) -> Turn | None:
    """Return the turn before the running one that was an edit, if only questions came between."""
    return next((turn for turn in reversed(history.turns[:-1]) if turn.kind == "edit"), None)


def refers_back(instruction: str) -> bool:
    """Return whether the instruction speaks of what was done just before, and names nothing itself."""
    return bool(_BACK.search(instruction)) and not _NAMED.search(instruction)


def with_reference(history: History, instruction: str) -> str:
    """Add what was asked for before, where the instruction refers to it or the change was rejected."""
    before = edit_before(history)
    if before is None:
        return instruction
    is_rejected = bool(before.edits) and before.edits[-1].outcome == "rejected"
    if not is_rejected and not refers_back(instruction):
        return instruction
    rejected = f" I rejected your change. {before.edits[-1].reason}".rstrip() if is_rejected else ""
    return f"{instruction}\n(Before, I asked: {before.text}{rejected})"
