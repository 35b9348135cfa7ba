"""An edit as the client sees it: one tool call, whose diff grows a few times a second and is whole each time.

Owns its beginning, its updates and its end, and the plan where it has several units. Does not ask
(`presenter`).
"""

import time
from pathlib import Path
from typing import Any

from acp.schema import (
    AgentPlanUpdate,
    PlanEntry,
    PlanEntryStatus,
    ToolCallLocation,
    ToolCallProgress,
    ToolCallStart,
    ToolCallStatus,
    ToolCallUpdate,
)

from vivace.acp.presenting.diffs import proposal_contents, rows_content
from vivace.acp.presenting.updates import Updates
from vivace.agent.edits.proposal import Proposal
from vivace.agent.events.edit import DiffGrew, EditPlanned, EditStarted, PlannedUnit, UnitLocated

GROWS_S = 0.25  # between two updates of the growing diff


class EditCall:
    def __init__(self, updates: Updates, folder: Path) -> None:
        self._updates, self._folder = updates, folder
        self._count = 0
        self._id = ""  # of the call that is open
        self._path = Path()
        self._title = ""
        self._line: int | None = None
        self._content: list[Any] = []
        self._shown_s = 0.0
        self._plan: tuple[PlannedUnit, ...] = ()
        self._done: set[int] = set()  # units of the plan

    @property
    def is_open(self) -> bool:
        return bool(self._id)

    def begin(self, turn: int, event: EditStarted) -> None:
        self.end("failed")
        self._count += 1
        self._id = f"edit-{turn}-{self._count}"
        self._path, self._line, self._content, self._plan, self._done = event.source.path, None, [], (), set()
        self._title = f"Edit {self._named(self._path)}"
        self._updates.send(
            ToolCallStart(
                session_update="tool_call",
                tool_call_id=self._id,
                title=self._title,
                kind="edit",
                status="in_progress",
                locations=self._locations,
            )
        )

    def locate(self, event: UnitLocated) -> None:
        self._path, self._line = event.source.path, event.unit.first_line
        self._title = f"Edit {self._named(self._path)}: {event.unit.qualified_name}"
        self._progress("in_progress")
        for index, planned in enumerate(self._plan):
            if (planned.path, planned.unit.qualified_name) == (self._path, event.unit.qualified_name):
                self._show_plan(running=index)

    def plan(self, event: EditPlanned) -> None:
        self._plan = event.units
        self._show_plan(running=None)

    def grow(self, event: DiffGrew) -> None:
        """Show the diff so far, if there is one and the last time is a moment ago."""
        now = time.monotonic()
        if now - self._shown_s < GROWS_S:
            return
        rows = event.rows
        if any(row.tag in "+-" for row in rows):
            self._shown_s = now
            self._content = [rows_content(self._path.absolute(), rows)]
            self._progress("in_progress")

    def propose(self, proposal: Proposal) -> None:
        self.take(proposal)
        self._progress("in_progress")
        if self._plan:
            self._done = set(range(len(self._plan)))
            self._show_plan(running=None)

    def take(self, proposal: Proposal) -> None:
        """Show this from the next update on: of some hunks, only those that were taken."""
        self._content = proposal_contents(proposal)

    def end(self, status: ToolCallStatus) -> None:
        """Say what became of it. No effect if no call is open."""
        if self._id:
            self._progress(status)
        self._id = ""

    @property
    def id(self) -> str:
        return self._id or f"edit-{self._count}"

    @property
    def question(self) -> ToolCallUpdate:
        """Return the call as a question shows it."""
        return ToolCallUpdate(
            tool_call_id=self.id,
            title=self._title or "Edit",
            kind="edit",
            status="pending",
            content=self._content or None,
            locations=self._locations,
        )

    def _progress(self, status: ToolCallStatus) -> None:
        if not self._id:
            return
        self._updates.send(
            ToolCallProgress(
                session_update="tool_call_update",
                tool_call_id=self._id,
                title=self._title,
                status=status,
                content=self._content or None,
                locations=self._locations,
            )
        )

    @property
    def _locations(self) -> list[ToolCallLocation]:
        return [ToolCallLocation(path=str(self._path.absolute()), line=self._line)]

    def _show_plan(self, running: int | None) -> None:
        if running is not None:
            self._done |= set(range(running))
        entries = [
            PlanEntry(
                content=f"{self._named(each.path)}: {each.in_words}",
                priority="medium",
                status=_status(index, running, self._done),
            )
            for index, each in enumerate(self._plan)
        ]
        self._updates.send(AgentPlanUpdate(session_update="plan", entries=entries))

    def _named(self, path: Path) -> str:
        return str(path.relative_to(self._folder)) if path.is_relative_to(self._folder) else str(path)


def _status(index: int, running: int | None, done: set[int]) -> PlanEntryStatus:
    if index == running:
        return "in_progress"
    return "completed" if index in done else "pending"
