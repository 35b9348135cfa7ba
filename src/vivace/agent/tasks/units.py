"""A task of a model that is too small for tools: an answer, or the unit loop over a plan.

Owns what a task adds to that: steps instead of events, permissions, an honest end, and that a write which was
interrupted is recognised. Does not own the edit (`conversation.turns.turn_work`, `edits.flow`).
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from vivace.agent.conversation.connection import Connection
from vivace.agent.conversation.message.mentions import mentions_in
from vivace.agent.conversation.transcript.history import History, Turn
from vivace.agent.conversation.turns.turn_work import TurnWork
from vivace.agent.edits.apply.replacing import sha256_of
from vivace.agent.edits.apply.source import check_led_to
from vivace.agent.edits.conflict import Conflict, Resolution, Stop
from vivace.agent.edits.proposal import Accept, Decision, Proposal, Reject
from vivace.agent.events.base import Failed
from vivace.agent.events.edit import (
    EditApplied,
    EditDecided,
    EditPlanned,
    EditProposed,
    RepairStarted,
    UnitLeft,
    UnitLocated,
)
from vivace.agent.events.every import AgentEvent
from vivace.agent.events.task import (
    ApprovalAnswered,
    EndReason,
    FilesWritten,
    FileWriting,
    PlanUpdated,
    Steered,
    TaskEnded,
    TextGrew,
    TurnBegan,
    WritingBegan,
)
from vivace.agent.events.turn import AnswerGrew, AttemptStarted, TimesMeasured
from vivace.agent.loop.asking import question
from vivace.agent.loop.calls import Desk, TaskPresenter
from vivace.agent.loop.diffs import unified_diff
from vivace.agent.loop.task import EXIT_CODES, INTERACTIVE, Pace, TaskLimits
from vivace.agent.permissions.decision import Situation, Verdict, WritePath, decide
from vivace.agent.permissions.paths import locate
from vivace.agent.tasks.resuming import WRITTEN, look_at
from vivace.agent.tools.base import Step
from vivace.errors import (
    APPROVAL_NEEDED,
    DONE,
    ApprovalNeeded,
    LimitReached,
    ServerGone,
    StartError,
    VivaceError,
)


class UnitsTask:
    """`steps` are the lines of its log so far, if it has one."""

    def __init__(
        self,
        id: str,
        desk: Desk,
        connection: Connection,
        limits: TaskLimits,
        steps: Sequence[object] = (),
        pace: Pace = INTERACTIVE,
    ) -> None:
        self._id = id
        self._desk = desk
        self._connection = connection
        self._limits = limits
        self._pace = pace
        self._began_s = time.monotonic()
        self._is_over = False
        steers = [step.text for step in steps if isinstance(step, Steered)]
        self._text = "\n".join([desk.instruction, *steers])
        self._writing = next((each for each in reversed(steps) if isinstance(each, WritingBegan)), None)
        self._presenter = UnitsPresenter(desk.presenter, desk.context.root, id, self._verdict)
        history = History(id=id, folder=str(desk.context.root), model=connection.settings.model)
        history.turns.append(Turn(1, self._text))
        self._work = TurnWork(history, connection, self._presenter, desk.journal)

    async def steer(self, text: str) -> bool:
        """Begin the edit again with this. Return False if it is too late."""
        if self._is_over:
            return False
        self._desk.presenter.show(Steered(text=text))
        await self._work.steer(text)
        return True

    def stop(self) -> None:
        self._work.stop()

    async def run(self) -> TaskEnded:
        error: VivaceError | None = None
        reason: EndReason = "completed"
        self._desk.presenter.show(self._desk.started(self._id, self._connection.settings.model))
        try:
            if self._is_written():
                self._presenter.summary = WRITTEN
            else:
                self._desk.presenter.show(TurnBegan(turn=1))
                async with asyncio.timeout(self._limits.seconds):
                    reason = await self._worked()
        except TimeoutError:
            reason = "time"
        except LimitReached:
            reason = "turns"
        except VivaceError as problem:
            error, reason = problem, "failed"
        self._is_over = True
        ended = self._ended(reason, error)
        self._desk.presenter.show(ended)
        return ended

    def _is_written(self) -> bool:
        """Return whether an interrupted process had written the edit already."""
        if self._writing is None:
            return False
        return look_at(self._writing, self._desk.journal, self._desk.presenter.show) == WRITTEN

    async def _worked(self) -> EndReason:
        """Answer or edit, as the task's words say; again if the server goes away meanwhile."""
        mentions = mentions_in(self._text, self._desk.context.root)
        delays = list(self._pace.delays_s)
        while True:
            try:
                ending = await self._work.run(self._text, mentions, None)
            except (ServerGone, StartError):
                if not delays:
                    raise
                await asyncio.sleep(delays.pop(0))
                await self._connection.renew()
            else:
                return "stopped" if ending.status == "stopped" else "completed"

    def _verdict(self, proposal: Proposal) -> Verdict:
        context = self._desk.context
        places = [locate(context.root, str(file.source.path)) for file in proposal.changed]
        for file, place in zip(proposal.changed, places, strict=True):
            check_led_to(file.source, place.path)
        needs = [WritePath(place) for place in places]
        return decide(needs, context.policies, Situation(is_tainted=True, has_sandbox=context.has_sandbox))

    def _ended(self, reason: EndReason, error: VivaceError | None) -> TaskEnded:
        code = error.exit_code if error else EXIT_CODES[reason]
        is_refused = bool(self._presenter.why_not)
        return TaskEnded(
            reason=reason,
            exit_code=APPROVAL_NEEDED if code == DONE and is_refused else code,
            text=self._presenter.summary if reason == "completed" else "",
            turns=1,
            tokens=self._presenter.tokens,
            seconds=round(time.monotonic() - self._began_s, 3),
            entries=tuple(self._presenter.entries),
            refused=int(is_refused),
            error=Failed(code=error.code, message=error.message, hint=error.hint) if error else None,
        )


