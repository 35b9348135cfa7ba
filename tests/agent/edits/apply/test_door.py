"""The door to the user's files: no write, and no undo of one, is led elsewhere by a link that came since."""

import os
from pathlib import Path

import pytest

from tests.agent.edits.apply.conftest import Edit
from tests.agent.edits.killing import run_killed_at
from vivace.agent.door import LeadsElsewhere, open_file, open_folder, open_inside, real_path
from vivace.agent.edits.apply.entries import EntryFolder, Step
from vivace.agent.edits.apply.journal import Change, Journal
from vivace.agent.edits.apply.source import new_source, read_source
from vivace.errors import NothingToUndo, VivaceError, WriteProblem


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "work"
    (root / ".git" / "hooks").mkdir(parents=True)
    (root / "sub").mkdir()
    return root


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    (tmp_path / "outside").mkdir()
    return tmp_path / "outside"


@pytest.fixture
def task(journal: Journal, root: Path) -> Journal:
    """The journal as a task of this workspace writes it."""
    return Journal(journal.folder, root)


def made_and_deleted(journal: Journal, file: Path) -> None:
    """Make a file that can be executed, and delete it, as two edits."""
    journal.apply_all([Change(new_source(file), b"#!/bin/sh\ntouch owned\n", "task")], "make")
    file.chmod(0o755)
    journal.apply_all([Change(read_source(file), None, "task")], "delete")


def swap(folder: Path, goal: Path) -> None:
    folder.rename(folder.with_name("old"))
    folder.symlink_to(goal)


def test_an_undo_does_not_write_through_a_link(
    task: Journal, journal: Journal, root: Path, outside: Path
) -> None:
    """A task made and deleted a file, and its folder leads elsewhere now: the text is not written there."""
    made_and_deleted(task, root / "sub" / "authorized_keys")
    swap(root / "sub", outside)
    with pytest.raises(WriteProblem, match=r"leads elsewhere now: .*sub has become a symbolic link"):
        journal.undo()
    assert list(outside.iterdir()) == []


def test_an_undo_makes_no_hook(task: Journal, journal: Journal, root: Path) -> None:
    """The same with a link into `.git/hooks`, in every way of taking back."""
    made_and_deleted(task, root / "sub" / "pre-commit")
    swap(root / "sub", root / ".git" / "hooks")
    for take_back in (
        journal.undo,
        lambda: journal.undo(number=2),
        lambda: journal.undo_all({1, 2}),
        lambda: journal.rewind(1),
        lambda: journal.undo(root / "sub" / "pre-commit"),
    ):
        with pytest.raises((WriteProblem, NothingToUndo)):
            take_back()
    assert list((root / ".git" / "hooks").iterdir()) == []


def test_a_redo_does_not_write_through_a_link(
    task: Journal, journal: Journal, root: Path, outside: Path
) -> None:
    """What was undone is not brought back elsewhere."""
    task.apply_all([Change(new_source(root / "sub" / "x"), b"text\n", "task")], "make")
    journal.undo()
    swap(root / "sub", outside)
    with pytest.raises(WriteProblem, match="leads elsewhere"):
        journal.redo()
    assert list(outside.iterdir()) == []


@pytest.mark.parametrize("makes_link", [False, True], ids=["untouched", "swapped"])
def test_a_recovery_does_not_write_through_a_link(
    journal: Journal, root: Path, outside: Path, makes_link: bool
) -> None:
    """A killed edit of two files is finished, unless one of them leads elsewhere now: then it waits."""
    for name in ("a", "b"):
        (root / "sub" / name).write_text("old\n")
    steps = [Step(root / "sub" / name, "task", b"old\n", b"new\n", root=str(root)) for name in ("a", "b")]
    folder = EntryFolder(journal.folder)
    with folder.lock():
        folder.write_pending("edit", "killed", steps, ())
    (root / "sub" / "a").write_text("new\n")
    if makes_link:
        (outside / "a").write_text("new\n")
        (outside / "b").write_text("old\n")
        swap(root / "sub", outside)
        assert journal.heal() == []
        assert (outside / "b").read_text() == "old\n"
        assert folder.has_pending()
    else:
        assert [entry.instruction for entry in journal.heal()] == ["killed"]
        assert (root / "sub" / "b").read_text() == "new\n"


