"""Where tasks are kept: a folder for each, with its log, its inbox, its lock and its workplace.

Owns the names of the files, finding a task by a part of its id, and the lock: a process that works on a task
holds it, and the system lets go of it when the process dies, so no lock is ever stale and no task runs twice.
Does not start processes (`control`).
"""

import fcntl
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from vivace.agent.events.task import ApprovalAsked
from vivace.agent.tasks.lock import read_holder
from vivace.agent.tasks.log import kept_question, read_lines
from vivace.agent.tasks.records import Line, TaskQueued
from vivace.agent.tasks.state import TaskState, state_of
from vivace.config import Settings
from vivace.errors import TaskBusy, TaskNotFound

LOCK_WAIT_S = 0.5  # others look at the lock for an instant
END_WAIT_S = 15.0  # a process whose task is over lets go of it soon


@dataclass(frozen=True)
class TaskFolder:
    path: Path

    @property
    def id(self) -> str:
        return self.path.name

    @property
    def log_file(self) -> Path:
        return self.path / "log.jsonl"

    @property
    def inbox_file(self) -> Path:
        return self.path / "inbox.jsonl"

    @property
    def question_file(self) -> Path:
        """The open question, where the log must leave out a part of it."""
        return self.path / "question.json"

    @property
    def start_file(self) -> Path:
        """All files as they were when the task began."""
        return self.path / "start.zip"

    @property
    def work(self) -> Path:
        """The folder in which the workplace is."""
        return self.path / "work"

    @property
    def undo(self) -> Path:
        """The task's own journal: what it writes is none of the user's edits until it is taken over."""
        return self.path / "undo"

    @property
    def output_file(self) -> Path:
        """What the task's process has printed: nothing, if all is well."""
        return self.path / "runner.log"

    @property
    def _lock_file(self) -> Path:
        return self.path / "lock"

    def lines(self) -> list[Line]:
        return read_lines(self.log_file)

    def queued(self) -> TaskQueued:
        """Return how the task was given."""
        lines = self.lines()
        if not lines or not isinstance(lines[0].step, TaskQueued):
            raise TaskNotFound(f"The task {self.id} was never begun.", "`vivace tasks clean` removes it.")
        return lines[0].step

    def state(self) -> TaskState:
        """Return how the task is now."""
        is_running = self.is_running()  # before the log is read: its end may be written meanwhile
        state = state_of(self.lines())
        if state.asked is not None:
            state = replace(state, asked=self.whole_question(state.asked))
        if is_running and state.since_s is not None:
            return replace(state, seconds=state.seconds + max(0.0, time.time() - state.since_s))
        if not is_running and state.status in ("running", "waiting"):
            return replace(state, status="interrupted")
        return state

    def whole_question(self, logged: ApprovalAsked) -> ApprovalAsked:
        """Return a question with what the log leaves out of it, while it is open."""
        kept = kept_question(self.question_file)
        is_same = kept is not None and (kept.call_id, kept.digest) == (logged.call_id, logged.digest)
        return kept if kept is not None and is_same else logged

    # ---- the lock -----------------------------------------------------------------------------------

    def is_running(self) -> bool:
        """Return whether a process works on the task."""
        try:
            fd = os.open(self._lock_file, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return False
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(fd)
        return False

    def take_lock(self) -> int:
        """Return a file descriptor that holds the lock, and lets go of it when all its copies are closed.

        Raise TaskBusy if a process works on the task.
        """
        fd = os.open(self._lock_file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        is_over = state_of(self.lines()).is_over
        deadline = time.monotonic() + (END_WAIT_S if is_over else LOCK_WAIT_S)
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                if time.monotonic() > deadline:
                    os.close(fd)
                    raise TaskBusy(f"The task {self.id} runs.", f"`vivace tasks stop {self.id}`.") from error
                time.sleep(0.01)
            else:
                os.ftruncate(fd, 0)  # the process that held it before is none to end
                return fd

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep others from running the task."""
        fd = self.take_lock()
        try:
            yield
        finally:
            os.close(fd)

    def pid(self) -> int | None:
        """Return the process that holds the lock, or None if none does."""
        return read_holder(self._lock_file) if self.is_running() else None

    def delete(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)


def tasks_dir(settings: Settings) -> Path:
    return settings.state_dir / "tasks"


def all_folders(settings: Settings) -> list[TaskFolder]:
    """Return every task's folder, the newest first, whole or not."""
    try:
        paths = [path for path in tasks_dir(settings).iterdir() if path.is_dir()]
    except OSError:
        return []
    return [TaskFolder(path) for path in sorted(paths, reverse=True)]


def list_tasks(settings: Settings) -> list[tuple[TaskFolder, TaskState]]:
    """Return all tasks, the newest first."""
    found = [(folder, folder.state()) for folder in all_folders(settings)]
    return [(folder, state) for folder, state in found if state.queued]


def find_task(settings: Settings, part: str) -> TaskFolder:
    """Return the task whose id begins or ends with `part`. Raise TaskNotFound if it is not exactly one."""
    known = [folder for folder, _ in list_tasks(settings)]
    exact = [folder for folder in known if folder.id == part]
    found = exact or [each for each in known if part and each.id.startswith(part)]
    found = found or [each for each in known if part and each.id.endswith(part)]
    if len(found) == 1:
        return found[0]
    if found:
        names = ", ".join(folder.id for folder in found)
        raise TaskNotFound(f"{part!r} is not one task but {len(found)}: {names}.", "Write more of the id.")
    raise TaskNotFound(f"There is no task {part!r}.", "`vivace tasks` lists them.")
