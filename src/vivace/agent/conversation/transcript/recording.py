"""From the agent's events to the lines of a transcript.

Owns which event leaves which line, and that the line is written before the event is shown. Does not own the
schema (`records`) nor the file (`file`).
"""

import re
import time
from pathlib import Path

import msgspec

from vivace.agent import events
from vivace.agent.conversation.transcript import records
from vivace.agent.conversation.transcript.file import Transcript
from vivace.agent.conversation.transcript.history import History
from vivace.agent.conversation.transcript.records import AnyRecord
from vivace.agent.edits.conflict import Conflict, Resolution
from vivace.agent.edits.proposal import AcceptHunks, Decision, FileProposal, Proposal, Reject, UseText
from vivace.agent.loop import steps
from vivace.agent.loop.calls import Approval
from vivace.agent.loop.steps import AnyStep
from vivace.agent.presenter import NOBODY, ApprovingPresenter, Presenter
from vivace.errors import WriteProblem

ENDS = (events.WritingEnded, events.Failed, events.TurnEnded, events.SideEnded)


class RecordingPresenter:
    """Writes every event down, adds it to the history, and then lets the face show it."""

    def __init__(self, face: Presenter, transcript: Transcript, history: History) -> None:
        self._face = face
        self._transcript = transcript
        self._history = history

    def show(self, event: events.AgentEvent) -> None:
        for record in records_of(event):
            try:
                self.write(record)
            except WriteProblem:
                if not isinstance(event, ENDS):
                    raise
                self._history.take(record)  # that it ended is shown, though it cannot be written
        self._face.show(event)

    def write(self, record: AnyRecord) -> None:
        """Write a line that no event stands for."""
        self._transcript.append(record)
        self._history.take(record)

    async def decide(self, proposal: Proposal) -> Decision:
        return await self._face.decide(proposal)

    async def resolve(self, conflict: Conflict) -> Resolution:
        return await self._face.resolve(conflict)

    async def approve(self, asked: steps.ApprovalAsked) -> Approval:
        if isinstance(self._face, ApprovingPresenter):
            return await self._face.approve(asked)
        return Approval(is_allowed=False, reason=NOBODY)


def records_of(event: events.AgentEvent) -> list[AnyRecord]:
    """Return the lines that an event leaves: none, one, or one for each file of an edit."""
    match event:
        case events.EditProposed(proposal=proposal, by=by):
            return [_shown(file, by) for file in proposal.files]
        case events.ConflictResolved(path=path, choice=choice):
            return [records.ConflictDecided(path=str(path), choice=choice)]
        case events.EditApplied(proposal=proposal, number=number):
            return [
                records.EditWritten(path=str(file.source.path), diff=unified(file), entry=number)
                for file in proposal.changed
            ]
        case events.TaskStepped(step=step, folder=folder):
            return _records_of_step(step, folder)
        case events.EditNotApplied(proposal=proposal, reason=why):
            return [records.EditDropped(path=str(file.source.path), reason=why) for file in proposal.files]
    record = _record_of(event)
    return [record] if record else []


def _records_of_step(step: AnyStep, folder: Path) -> list[AnyRecord]:
    """Return the lines of a task's step. Its text is the answer, and what it wrote is an edit."""
    match step:
        case steps.TextGrew(text=text):
            return [records.AnswerDelta(text=text)]
        case steps.FilesWritten(entry=entry, diff=diff):
            return [
                records.EditWritten(path=str(folder / path), diff=part, entry=entry)
                for path, part in zip(step.paths, diffs_by_file(diff, len(step.paths)), strict=True)
            ]
        case steps.CallEnded():
            return [_step(msgspec.structs.replace(step, output=""))]
        case (
            steps.CallStarted()
            | steps.PlanUpdated()
            | steps.ApprovalAsked()
            | steps.ApprovalAnswered()
            | steps.Steered()
        ):
            return [_step(step)]
    return []


def _step(step: AnyStep) -> records.StepTaken:
    return records.StepTaken(step=msgspec.to_builtins(step))


def diffs_by_file(diff: str, count: int) -> list[str]:
    """Return the parts of a unified diff, one for each of `count` files; the first has what is left."""
    parts = [part for part in re.split(r"^(?=--- .*\n\+\+\+ )", diff, flags=re.MULTILINE) if part]
    return parts if len(parts) == count else [diff, *[""] * (count - 1)][:count]


