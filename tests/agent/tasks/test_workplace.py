"""The workplace of a task: it has what the user sees, and nothing of a hostile repository ever runs."""

import os
import stat
from pathlib import Path

import pytest

from tests.agent.tasks.conftest import Queue
from tests.agent.tasks.tasking import commit, git
from vivace.agent.tasks import control, workplace
from vivace.agent.tasks.store import TaskFolder, find_task
from vivace.agent.tasks.takeover.changes import read_changes
from vivace.agent.tasks.workplace import make_workplace, remove_workplace, visible_files, write_entry
from vivace.config import Settings
from vivace.errors import TaskBusy, TaskNotFound, TaskTooLarge


def made(folder: Path, tmp_path: Path) -> Path:
    (tmp_path / "task").mkdir(exist_ok=True)
    return make_workplace(folder, tmp_path / "task" / "work", tmp_path / "task" / "start.zip")


def names(folder: Path) -> list[str]:
    return sorted(
        str(path.relative_to(folder))
        for path in folder.rglob("*")
        if not path.is_dir() and path.name != ".git"
    )


def test_a_worktree_has_what_the_user_sees(repository: Path, tmp_path: Path) -> None:
    """Changed and untracked files come along, ignored ones do not, and the user's repository is as it was."""
    before = git(repository, "status", "--porcelain")
    place = made(repository, tmp_path)
    assert names(place) == [".gitignore", "a.py", "b.py", "new.txt"]
    assert "four" in (place / "b.py").read_text()
    assert git(place, "status", "--porcelain").split() == ["M", "b.py", "??", "new.txt"]
    assert git(place, "rev-parse", "HEAD") == git(repository, "rev-parse", "HEAD")
    assert "detached" in git(repository, "worktree", "list")
    assert git(repository, "status", "--porcelain") == before
    remove_workplace(tmp_path / "task" / "work")
    assert len(git(repository, "worktree", "list").splitlines()) == 1


def test_a_removed_file_is_not_there(repository: Path, tmp_path: Path) -> None:
    """The task sees the folder as it is, not as it was committed."""
    (repository / "a.py").unlink()
    assert "a.py" not in names(made(repository, tmp_path))


def test_a_folder_of_a_repository_stays_a_folder_of_it(repository: Path, tmp_path: Path) -> None:
    """The whole repository is there, and the task works in the same part of it."""
    (repository / "part").mkdir()
    (repository / "part" / "c.py").write_text("c\n")
    place = made(repository / "part", tmp_path)
    assert (place.name, names(place)) == ("part", ["c.py"])
    assert (place.parent / "a.py").exists()