class UnitsPresenter:
    """The events of an edit or an answer as steps of a task. The rules say whether a change asks."""

    def __init__(
        self, face: TaskPresenter, folder: Path, key: str, verdict: Callable[[Proposal], Verdict]
    ) -> None:
        self._face = face
        self._folder = folder
        self._key = key  # by which a question is answered
        self._verdict = verdict
        self._plan: list[tuple[str, str]] = []  # units and what becomes of them
        self._answer = ""  # to a question
        self.entries: list[int] = []
        self.tokens = 0  # read anew and written
        self.summary = "Nothing was changed."
        self.why_not = ""  # a change was not written

    def show(self, event: AgentEvent) -> None:
        match event:
            case EditPlanned(units=units):
                known = dict(self._plan)
                names = [f"{self._name(each.path)}: {each.in_words}" for each in units]
                self._plan = [(name, known.get(name, "pending")) for name in names]
                self._show_plan()
            case UnitLocated(source=source, unit=unit):
                if unit.kind != "part":
                    self._advance()
                self._say(f"Rewriting {unit.qualified_name} in {self._name(source.path)}.\n")
            case UnitLeft():
                self._say(f"{event.in_words}\n")
            case RepairStarted(complaint=complaint):
                self._say(f"{complaint}\n")
            case EditProposed(proposal=proposal):
                self._plan = [(name, "completed") for name, _ in self._plan]
                self._show_plan()
                for missing in proposal.missing:
                    self._say(f"Not in it: {missing}\n")
                for fault in proposal.faults:
                    self._say(f"{fault}\n")
            case AttemptStarted():
                self._answer = ""
            case AnswerGrew(text=delta):
                self._answer += delta
                self.summary = self._answer
                self._say(delta)
            case TimesMeasured(turns=turns):
                self.tokens += sum(each.new_tokens + each.output_tokens for each in turns)
            case EditDecided(proposal=proposal, decision=decision) if not isinstance(decision, Reject):
                self._face.show(_writing(proposal))
            case EditApplied(proposal=proposal, number=number):
                self._written(proposal, number)

    async def decide(self, proposal: Proposal) -> Decision:
        verdict = self._verdict(proposal)
        if verdict.kind == "allow" and not proposal.faults:
            return Accept()
        self._say(f"{self.diff_of(proposal)}\n")
        if verdict.kind == "allow":  # nobody has seen this one
            return self._refused(" ".join(proposal.faults))
        if verdict.kind == "refuse":
            return self._refused(verdict.reason)
        try:
            asked = question(
                call_id=self._key,
                tool="edit",
                title=proposal.paths_text,
                exact=self.diff_of(proposal),
                reason=verdict.reason,
            )
        except ApprovalNeeded as error:
            return self._refused(error.message)
        self._face.show(asked)
        answer = await self._face.approve(asked)
        self._face.show(
            ApprovalAnswered(call_id=self._key, is_allowed=answer.is_allowed, reason=answer.reason)
        )
        return Accept() if answer.allows(asked) else self._refused(answer.reason)

    async def resolve(self, conflict: Conflict) -> Resolution:
        """Leave a file that the user has changed meanwhile: nobody is asked about lines."""
        self._refused(f"{self._name(conflict.path)} was changed meanwhile.")
        return Stop()

    def diff_of(self, proposal: Proposal) -> str:
        return "".join(unified_diff(file.change, self._folder)[1] for file in proposal.changed)

    def _refused(self, reason: str) -> Reject:
        self.summary = self.why_not = f"The change was not taken. {reason}".rstrip()
        return Reject(reason)

    def _written(self, proposal: Proposal, entry: int) -> None:
        diffs = [unified_diff(file.change, self._folder) for file in proposal.changed]
        paths = [path for path, _ in diffs]
        self.entries.append(entry)
        self._face.show(FilesWritten(entry=entry, paths=paths, diff="".join(diff for _, diff in diffs)))
        self.summary = f"Changed {', '.join(paths)}."

    def _advance(self) -> None:
        """Mark the unit that was at work as done, and the next one as at work."""
        done = [(name, "completed" if status == "in_progress" else status) for name, status in self._plan]
        at = next((n for n, (_, status) in enumerate(done) if status == "pending"), None)
        if at is not None:
            done[at] = (done[at][0], "in_progress")
        self._plan = done
        self._show_plan()

    def _show_plan(self) -> None:
        if self._plan:
            self._face.show(PlanUpdated(steps=[Step(name, status) for name, status in self._plan]))

    def _say(self, text: str) -> None:
        self._face.show(TextGrew(text=text))

    def _name(self, path: Path) -> str:
        return str(path.relative_to(self._folder)) if path.is_relative_to(self._folder) else str(path)


def _writing(proposal: Proposal) -> WritingBegan:
    files = [
        FileWriting(
            path=str(file.source.target),
            before_sha256=file.source.sha256 if file.source.exists else None,
            after_sha256=sha256_of(file.new_bytes),
        )
        for file in proposal.changed
    ]
    return WritingBegan(call_ids=[], files=files)
