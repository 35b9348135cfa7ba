"""`vivace undo` and `redo` in one project leave the other alone, unless they are told otherwise."""

import subprocess
from pathlib import Path

import pytest

from tests.e2e.conftest import NEW, TASK
from tests.e2e.terminal import PROGRAM, Done, Home


@pytest.fixture
def other(task_home: Home) -> Path:
    """Another project, after an edit in the first one."""
    done = task_home.run("edit", "task.py", "shout", "--yes")
    assert "`vivace undo --number 1` takes it back" in done.out, done
    other = task_home.folder / "other"
    other.mkdir()
    return other


def run_in(home: Home, folder: Path, *arguments: str) -> Done:
    done = subprocess.run(
        [*PROGRAM, *arguments], cwd=folder, env=home.env(), capture_output=True, text=True, check=False
    )
    return Done(done.returncode, done.stdout, done.stderr)


def test_undo_takes_back_nothing_elsewhere(task_home: Home, other: Path) -> None:
    """It says where the last edit was, and the command that takes that one back does so."""
    file = task_home.work / "task.py"
    refused = run_in(task_home, other, "undo")
    assert (refused.code, file.read_text()) == (1, NEW), refused
    assert f"There is nothing to undo in {other}." in refused.err
    assert str(file) in refused.err
    assert "`vivace undo --number 1` takes it back" in refused.err
    assert run_in(task_home, other, "undo", "--number", "1").code == 0
    assert file.read_text() == TASK


def test_redo_brings_back_nothing_elsewhere(task_home: Home, other: Path) -> None:
    """It names the number that does; --all does, too."""
    file = task_home.work / "task.py"
    assert task_home.run("undo").code == 0
    refused = run_in(task_home, other, "redo")
    assert (refused.code, file.read_text()) == (1, TASK), refused
    assert "`vivace redo --number 2` brings it back" in refused.err
    assert run_in(task_home, other, "redo", "--all").code == 0
    assert file.read_text() == NEW


def test_all_is_for_every_folder(task_home: Home, other: Path) -> None:
    """--all takes the last edit back wherever it was; with a path it makes no sense."""
    assert run_in(task_home, other, "undo", "--all", "task.py").code == 2
    assert run_in(task_home, other, "undo", "--all").code == 0
    assert (task_home.work / "task.py").read_text() == TASK


def test_the_list_is_of_this_folder(task_home: Home, other: Path) -> None:
    """Where there are others, it is said how they are shown."""
    here = run_in(task_home, other, "undo", "--list")
    assert "shout" not in here.out
    assert "`vivace undo --list --all`" in here.out
    assert "shout" in run_in(task_home, other, "undo", "--list", "--all").out
    assert "shout" in task_home.run("undo", "--list").out