def test_a_link_that_comes_between_two_steps_of_a_write_leads_nowhere(
    journal: Journal, root: Path, outside: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder is turned elsewhere when the temporary file is written: the file is in the one that was."""
    (root / "sub" / "x").write_text("old\n")
    (outside / "x").write_text("old\n")
    source, fsync = read_source(root / "sub" / "x"), os.fsync

    def fsync_and_swap(fd: int) -> None:
        fsync(fd)
        if not (root / "sub").is_symlink() and any(root.glob("sub/.vivace-*")):
            swap(root / "sub", outside)

    monkeypatch.setattr(os, "fsync", fsync_and_swap)
    journal.apply_all([Change(source, b"new\n", "unit")], "edit")
    assert (root / "sub").is_symlink()
    assert [path.read_text() for path in outside.iterdir()] == ["old\n"]
    assert (root / "old" / "x").read_text() == "new\n"


def test_what_is_protected_now_is_not_written_for_a_task(
    task: Journal, journal: Journal, root: Path, outside: Path
) -> None:
    """Neither at first nor by undo, where a protected name leads to the file since."""
    for name in (".envrc", ".git/hooks/x", "deep/.vscode/tasks.json"):
        with pytest.raises(WriteProblem, match="is protected"):
            task.apply_all([Change(new_source(root / name), b"text\n", "task")], "make")
        assert not (root / name).exists()
    made_and_deleted(task, root / "sub" / "hooks" / "x")
    (root / ".git").rename(outside / "git")
    (root / ".git").symlink_to(root / "sub")
    with pytest.raises(WriteProblem, match=r"nothing named \.git is ever written"):
        journal.undo()


def test_users_take_back_their_own_edits_of_protected_files(edit: Edit, journal: Journal, root: Path) -> None:
    """They named the file, and undo knows it."""
    edit({root / ".envrc": "export A=1\n"})
    journal.undo()
    assert not (root / ".envrc").exists()
    journal.redo()
    assert (root / ".envrc").read_text() == "export A=1\n"


def test_honest_links_go_on_working(edit: Edit, journal: Journal, root: Path, tmp_path: Path) -> None:
    """A project opened by a link, a linked folder in it and a linked file are written where they lead."""
    (tmp_path / "project").symlink_to(root)
    (root / "src").symlink_to("sub")
    (root / "sub" / "x").write_text("old\n")
    (root / "link").symlink_to("src/x")
    for path in (tmp_path / "project" / "src" / "x", root / "link", root / "src" / "x"):
        edit({path: "new\n"})
        assert (root / "sub" / "x").read_text() == "new\n"
        journal.undo(path)
        assert (root / "sub" / "x").read_text() == "old\n"
    edit({tmp_path / "project" / "src" / "made": "made\n"})
    assert (root / "sub" / "made").read_text() == "made\n"


def test_a_folder_that_may_be_passed_but_not_listed_is_no_obstacle(
    edit: Edit, journal: Journal, tmp_path: Path
) -> None:
    """As /home is on many machines."""
    home = tmp_path / "home"
    (home / "user").mkdir(parents=True)
    home.chmod(0o711 if os.getuid() else 0o111)
    edit({home / "user" / "x": "text\n"})
    journal.undo()
    assert not (home / "user" / "x").exists()
    home.chmod(0o755)


def test_the_walk_takes_no_link_and_no_way_up(root: Path, outside: Path) -> None:
    """Neither in the middle nor at the end; a path that is not real is refused."""
    (root / "link").symlink_to(outside)
    (outside / "x").write_text("text\n")
    for path in (root / "link" / "x", root / "link"):
        with pytest.raises(LeadsElsewhere, match="has become a symbolic link"):
            open_file(path)
    for path in (Path("x"), root / ".." / "outside" / "x", Path(f"{root}/\0"), Path("/\udfff\ud800")):
        with pytest.raises(OSError, match="is not a real path"):
            open_file(path)
    top = open_folder(real_path(root))
    try:
        for name in ("../outside/x", "link/x", "link", "sub/../../outside/x", "/etc/passwd", ""):
            with pytest.raises(OSError):  # noqa: PT011 - each system has its own words
                os.close(open_inside(top, name, os.O_RDONLY | os.O_NOFOLLOW))
    finally:
        os.close(top)


def test_no_descriptor_is_left_open(edit: Edit, journal: Journal, root: Path, outside: Path) -> None:
    """Neither by what works nor by what is refused."""
    edit({root / "sub" / "x": "1\n"})  # imports what it needs

    def work() -> None:
        for number in range(20):
            edit({root / "sub" / "deep" / str(number): "text\n"})
            journal.undo()
        swap(root / "sub", outside)
        for _ in range(20):
            with pytest.raises(VivaceError):
                journal.redo()

    before = sorted(path.name for path in Path("/dev/fd").iterdir())
    work()
    assert sorted(path.name for path in Path("/dev/fd").iterdir()) == before


@pytest.mark.forks
def test_a_kill_between_a_swap_and_the_recovery_writes_nothing_elsewhere(
    task: Journal, root: Path, outside: Path
) -> None:
    """Killed before any line of the writer, then swapped, then healed: the other folder has what it had."""
    for step in range(0, 1000, 9):
        for name in ("a", "b"):
            (root / "sub" / name).write_text("old\n")
            (outside / name).write_text("old\n")
        changes = [Change(read_source(root / "sub" / name), b"new\n", "task") for name in ("a", "b")]
        done = run_killed_at(step, lambda changes=changes: task.apply_all(changes, "x"), ("replacing.py",))  # type: ignore[misc]
        swap(root / "sub", outside)
        task.heal()
        assert {path.name: path.read_text() for path in outside.iterdir()} == {"a": "old\n", "b": "old\n"}
        (root / "sub").unlink()
        (root / "old").rename(root / "sub")
        task.heal()
        assert not list(task.folder.glob("*.pending"))
        assert len({(root / "sub" / name).read_text() for name in ("a", "b")}) == 1
        if done:
            break
    assert done