def _record_of(event: events.AgentEvent) -> AnyRecord | None:
    match event:
        case events.TurnStarted(turn=turn, text=text, mentions=mentions):
            return records.TurnBegun(turn=turn, text=text, mentions=list(mentions), at_s=time.time())
        case events.IntentDecided(kind=kind, by=by):
            return records.Intent(kind=kind, by=by)
        case events.FileChosen(path=path, by=by):
            return records.FileNamed(path=str(path), by=by)
        case events.CodeRead(pieces=pieces):
            return records.CodeGiven(pieces=list(pieces))
        case events.MemoryUsed(files=files, notes=notes, problem=problem):
            return records.MemoryGiven(files=list(files), notes=list(notes), problem=problem)
        case events.AnswerStarted() | events.EditStarted():
            return records.AttemptBegun()
        case events.ResponseBegan(response_id=response_id):
            return records.ResponseKnown(response_id=response_id)
        case events.ReasoningGrew(delta=delta):
            return records.ReasoningDelta(text=delta)
        case events.AnswerGrew(delta=delta):
            return records.AnswerDelta(text=delta)
        case events.DiffGrew(delta=delta):
            return records.EditDelta(text=delta)
        case events.Abandoned(chars=chars, why=why, steer=steer):
            return records.AttemptAbandoned(chars=chars, why=why, steer=steer)
        case events.SteerQueued(text=text):
            return records.SteerLate(text=text)
        case events.Failed(error=error):
            return records.Error(code=error.code, message=error.message, hint=error.hint)
        case events.TurnEnded():
            return records.TurnOver(**vars(event))
        case events.TimesMeasured():
            return _times(event)
    return _record_of_edit(event) or _record_of_talk(event)


def _record_of_edit(event: events.AgentEvent) -> AnyRecord | None:
    match event:
        case events.EditPlanned(units=units):
            return records.Planned(units=[_part(each) for each in units])
        case events.UnitLeft(unit=unit, problem=problem):
            return records.UnitStays(path=str(event.path), unit=unit.qualified_name, problem=problem)
        case events.UnitLocated(source=source, unit=unit, was_ranked=was_ranked):
            by = "model" if was_ranked else "user"
            path, lines = str(source.path), unit.lines_text
            return records.UnitChosen(path=path, unit=unit.qualified_name, lines=lines, by=by)
        case events.AnswersCompared(answers=answers, examples=examples, held=held, calls=calls):
            return records.Compared(answers=answers, examples=examples, held=held, calls=calls)
        case events.RepairStarted(complaint=complaint):
            return records.RepairBegun(complaint=complaint)
        case events.UserTestsEnded(has_passed=passed, tried=tried, why_not=why_not, output=output):
            return records.Tested(passed=passed, tried=tried, why_not=why_not, output=output)
        case events.ImportsAdded(lines=lines):
            return records.Imported(imports=list(lines))
        case events.NamesUndefined(path=path, names=names):
            return records.Undefined(path=str(path), names=list(names))
        case events.EditDecided(decision=decision):
            reason = decision.reason if isinstance(decision, Reject) else ""
            return records.Decided(decision=_name(decision), reason=reason)
    return None


def _record_of_talk(event: events.AgentEvent) -> AnyRecord | None:
    match event:
        case events.QueueChanged(messages=messages):
            return records.Queue(messages=list(messages))
        case events.CompactionStarted(why=why):
            return records.CompactionBegun(why=why)
        case events.Compacted(turn=turn, summary=summary, before_tokens=before):
            return records.Summary(turn=turn, summary=summary, before_tokens=before)
        case events.CompactionUndone():
            return records.SummaryDropped()
        case events.Retold(first_turn=first, left_out=left_out):
            return records.ToldAgain(first_turn=first, left_out=left_out)
        case events.Rewound(turn=turn, is_talk=is_talk, is_code=is_code, paths=paths, entries=entries):
            return records.WasRewound(
                turn=turn, is_talk=is_talk, is_code=is_code, paths=list(paths), entries=list(entries)
            )
        case events.EditsUndone(paths=paths, entries=entries):
            return records.EditsTakenBack(paths=list(paths), entries=list(entries))
        case events.EditsRedone(paths=paths, entries=entries):
            return records.EditsBroughtBack(paths=list(paths), entries=list(entries))
        case events.NoteAdded(text=text):
            return records.Note(text=text)
        case events.SideStarted(question=question):
            return records.SideBegun(question=question)
        case events.SideGrew(delta=delta):
            return records.SideDelta(text=delta)
        case events.SideEnded(status=status):
            return records.SideOver(status=status)
    return None


def _part(planned: events.PlannedUnit) -> records.PlannedPart:
    unit = planned.unit
    return records.PlannedPart(
        path=str(planned.path), unit=unit.qualified_name, lines=unit.lines_text, why=planned.why
    )


def _shown(file: FileProposal, by: str) -> records.EditShown:
    return records.EditShown(
        path=str(file.source.path),
        unit=file.unit.qualified_name,
        diff=unified(file),
        problems=list(file.problems),
        by=by,
    )


def unified(proposal: FileProposal) -> str:
    """Return the proposal as a unified diff with the file's name, which `patch` understands."""
    path = proposal.source.path
    rows = [row.text if row.tag == "@" else row.tag + row.text for row in proposal.rows]
    return "".join(f"{row}\n" for row in [f"--- {path}", f"+++ {path}", *rows]) if rows else ""


def _name(decision: Decision) -> str:
    match decision:
        case Reject():
            return "reject"
        case AcceptHunks():
            return "hunks"
        case UseText():
            return "text"
    return "accept"


def _times(event: events.TimesMeasured) -> records.Times:
    turns = [{"name": turn.name} | msgspec.to_builtins(turn.waterfall) for turn in event.turns]
    return records.Times(model=event.model, first_token_ms=event.first_token_ms, turns=turns)
