"""A repository, and tasks in it that run in a process of their own or in this one."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.agent.tasks.tasking import commit, git
from vivace.agent.loop.task import TaskLimits
from vivace.agent.permissions.policy import Policy
from vivace.agent.tasks import control
from vivace.agent.tasks.store import TaskFolder
from vivace.config import Settings

Queue = Callable[..., TaskFolder]


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