@pytest.mark.parametrize("kind", ["no git", "no commit", "git is missing", "git fails"])
def test_without_git_it_is_a_copy(
    kind: str, repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`.gitignore` counts all the same."""
    if kind != "git is missing" and kind != "git fails":
        (repository / ".git").rename(tmp_path / "away")
    if kind == "no commit":
        git(repository, "init", "-q")
    if kind == "git is missing":
        monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    if kind == "git fails":
        old = tmp_path / "old"
        old.mkdir()
        (old / "git").write_text("#!/bin/sh\necho 'unknown option' >&2\nexit 129\n")
        (old / "git").chmod(0o755)
        monkeypatch.setenv("PATH", f"{old}:{os.environ['PATH']}")
    place = made(repository, tmp_path)
    assert names(place) == [".gitignore", "a.py", "b.py", "new.txt"]
    assert not (place / ".git").exists()


def test_nothing_of_a_hostile_repository_runs(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hooks, the file system monitor, filters and the pager are programs that it could name."""
    trap = tmp_path / "trap.sh"
    trap.write_text(f"#!/bin/sh\ntouch {tmp_path}/sprung\ncat\n")
    trap.chmod(0o755)
    for hook in ("post-checkout", "post-index-change", "reference-transaction", "pre-commit"):
        (repository / ".git" / "hooks" / hook).write_bytes(trap.read_bytes())
        (repository / ".git" / "hooks" / hook).chmod(0o755)
    for name in ("core.fsmonitor", "filter.x.smudge", "filter.x.clean", "filter.x.process", "core.pager"):
        git(repository, "config", name, str(trap))
    git(repository, "config", "core.hooksPath", str(repository / ".git" / "hooks"))
    (repository / ".gitattributes").write_text("* filter=x\n")
    monkeypatch.setenv("GIT_DIR", "/nowhere")
    place = made(repository, tmp_path)
    assert (place / ".git").is_file()
    assert (place / "a.py").read_text() == "x = 1\n"
    visible_files(place)
    remove_workplace(tmp_path / "task" / "work")
    assert not (tmp_path / "sprung").exists()
    monkeypatch.delenv("GIT_DIR")


def test_a_detached_head_is_fine(repository: Path, tmp_path: Path) -> None:
    """The worktree stands at the same commit."""
    git(repository, "checkout", "-q", "--detach")
    assert (made(repository, tmp_path) / ".git").is_file()


def test_submodules_come_along(repository: Path, tmp_path: Path) -> None:
    """As files: they have no repository of their own in the workplace."""
    other = tmp_path / "other"
    other.mkdir()
    git(other, "init", "-q")
    (other / "inner.py").write_text("inner\n")
    commit(other)
    git(repository, "-c", "protocol.file.allow=always", "submodule", "add", "-q", str(other), "sub")
    commit(repository)
    place = made(repository, tmp_path)
    assert (place / "sub" / "inner.py").read_text() == "inner\n"
    assert not (place / "sub" / ".git").exists()
    remove_workplace(tmp_path / "task" / "work")
    assert not (tmp_path / "task" / "work").exists()


def test_links_modes_and_odd_names_are_kept(repository: Path, tmp_path: Path) -> None:
    """A link stays a link, what can be executed can be, and a name need not be UTF-8."""
    (repository / "link").symlink_to("a.py")
    (repository / "run.sh").write_text("#!/bin/sh\n")
    (repository / "run.sh").chmod(0o755)
    odd = os.fsdecode(b"odd-\xff name%20.txt")
    (repository / odd).write_text("odd\n")
    os.mkfifo(repository / "pipe")
    place = made(repository, tmp_path)
    assert (place / "link").readlink() == Path("a.py")
    assert (place / "run.sh").stat().st_mode & stat.S_IXUSR
    assert (place / odd).read_text() == "odd\n"
    assert not (place / "pipe").exists()


def test_what_is_too_large_is_said(
    quiet_settings: Settings, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is left behind."""
    monkeypatch.setattr(workplace, "MAX_BYTES", 10)
    with pytest.raises(TaskTooLarge, match="too large"):
        queue(quiet_settings)
    assert list((quiet_settings.state_dir / "tasks").iterdir()) == []


def test_what_was_left_is_cleaned(repository: Path, quiet_settings: Settings, queue: Queue) -> None:
    """Folders of tasks that were never begun, or only half removed, and nothing else."""
    kept, half = queue(quiet_settings), queue(quiet_settings)
    half.log_file.write_bytes(half.log_file.read_bytes()[:40])
    begun = TaskFolder(kept.path.with_name("begun"))
    begun.path.mkdir()
    with begun.locked():
        assert control.clean_tasks(quiet_settings) == [half.id]
    assert control.clean_tasks(quiet_settings) == ["begun"]
    assert kept.work.exists()
    assert len(git(repository, "worktree", "list").splitlines()) == 2


def test_a_task_is_found_by_a_part_of_its_id(quiet_settings: Settings, queue: Queue) -> None:
    """By its beginning or its end, if that is of one task only."""
    one, two = queue(quiet_settings), queue(quiet_settings)
    assert find_task(quiet_settings, one.id[-6:]) == one
    assert find_task(quiet_settings, two.id) == two
    with pytest.raises(TaskNotFound, match="is not one task but 2"):
        find_task(quiet_settings, one.id[:6])
    with pytest.raises(TaskNotFound, match="There is no task"):
        find_task(quiet_settings, "")


def test_a_task_that_runs_is_not_removed(quiet_settings: Settings, queue: Queue) -> None:
    """Nor run a second time."""
    task = queue(quiet_settings)
    with task.locked():
        assert task.is_running()
        with pytest.raises(TaskBusy):
            control.remove_task(task)
        with pytest.raises(TaskBusy):
            control.resume_task(quiet_settings, task)
    assert not task.is_running()
    control.remove_task(task)
    assert not task.path.exists()


def test_changes_are_those_since_the_beginning(quiet_settings: Settings, queue: Queue) -> None:
    """Of the user's own uncommitted changes there are none among them."""
    task = queue(quiet_settings)
    assert read_changes(task).files == ()
    place = Path(task.queued().workspace)
    (place / "a.py").unlink()
    (place / "b.py").write_text("one = 1\ntwo = 22\nthree = 3\nfour = 4\n")
    (place / "made.bin").write_bytes(b"\0\1")
    (place / "ignored").mkdir()
    (place / "ignored" / "x").write_text("x")
    changes = read_changes(task)
    assert changes.summary() == "a.py +0 -1 (removed)\nb.py +1 -1\nmade.bin (binary) (new)"
    assert "-two = 2\n+two = 22\n" in changes.diff()
    assert "Binary file made.bin is new\n" in changes.diff()


def test_a_copy_is_never_written_through_a_link_that_was_copied(tmp_path: Path) -> None:
    """A program that swaps a folder for a link while it is copied leads no file of it out of the copy."""
    home, place = tmp_path / "home", tmp_path / "place"
    home.mkdir()
    write_entry(place / "a", stat.S_IFLNK | 0o777, os.fsencode(home))
    with pytest.raises(OSError, match="symbolic link"):
        write_entry(place / "a" / "authorized_keys", stat.S_IFREG | 0o644, b"key")
    (home / "keys").write_text("mine")
    write_entry(place / "keys", stat.S_IFLNK | 0o777, os.fsencode(home / "keys"))
    with pytest.raises(OSError, match="symbolic links"):
        write_entry(place / "keys", stat.S_IFREG | 0o644, b"key")
    assert (home / "keys").read_text() == "mine"
    assert [each.name for each in home.iterdir()] == ["keys"]
