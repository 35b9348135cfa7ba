"""Background tasks as the terminal sees them: begun from a conversation, counted, announced when they end.

Owns when it looks at them: every second, and only at those of this folder that are not over. Does not own the
tasks (`agent.tasks`), nor the commands about them (`tasks.tasks`).
"""

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from vivace.agent.events.task import ApprovalAsked, WorkflowStarted
from vivace.agent.loop.task import TaskLimits
from vivace.agent.permissions.policy import Policy
from vivace.agent.tasks import control
from vivace.agent.tasks.state import TaskState
from vivace.agent.tasks.store import TaskFolder, all_folders
from vivace.config import Settings
from vivace.redaction import redact
from vivace.tui.transcript.blocks import Note, Whole

LOOK_S = 1.0
ENDINGS = {
    "done": "is done",
    "stopped": "was stopped",
    "failed": "has failed",
    "limit": "has reached its limit",
    "interrupted": "was interrupted",
    "waiting": "asks",
}


class BackgroundTasks:
    def __init__(
        self,
        settings: Settings,
        folder: Path,
        show: Callable[[Note | Whole], object],
        on_count: Callable[[int], None],
    ) -> None:
        self._settings, self._folder = settings, folder.resolve()
        self._show, self._on_count = show, on_count
        self._passed_over: set[str] = set()  # tasks that are over, or of other folders
        self._statuses: dict[str, str] | None = None  # by task; None before the first look

    async def start(
        self,
        settings: Settings,
        instruction: str,
        policy: Policy,
        context: Sequence[dict[str, Any]] = (),
        workflow: WorkflowStarted | None = None,
    ) -> TaskFolder:
        """Begin a task in the background tier, with what was said before, or a workflow."""
        task = await asyncio.to_thread(
            control.start_task,
            settings.for_tier("background"),
            self._folder,
            instruction,
            policy=policy,
            limits=TaskLimits(),
            context=context,
            workflow=workflow,
        )
        if self._statuses is not None:
            self._statuses[task.id] = "queued"
        return task

    def look_again_at(self, task: TaskFolder) -> None:
        """Look at a task that was over: it goes on."""
        self._passed_over.discard(task.id)

    async def watch(self) -> None:
        """Look at the tasks again and again, and announce what happened."""
        while True:
            found = await asyncio.to_thread(self._look)
            for task, state in found:
                before = self._statuses.get(task.id) if self._statuses is not None else state.status
                if state.status != before and state.status in ENDINGS:
                    if state.status == "waiting" and state.asked is not None:
                        self._show(question_block(state.asked))
                    self._show(announcement(task, state))
            self._statuses = {task.id: state.status for task, state in found}
            self._on_count(sum(not state.is_over for _, state in found))
            await asyncio.sleep(LOOK_S)

    def _look(self) -> list[tuple[TaskFolder, TaskState]]:
        """Return the tasks of this folder that were not over when they were looked at last."""
        found = []
        for task in all_folders(self._settings):
            if task.id in self._passed_over:
                continue
            state = task.state()
            if state.queued is not None and Path(state.queued.folder) == self._folder:
                found.append((task, state))
            if state.is_over or (state.queued is not None and Path(state.queued.folder) != self._folder):
                self._passed_over.add(task.id)
        return found


def announcement(task: TaskFolder, state: TaskState) -> Note:
    """Return one line about a task that has ended or asks, and what to do about it."""
    name = short_id(task.id)
    hints = {
        "done": f"/tasks {name} take",
        "waiting": f"/tasks {name} yes · /tasks {name} no",
    }
    hint = hints.get(state.status, f"/tasks {name} resume")
    last = state.last.removeprefix("asks: ")
    return Note(f"Task {name} {ENDINGS[state.status]}: {redact(last)} · {hint}", style="bold")


def question_block(asked: ApprovalAsked) -> Whole:
    """Return all of a question, as it is to be seen before an answer."""
    return Whole(f"? {asked.tool} {asked.title}", asked.shown, asked.reason)


def short_id(task_id: str) -> str:
    """Return the part of an id that people type."""
    return task_id.rpartition("-")[2]
