"""A repository, and tasks in it that run in a process of their own or in this one."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.agent.tasks.tasking import commit, git
from tests.server.serving import script
from vivace.agent.loop.task import TaskLimits
from vivace.agent.permissions.policy import Policy
from vivace.agent.tasks import control
from vivace.agent.tasks.store import TaskFolder
from vivace.config import Settings

Queue = Callable[..., TaskFolder]
Start = Callable[..., tuple[Settings, TaskFolder]]


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository with a commit, a change that is not committed, and a file that is not tracked."""
    folder = tmp_path / "project"
    folder.mkdir()
    git(folder, "init", "-q", "-b", "main")
    (folder / "a.py").write_text("x = 1\n")
    (folder / "b.py").write_text("one = 1\ntwo = 2\nthree = 3\n")
    (folder / ".gitignore").write_text("ignored/\n")
    commit(folder)
    (folder / "b.py").write_text("one = 1\ntwo = 2\nthree = 3\nfour = 4\n")
    (folder / "new.txt").write_text("untracked\n")
    (folder / "ignored").mkdir()
    (folder / "ignored" / "large").write_text("ignored\n")
    return folder


@pytest.fixture
def quiet_settings(tmp_path: Path) -> Settings:
    """Settings of tasks that never run."""
    return Settings(cache_dir=tmp_path / "cache", state_dir=tmp_path / "state", model="scripted:none")


@pytest.fixture
def queue(monkeypatch: pytest.MonkeyPatch, repository: Path) -> Queue:
    """Queue a task whose process is not started: the test is its process."""

    def queue(settings: Settings, instruction: str = "Do the task.") -> TaskFolder:
        monkeypatch.setattr(control, "_spawn", lambda *_: None)
        try:
            return control.start_task(
                settings,
                repository,
                instruction,
                policy=Policy(),
                limits=TaskLimits(),
            )
        finally:
            monkeypatch.undo()

    return queue


@pytest.fixture
def start(served: Settings, tmp_path: Path, repository: Path) -> Iterator[Start]:
    """Start a task whose model says these messages, one a turn."""
    started: list[TaskFolder] = []

    def start(
        *steps: str,
        limits: TaskLimits | None = None,
        context: Any = (),
        policy: Policy | None = None,
        uses_project: bool = True,
        **options: Any,
    ) -> tuple[Settings, TaskFolder]:
        model = script(
            tmp_path, f"script{len(started)}", steps=list(steps), **({"context_tokens": 60000} | options)
        )
        settings = served.having(model=model)
        task = control.start_task(
            settings,
            repository,
            "Do the task.",
            policy=policy or Policy(),
            limits=limits or TaskLimits(),
            context=context,
            uses_project=uses_project,
        )
        started.append(task)
        return settings, task

    yield start
    for task in started:
        control.stop_task(task)
        control.remove_task(task)
