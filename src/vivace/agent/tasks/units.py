"""A task of a model that is too small for tools: the unit loop over a plan, in the task's workplace.

Owns what a task adds to an edit: steps for the log instead of events, an honest end, and that a write which
was interrupted is recognised. Does not own the edit (`conversation.turn_work`, `edits.flow`).
"""

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path

from vivace.agent.conversation.connection import Connection
from vivace.agent.conversation.message.mentions import mentions_in
from vivace.agent.conversation.transcript.history import History, Turn
from vivace.agent.conversation.transcript.schema import SCHEMA, Error
from vivace.agent.conversation.turn_work import TurnWork
from vivace.agent.edit_events import (
    EditApplied,
    EditDecided,
    EditPlanned,
    EditProposed,
    RepairStarted,
    UnitLeft,
    UnitLocated,
)
from vivace.agent.edits.apply.journal import Journal
from vivace.agent.edits.apply.replacing import sha256_of
from vivace.agent.edits.conflict import Conflict, Resolution, Stop
from vivace.agent.edits.proposal import Accept, Decision, Proposal
from vivace.agent.events import AgentEvent
from vivace.agent.loop.calls import TaskPresenter
from vivace.agent.loop.diffs import unified_diff
from vivace.agent.loop.steps import (
    EndReason,
    FilesWritten,
    FileWriting,
    PlanUpdated,
    Steered,
    TaskEnded,
    TaskStarted,
    TextGrew,
    TurnBegan,
    WritingBegan,
)
from vivace.agent.loop.task import EXIT_CODES, UNATTENDED
from vivace.agent.tasks.log import LogFace
from vivace.agent.tasks.records import Line, TaskQueued
from vivace.agent.tasks.resuming import WRITTEN, look_at
from vivace.agent.tools.base import Step
from vivace.agent.turn_events import TimesMeasured
from vivace.errors import LimitReached, ServerGone, StartError, VivaceError


class UnitsTask:
    def __init__(
        self,
        queued: TaskQueued,
        connection: Connection,
        face: LogFace,
        journal: Journal,
        lines: Sequence[Line],
    ) -> None:
        self._queued = queued
        self._face = face
        self._journal = journal
        self._began_s = time.monotonic()
        self._is_over = False
        steers = [line.step.text for line in lines if isinstance(line.step, Steered)]
        self._text = "\n".join([queued.task, *steers])
        self._writing = next(
            (each.step for each in reversed(lines) if isinstance(each.step, WritingBegan)), None
        )
        self._presenter = UnitsPresenter(face, Path(queued.workspace))
        history = History(folder=queued.workspace, model=queued.model)
        history.turns.append(Turn(1, self._text))
        self._work = TurnWork(history, connection, self._presenter, journal)
        self._work.approval = "always"
        self._connection = connection

    async def steer(self, text: str) -> bool:
        """Begin the edit again with this. Return False if it is too late."""
        if self._is_over:
            return False
        self._face.show(Steered(text=text))
        await self._work.steer(text)
        return True

    def stop(self) -> None:
        self._work.stop()

    async def run(self) -> TaskEnded:
        error: VivaceError | None = None
        reason: EndReason = "completed"
        self._face.show(_started(self._queued))
        try:
            if not self._is_written():
                self._face.show(TurnBegan(turn=1))
                async with asyncio.timeout(self._queued.limits.seconds):
                    reason = await self._edited()
        except TimeoutError:
            reason = "time"
        except LimitReached:
            reason = "turns"
        except VivaceError as problem:
            error, reason = problem, "failed"
        self._is_over = True
        ended = self._ended(reason, error)
        self._face.show(ended)
        return ended

    def _is_written(self) -> bool:
        """Return whether an interrupted process had written the edit already."""
        if self._writing is None:
            return False
        return look_at(self._writing, self._journal, self._face.show) == WRITTEN

    async def _edited(self) -> EndReason:
        """Do the edit, again if the server goes away meanwhile."""
        folder = Path(self._queued.workspace)
        delays = list(UNATTENDED.delays_s)
        while True:
            try:
                ending = await self._work.run(self._text, mentions_in(self._text, folder), "edit")
            except (ServerGone, StartError):
                if not delays:
                    raise
                await asyncio.sleep(delays.pop(0))
                await self._connection.renew()
            else:
                return "stopped" if ending.status == "stopped" else "completed"

    def _ended(self, reason: EndReason, error: VivaceError | None) -> TaskEnded:
        code = error.exit_code if error else EXIT_CODES[reason]
        return TaskEnded(
            reason=reason,
            exit_code=code,
            text=self._presenter.summary if reason == "completed" else "",
            turns=1,
            tokens=self._presenter.tokens,
            seconds=round(time.monotonic() - self._began_s, 3),
            entries=tuple(self._presenter.entries),
            error=Error(code=error.code, message=error.message, hint=error.hint) if error else None,
        )


class UnitsPresenter:
    """The events of an edit as steps of a task."""

    def __init__(self, face: TaskPresenter, folder: Path) -> None:
        self._face = face
        self._folder = folder
        self._plan: list[tuple[str, str]] = []  # units and what becomes of them
        self.entries: list[int] = []
        self.tokens = 0  # read anew and written
        self.summary = "The change was written before the task was cut off."

    def show(self, event: AgentEvent) -> None:
        match event:
            case EditPlanned(units=units):
                known = dict(self._plan)
                names = [f"{self._name(each.path)}: {each.in_words}" for each in units]
                self._plan = [(name, known.get(name, "pending")) for name in names]
                self._show_plan()
            case UnitLocated(source=source, unit=unit):
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
            case TimesMeasured(turns=turns):
                self.tokens += sum(each.waterfall.new_tokens + each.waterfall.output_tokens for each in turns)
            case EditDecided(proposal=proposal):
                self._face.show(_writing(proposal))
            case EditApplied(proposal=proposal, number=number):
                self._written(proposal, number)

    async def decide(self, proposal: Proposal) -> Decision:
        del proposal
        return Accept()

    async def resolve(self, conflict: Conflict) -> Resolution:
        del conflict
        return Stop()

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


def _started(queued: TaskQueued) -> TaskStarted:
    return TaskStarted(
        schema=SCHEMA,
        id=queued.id,
        folder=queued.workspace,
        model=queued.model,
        task=queued.task,
        access=queued.access,
        asking=queued.asking,
        has_sandbox=False,
        at_s=time.time(),
    )
