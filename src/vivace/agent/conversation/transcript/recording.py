"""From the agent's events to the lines of a transcript.

Owns which event leaves which line, and that the line is written before the event is shown. Does not own the
lines (`records`) nor the file (`file`).
"""

import re
from collections.abc import Sequence
from pathlib import Path

import msgspec

from vivace.agent import edit_events, talk_events, turn_events
from vivace.agent.conversation.transcript import edit_records, talk_records, turn_records
from vivace.agent.conversation.transcript.file import Transcript
from vivace.agent.conversation.transcript.history import History
from vivace.agent.conversation.transcript.record_log import RecordLog
from vivace.agent.conversation.transcript.records import AnyRecord
from vivace.agent.conversation.transcript.schema import Error
from vivace.agent.edits.conflict import Conflict, Resolution
from vivace.agent.edits.proposal import AcceptHunks, Decision, FileProposal, Proposal, Reject, UseText
from vivace.agent.events import AgentEvent
from vivace.agent.loop import steps
from vivace.agent.loop.calls import Approval
from vivace.agent.loop.steps import AnyStep
from vivace.agent.presenter import NOBODY, ApprovingPresenter, Presenter
from vivace.agent.sandbox.plain import Terminal, run_plainly
from vivace.agent.sandbox.run import Limits, Outcome
from vivace.errors import WriteProblem

ENDS = (turn_events.WritingEnded, turn_events.Failed, turn_events.TurnEnded, talk_events.SideEnded)


class RecordingPresenter:
    """Writes every event down, adds it to the history, and then lets the face show it."""

    def __init__(self, face: Presenter, transcript: Transcript, history: History, log: RecordLog) -> None:
        self._face = face
        self._transcript = transcript
        self._history = history
        self._log = log

    def show(self, event: AgentEvent) -> None:
        for record in records_of(event):
            try:
                self._transcript.append(record)
            except WriteProblem:
                if not isinstance(event, ENDS):
                    raise
            # That it ended is shown, though it cannot be written.
            self._history.take(record)
            self._log.add(record)
        self._face.show(event)

    async def decide(self, proposal: Proposal) -> Decision:
        return await self._face.decide(proposal)

    async def resolve(self, conflict: Conflict) -> Resolution:
        return await self._face.resolve(conflict)

    async def approve(self, asked: steps.ApprovalAsked) -> Approval:
        if isinstance(self._face, ApprovingPresenter):
            return await self._face.approve(asked)
        return Approval(is_allowed=False, reason=NOBODY)

    async def run_command(self, command: Sequence[str], folder: Path, limits: Limits) -> Outcome:
        """Let the face run a command in a terminal of its own, if it has any."""
        run = self._face.run_command if isinstance(self._face, Terminal) else run_plainly
        return await run(command, folder, limits)


def records_of(event: AgentEvent) -> list[AnyRecord]:
    """Return the lines that an event leaves: none, one, or one for each file of an edit."""
    match event:
        case edit_events.EditProposed(proposal=proposal, by=by):
            return [_shown(file, by) for file in proposal.files]
        case edit_events.ConflictResolved(path=path, choice=choice):
            return [edit_records.ConflictDecided(path=str(path), choice=choice)]
        case edit_events.EditApplied(proposal=proposal, number=number):
            return [
                edit_records.EditWritten(path=str(file.source.path), diff=unified(file), entry=number)
                for file in proposal.changed
            ]
        case turn_events.TaskStepped(step=step, folder=folder):
            return _records_of_step(step, folder)
        case edit_events.EditNotApplied(proposal=proposal, reason=why):
            return [
                edit_records.EditDropped(path=str(file.source.path), reason=why) for file in proposal.files
            ]
    record = _record_of(event)
    return [record] if record else []


