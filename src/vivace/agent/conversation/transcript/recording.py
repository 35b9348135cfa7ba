"""From the agent's events to the lines of a transcript.

Owns which event leaves which line, and that the line is written before the event is shown. Does not own the
lines (`records`) nor the file (`file`).
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import cast

import msgspec

from vivace.agent.conversation.transcript import edit_records
from vivace.agent.conversation.transcript.file import Transcript
from vivace.agent.conversation.transcript.history import History
from vivace.agent.conversation.transcript.record_log import RecordLog
from vivace.agent.conversation.transcript.records import AnyRecord
from vivace.agent.edits.conflict import Conflict, Resolution
from vivace.agent.edits.proposal import AcceptHunks, Decision, FileProposal, Proposal, Reject, UseText
from vivace.agent.events import base as base_events
from vivace.agent.events import edit as edit_events
from vivace.agent.events import talk as talk_events
from vivace.agent.events import task as steps
from vivace.agent.events import turn as turn_events
from vivace.agent.events.base import Event
from vivace.agent.events.every import AgentEvent
from vivace.agent.events.task import AnyStep
from vivace.agent.loop.calls import Approval
from vivace.agent.presenter import NOBODY, ApprovingPresenter, Presenter
from vivace.agent.sandbox.plain import Terminal, run_plainly
from vivace.agent.sandbox.run import Limits, Outcome
from vivace.errors import WriteProblem

ENDS = (turn_events.WritingEnded, base_events.Failed, turn_events.TurnEnded, talk_events.SideEnded)


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
        case Event():
            return [cast(AnyRecord, event)] if event.is_kept else []
        case edit_events.EditStarted():
            return [turn_events.AttemptStarted()]
        case edit_events.EditProposed(proposal=proposal, by=by):
            return [_shown(file, by) for file in proposal.files]
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
    record = _record_of_edit(event)
    return [record] if record else []


def _records_of_step(step: AnyStep, folder: Path) -> list[AnyRecord]:
    """Return the lines of a task's step. Its text is the answer, and what it wrote is an edit."""
    match step:
        case steps.TextGrew(text=text):
            return [turn_events.AnswerGrew(text=text)]
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


def _step(step: AnyStep) -> turn_events.StepTaken:
    return turn_events.StepTaken(step=msgspec.to_builtins(step))


def diffs_by_file(diff: str, count: int) -> list[str]:
    """Return the parts of a unified diff, one for each of `count` files; the first has what is left."""
    parts = [part for part in re.split(r"^(?=--- .*\n\+\+\+ )", diff, flags=re.MULTILINE) if part]
    return parts if len(parts) == count else [diff, *[""] * (count - 1)][:count]


def _record_of_edit(event: AgentEvent) -> AnyRecord | None:
    match event:
        case edit_events.DiffGrew(delta=delta):
            return edit_records.EditDelta(text=delta)
        case edit_events.ConflictResolved(path=path, choice=choice):
            return edit_records.ConflictDecided(path=str(path), choice=choice)
        case edit_events.EditPlanned(units=units):
            return edit_records.Planned(units=[_part(each) for each in units])
        case edit_events.UnitLeft(unit=unit, problem=problem):
            return edit_records.UnitStays(path=str(event.path), unit=unit.qualified_name, problem=problem)
        case edit_events.UnitLocated(source=source, unit=unit, was_ranked=was_ranked):
            by = "model" if was_ranked else "user"
            lines = unit.lines_text
            return edit_records.UnitChosen(
                path=str(source.path), unit=unit.qualified_name, lines=lines, by=by
            )
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
