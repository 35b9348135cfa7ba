"""What tests of background tasks share: Git, and a task that dies, or whose server dies, at a given line."""

import asyncio
import os
import signal
import subprocess
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

from tests.server.serving import until
from vivace.agent.tasks import control
from vivace.agent.tasks.log import TaskLog
from vivace.agent.tasks.records import RunnerBegan
from vivace.agent.tasks.state import Status, TaskState
from vivace.agent.tasks.store import TaskFolder
from vivace.agent.tasks.working import TaskWork
from vivace.client import warm
from vivace.config import Settings

Victim = Literal["runner before", "runner in the middle", "runner after", "server", "engine", "nobody"]
IDENTITY = ["-c", "user.email=a@example.org", "-c", "user.name=A"]


def git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(
        ["git", *IDENTITY, "-C", str(folder), *arguments], capture_output=True, text=True, check=True
    )
    return done.stdout


def commit(folder: Path) -> None:
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", "a commit")


def wait_for(task: TaskFolder, status: Status) -> TaskState:
    def reached() -> TaskState | None:
        state = task.state()
        assert state.status == status or not state.is_over, (state, task.output_file.read_text())
        return state if state.status == status else None

    return until(reached)  # type: ignore[return-value]


def seen(task: TaskFolder, kind: type) -> list[Any]:
    return [line.step for line in task.lines() if isinstance(line.step, kind)]


def work_in_child(task: TaskFolder, settings: Settings, victim: Victim, at: int) -> bool:
    """Work on the task in a process of its own. Kill the victim at the `at`-th step that it logs.

    Return whether the process came to its end.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # forking a process that has threads
        pid = os.fork()
    if pid == 0:
        try:
            if not isinstance(task.lines()[-1].step, RunnerBegan):
                control.begin_run(task)
            TaskLog.append = _deadly(TaskLog.append, victim, at, settings)  # type: ignore[method-assign]
            with task.locked():
                asyncio.run(TaskWork(task, settings).run())
        except BaseException:  # noqa: BLE001 - the child must never return into pytest
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    _, status = os.waitpid(pid, 0)
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL
        return False
    assert os.WEXITSTATUS(status) == 0, "the work raised"
    return True


def _deadly(append: Callable[..., None], victim: Victim, at: int, settings: Settings) -> Any:
    """Return `append` that kills the victim at its `at`-th call."""
    count = 0

    def deadly(log: TaskLog, step: Any) -> None:
        nonlocal count
        count += not step.is_delta  # how often text is written down depends on the clock
        if count != at or step.is_delta:
            append(log, step)
            return
        if victim == "runner in the middle":
            os.write(log._fd, b'{"at_s":1.0,"step":{"type":"task.en')
        if victim in ("runner before", "runner in the middle"):
            os.kill(os.getpid(), signal.SIGKILL)
        append(log, step)
        if victim == "runner after":
            os.kill(os.getpid(), signal.SIGKILL)
        if victim in ("server", "engine"):
            _kill(settings, victim)

    return deadly


def _kill(settings: Settings, victim: Victim) -> None:
    status = warm.read_status(settings)
    assert status is not None
    pid = status.pid if victim == "server" else status.engine.pid
    if pid:
        os.kill(pid, signal.SIGKILL)
