"""Events of the agent as messages, and back: what one face is shown, another process can show too.

Owns the forms. Files, proposals and growing diffs are sent once and then named by a number, so a face has the
real values and a token costs its own bytes. Does not own answers to questions (`answers`).
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import msgspec

from vivace.agent.conversation.sharing.wire.answers import (
    decision_form,
    decision_of,
    resolution_form,
    resolution_of,
)
from vivace.agent.conversation.sharing.wire.forms import (
    ConflictForm,
    DecisionForm,
    DiffKnown,
    FileForm,
    HunkForm,
    Message,
    ProposalKnown,
    ResolutionForm,
    SourceKnown,
)
from vivace.agent.conversation.sharing.wire.from_holder import Shown
from vivace.agent.edits.apply.entries import Entry
from vivace.agent.edits.apply.rebasing import Change
from vivace.agent.edits.apply.source import SourceFile, source_from_bytes
from vivace.agent.edits.conflict import Conflict
from vivace.agent.edits.find.units import Unit
from vivace.agent.edits.proposal import (
    FileProposal,
    Proposal,
)
from vivace.agent.edits.write.live_diff import Hunk, LiveDiff
from vivace.agent.events import edit as edit_events
from vivace.agent.events.every import AgentEvent

EVENTS: dict[str, type[Any]] = {kind.__name__: kind for kind in get_args(AgentEvent)}


class _OfSource(msgspec.Struct, frozen=True):
    """`EditStarted`, `UnitLocated` or `ImportsAdded`."""

    source: int
    unit: Unit | None
    instruction: str = ""
    was_ranked: bool = False
    lines: tuple[str, ...] = ()


class _OfDiff(msgspec.Struct, frozen=True):
    """`DiffGrew`, with the lines that came since the last one."""

    diff: int
    delta: str
    lines: tuple[str, ...]
    partial: str
    opening: str = ""


class _OfProposal(msgspec.Struct, frozen=True):
    """`EditProposed`, `EditDecided`, `EditApplied` or `EditNotApplied`."""

    proposal: int
    by: str = ""
    decision: DecisionForm | None = None
    entry: Entry | None = None
    apply_ms: float = 0.0
    reason: str = ""


class _OfConflict(msgspec.Struct, frozen=True):
    """`ConflictResolved`."""

    path: str
    resolution: ResolutionForm


def _plain(value: Any) -> Any:
    if isinstance(value, Path):
        return str(value)
    raise NotImplementedError(f"{type(value)} has no form")


def _from_plain(kind: type[Any], value: Any) -> Any:
    if issubclass(kind, Path):
        return Path(value)
    raise NotImplementedError(f"{kind} has no form")


_encode = msgspec.msgpack.Encoder(enc_hook=_plain).encode


def _decode(body: bytes | msgspec.Raw, kind: Any) -> Any:
    return msgspec.msgpack.decode(body, type=kind, dec_hook=_from_plain)


class EventEncoder:
    """Makes messages of events for one connection."""

    def __init__(self) -> None:
        self._numbers: dict[int, tuple[int, object]] = {}  # by id; the object is kept, and its id with it
        self._lines: dict[int, int] = {}  # diff -> how many of its lines were sent

    def forget(self) -> None:
        """Forget what was sent by number: a new turn begins. The other side does the same."""
        self._numbers.clear()
        self._lines.clear()

    def messages(self, event: AgentEvent) -> Iterator[Message]:
        """Yield what tells of this event, in order."""
        known: list[Message] = []
        body = self._body(event, known)
        yield from known
        yield Shown(name=type(event).__name__, body=msgspec.Raw(_encode(body)))

    def _body(self, event: AgentEvent, known: list[Message]) -> object:
        match event:
            case edit_events.EditStarted(source=source, unit=unit, instruction=instruction):
                return _OfSource(self.source(source, known), unit, instruction)
            case edit_events.UnitLocated(source=source, unit=unit, was_ranked=was_ranked):
                return _OfSource(self.source(source, known), unit, was_ranked=was_ranked)
            case edit_events.ImportsAdded(source=source, unit=unit, lines=lines):
                return _OfSource(self.source(source, known), unit, lines=lines)
            case edit_events.DiffGrew():
                return self._grown(event, known)
            case edit_events.EditProposed(proposal=proposal, by=by):
                return _OfProposal(self.proposal(proposal, known), by=by)
            case edit_events.EditDecided(proposal=proposal, decision=decision):
                return _OfProposal(self.proposal(proposal, known), decision=decision_form(decision))
            case edit_events.EditApplied(proposal=proposal, entry=entry, apply_ms=apply_ms):
                return _OfProposal(self.proposal(proposal, known), entry=entry, apply_ms=apply_ms)
            case edit_events.EditNotApplied(proposal=proposal, reason=reason):
                return _OfProposal(self.proposal(proposal, known), reason=reason)
            case edit_events.ConflictResolved(path=path, resolution=resolution):
                return _OfConflict(str(path), resolution_form(resolution))
        return event

    def _number(self, value: object) -> tuple[int, bool]:
        """Return the number of a value, and whether it is new."""
        if (found := self._numbers.get(id(value))) is not None:
            return found[0], False
        number = len(self._numbers) + 1
        self._numbers[id(value)] = (number, value)
        return number, True

    def source(self, source: SourceFile, known: list[Message]) -> int:
        number, is_new = self._number(source)
        if is_new:
            known.append(
                SourceKnown(
                    number=number,
                    path=str(source.path),
                    target=str(source.target),
                    raw=source.raw,
                    newline=source.newline,
                    exists=source.exists,
                )
            )
        return number

    def proposal(self, proposal: Proposal, known: list[Message]) -> int:
        number, is_new = self._number(proposal)
        if is_new:
            files = tuple(self._file(file, known) for file in proposal.files)
            known.append(ProposalKnown(number=number, files=files, missing=proposal.missing))
        return number

    def _file(self, file: FileProposal, known: list[Message]) -> FileForm:
        return FileForm(
            self.source(file.source, known),
            file.unit,
            file.instruction,
            file.new_bytes,
            tuple(HunkForm(*vars(hunk).values()) for hunk in file.hunks),
            file.problems,
            file.is_removed,
            file.faults,
        )

    def _grown(self, event: edit_events.DiffGrew, known: list[Message]) -> _OfDiff:
        number, is_new = self._number(event.diff)
        if is_new:
            old, first = event.diff.old_lines, event.diff.first_line
            known.append(DiffKnown(number=number, old_lines=old, first_line=first))
        sent = self._lines.get(number, 0)
        lines = event.diff.new_lines(sent)
        self._lines[number] = sent + len(lines)
        return _OfDiff(number, event.delta, lines, event.partial, event.opening)

    def conflict(self, conflict: Conflict, known: list[Message]) -> ConflictForm:
        change = conflict.change
        number = self.source(change.source, known)
        return ConflictForm(
            number, change.new_bytes, change.unit, conflict.current, conflict.message, conflict.draft
        )


class EventDecoder:
    """Makes events of the messages of one connection. Raise `ValueError` for what makes no sense."""

    def __init__(self) -> None:
        self._known: dict[int, Any] = {}

    def forget(self) -> None:
        self._known.clear()

    def learn(self, message: SourceKnown | ProposalKnown | DiffKnown) -> None:
        """Remember a value by its number."""
        match message:
            case SourceKnown():
                source = source_from_bytes(Path(message.path), message.raw)
                self._known[message.number] = replace(
                    source, target=Path(message.target), newline=message.newline, exists=message.exists
                )
            case ProposalKnown(files=files, missing=missing):
                self._known[message.number] = Proposal(tuple(self._file(file) for file in files), missing)
            case DiffKnown(old_lines=old_lines, first_line=first_line):
                self._known[message.number] = LiveDiff(old_lines, first_line)

    def _file(self, form: FileForm) -> FileProposal:
        return FileProposal(
            self._named(form.source, SourceFile),
            form.unit,
            form.instruction,
            form.new_bytes,
            tuple(Hunk(*msgspec.structs.astuple(hunk)) for hunk in form.hunks),
            form.problems,
            is_removed=form.is_removed,
            faults=form.faults,
        )

    def _named(self, number: int, kind: type[Any]) -> Any:
        value = self._known.get(number)
        if not isinstance(value, kind):
            raise ValueError(f"{number} is no {kind.__name__}")
        return value

    def proposal(self, number: int) -> Proposal:
        found: Proposal = self._named(number, Proposal)
        return found

    def conflict(self, form: ConflictForm) -> Conflict:
        change = Change(self._named(form.source, SourceFile), form.new_bytes, form.unit)
        return Conflict(change, form.current, form.message, form.draft)

    def event(self, shown: Shown) -> AgentEvent:
        """Return the event that the message tells of."""
        if shown.name not in EVENTS:
            raise ValueError(f"there is no event {shown.name}")
        made: AgentEvent = self._event(shown.name, shown.body)
        return made

    def _event(self, name: str, body: msgspec.Raw) -> Any:
        match name:
            case "EditStarted" | "UnitLocated" | "ImportsAdded":
                return self._of_source(name, _decode(body, _OfSource))
            case "DiffGrew":
                grown: _OfDiff = _decode(body, _OfDiff)
                diff = self._named(grown.diff, LiveDiff)
                diff.feed(grown.lines)
                return edit_events.DiffGrew(grown.delta, diff, grown.partial, grown.opening)
            case "EditProposed" | "EditDecided" | "EditApplied" | "EditNotApplied":
                return self._of_proposal(name, _decode(body, _OfProposal))
            case "ConflictResolved":
                resolved: _OfConflict = _decode(body, _OfConflict)
                return edit_events.ConflictResolved(Path(resolved.path), resolution_of(resolved.resolution))
        return _decode(body, EVENTS[name])

    def _of_source(self, name: str, form: _OfSource) -> Any:
        source = self._named(form.source, SourceFile)
        if name == "EditStarted":
            return edit_events.EditStarted(source, form.unit, form.instruction)
        if form.unit is None:
            raise ValueError(f"{name} without a unit")
        if name == "UnitLocated":
            return edit_events.UnitLocated(source, form.unit, form.was_ranked)
        return edit_events.ImportsAdded(source, form.unit, form.lines)

    def _of_proposal(self, name: str, form: _OfProposal) -> Any:
        proposal = self.proposal(form.proposal)
        match name:
            case "EditProposed":
                return edit_events.EditProposed(proposal, "user" if form.by == "user" else "model")
            case "EditDecided":
                return edit_events.EditDecided(proposal, decision_of(form.decision))
            case "EditApplied":
                return edit_events.EditApplied(proposal, form.entry, form.apply_ms)
        return edit_events.EditNotApplied(proposal, msgspec.convert(form.reason, edit_events.Reason))