def _records_of_step(step: AnyStep, folder: Path) -> list[AnyRecord]:
    """Return the lines of a task's step. Its text is the answer, and what it wrote is an edit."""
    match step:
        case steps.TextGrew(text=text):
            return [turn_records.AnswerDelta(text=text)]
        case steps.FilesWritten(entry=entry, diff=diff):
            return [
                edit_records.EditWritten(path=str(folder / path), diff=part, entry=entry)
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


def _step(step: AnyStep) -> turn_records.StepTaken:
    return turn_records.StepTaken(step=msgspec.to_builtins(step))


def diffs_by_file(diff: str, count: int) -> list[str]:
    """Return the parts of a unified diff, one for each of `count` files; the first has what is left."""
    parts = [part for part in re.split(r"^(?=--- .*\n\+\+\+ )", diff, flags=re.MULTILINE) if part]
    return parts if len(parts) == count else [diff, *[""] * (count - 1)][:count]


def _record_of(event: AgentEvent) -> AnyRecord | None:
    match event:
        case turn_events.TurnStarted(turn=turn, text=text, mentions=mentions, at_s=at_s):
            return turn_records.TurnBegun(turn=turn, text=text, mentions=list(mentions), at_s=at_s)
        case turn_events.IntentDecided(kind=kind, by=by):
            return turn_records.Intent(kind=kind, by=by)
        case turn_events.FileChosen(path=path, by=by):
            return turn_records.FileNamed(path=str(path), by=by)
        case turn_events.PlacesAsked(places=places):
            return turn_records.PlacesNamed(places=list(places))
        case turn_events.CodeRead(pieces=pieces):
            return turn_records.CodeGiven(pieces=list(pieces))
        case turn_events.MemoryUsed(files=files, notes=notes, problem=problem):
            return turn_records.MemoryGiven(files=list(files), notes=list(notes), problem=problem)
        case turn_events.AnswerStarted() | edit_events.EditStarted():
            return turn_records.AttemptBegun()
        case turn_events.ResponseBegan(response_id=response_id):
            return turn_records.ResponseKnown(response_id=response_id)
        case turn_events.ReasoningGrew(delta=delta):
            return turn_records.ReasoningDelta(text=delta)
        case turn_events.AnswerGrew(delta=delta):
            return turn_records.AnswerDelta(text=delta)
        case edit_events.DiffGrew(delta=delta):
            return edit_records.EditDelta(text=delta)
        case turn_events.Abandoned(chars=chars, why=why, steer=steer):
            return turn_records.AttemptAbandoned(chars=chars, why=why, steer=steer)
        case turn_events.SteerQueued(text=text):
            return turn_records.SteerLate(text=text)
        case turn_events.Failed(error=error):
            return Error(code=error.code, message=error.message, hint=error.hint)
        case turn_events.TurnEnded():
            return turn_records.TurnOver(**vars(event))
        case turn_events.TimesMeasured():
            return _times(event)
    return _record_of_edit(event) or _record_of_talk(event)


def _record_of_edit(event: AgentEvent) -> AnyRecord | None:
    match event:
        case edit_events.EditPlanned(units=units):
            return edit_records.Planned(units=[_part(each) for each in units])
        case edit_events.UnitLeft(unit=unit, problem=problem):
            return edit_records.UnitStays(path=str(event.path), unit=unit.qualified_name, problem=problem)
        case edit_events.UnitLocated(source=source, unit=unit, was_ranked=was_ranked):
            by = "model" if was_ranked else "user"
            path, lines = str(source.path), unit.lines_text
            return edit_records.UnitChosen(path=path, unit=unit.qualified_name, lines=lines, by=by)
        case edit_events.AnswersCompared(answers=answers, examples=examples, held=held, calls=calls):
            return edit_records.Compared(answers=answers, examples=examples, held=held, calls=calls)
        case edit_events.RepairStarted(complaint=complaint):
            return edit_records.RepairBegun(complaint=complaint)
        case edit_events.UserTestsEnded(has_passed=passed, tried=tried, why_not=why_not, output=output):
            return edit_records.Tested(passed=passed, tried=tried, why_not=why_not, output=output)
        case edit_events.ImportsAdded(lines=lines):
            return edit_records.Imported(imports=list(lines))
        case edit_events.NamesUndefined(path=path, names=names):
            return edit_records.Undefined(path=str(path), names=list(names))
        case edit_events.EditDecided(decision=decision):
            reason = decision.reason if isinstance(decision, Reject) else ""
            return edit_records.Decided(decision=_name(decision), reason=reason)
    return None


def _record_of_talk(event: AgentEvent) -> AnyRecord | None:
    match event:
        case talk_events.QueueChanged(messages=messages):
            return talk_records.Queue(messages=list(messages))
        case talk_events.CompactionStarted(why=why):
            return talk_records.CompactionBegun(why=why)
        case talk_events.Compacted(turn=turn, summary=summary, before_tokens=before):
            return talk_records.Summary(turn=turn, summary=summary, before_tokens=before)
        case talk_events.CompactionUndone():
            return talk_records.SummaryDropped()
        case turn_events.Retold(first_turn=first, left_out=left_out):
            return turn_records.ToldAgain(first_turn=first, left_out=left_out)
        case talk_events.Rewound(turn=turn, is_talk=is_talk, is_code=is_code, paths=paths, entries=entries):
            return talk_records.WasRewound(
                turn=turn, is_talk=is_talk, is_code=is_code, paths=list(paths), entries=list(entries)
            )
        case talk_events.EditsUndone(paths=paths, entries=entries):
            return talk_records.EditsTakenBack(paths=list(paths), entries=list(entries))
        case talk_events.EditsRedone(paths=paths, entries=entries):
            return talk_records.EditsBroughtBack(paths=list(paths), entries=list(entries))
        case talk_events.NoteAdded(text=text):
            return talk_records.Note(text=text)
        case talk_events.ModelChanged(model=model):
            return talk_records.ModelChosen(model=model)
        case talk_events.Renamed(title=title):
            return talk_records.WasRenamed(title=title)
        case talk_events.SideStarted(question=question):
            return talk_records.SideBegun(question=question)
        case talk_events.SideGrew(delta=delta):
            return talk_records.SideDelta(text=delta)
        case talk_events.SideEnded(status=status):
            return talk_records.SideOver(status=status)
    return None


def _part(planned: edit_events.PlannedUnit) -> edit_records.PlannedPart:
    unit = planned.unit
    return edit_records.PlannedPart(
        path=str(planned.path), unit=unit.qualified_name, lines=unit.lines_text, why=planned.why
    )


def _shown(file: FileProposal, by: str) -> edit_records.EditShown:
    return edit_records.EditShown(
        path=str(file.source.path),
        unit=file.unit.qualified_name,
        diff=unified(file),
        problems=[*file.problems, *file.faults],
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


def _times(event: turn_events.TimesMeasured) -> turn_records.Times:
    turns = [{"name": turn.name} | msgspec.to_builtins(turn.waterfall) for turn in event.turns]
    return turn_records.Times(model=event.model, first_token_ms=event.first_token_ms, turns=turns)
