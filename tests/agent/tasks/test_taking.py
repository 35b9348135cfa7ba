"""Changes of a task taken over into the user's folder: by hunks, merged, as one step of undo."""

import contextlib
import os
from dataclasses import replace
from pathlib import Path

import pytest

from tests.agent.conversation.talking import Face
from tests.agent.tasks.conftest import Queue
from vivace.agent.edits.apply.journal import Journal
from vivace.agent.edits.conflict import TakeEdit
from vivace.agent.edits.proposal import AcceptHunks, Proposal, Reject
from vivace.agent.tasks.store import TaskFolder
from vivace.agent.tasks.takeover.changes import read_changes
from vivace.agent.tasks.takeover.taking import open_taking, take
from vivace.config import Settings
from vivace.errors import EditConflict, UsageError, VivaceError


@pytest.fixture
def task(quiet_settings: Settings, queue: Queue) -> TaskFolder:
    return queue(quiet_settings)


@pytest.fixture
def place(task: TaskFolder) -> Path:
    return Path(task.queued().workspace)


@pytest.fixture
def journal(quiet_settings: Settings) -> Journal:
    return Journal(quiet_settings.state_dir / "undo")


async def test_all_of_it_is_one_step_of_undo(
    task: TaskFolder, place: Path, repository: Path, journal: Journal
) -> None:
    """Changed, new, removed, empty and binary files, and what can be executed; undone at once."""
    (place / "a.py").write_text("x = 2\n")
    (place / "b.py").unlink()
    (place / "deep").mkdir()
    (place / "deep" / "__init__.py").write_text("")
    (place / "run.sh").write_text("#!/bin/sh\n")
    (place / "run.sh").chmod(0o755)
    (place / "image").write_bytes(b"\0\xff")
    taking = open_taking(task)
    entry = await take(task, taking, "always", Face(), journal)
    assert entry is not None
    assert (repository / "a.py").read_text() == "x = 2\n"
    assert not (repository / "b.py").exists()
    assert (repository / "deep" / "__init__.py").read_bytes() == b""
    assert os.access(repository / "run.sh", os.X_OK)
    assert (repository / "image").read_bytes() == b"\0\xff"
    assert task.state().taken == (entry.number,)
    assert open_taking(task).is_empty, "there is nothing left to take"
    journal.undo()
    assert (repository / "a.py").read_text() == "x = 1\n"
    assert "four" in (repository / "b.py").read_text()
    assert not (repository / "image").exists()


async def test_what_the_user_did_meanwhile_stays(
    task: TaskFolder, place: Path, repository: Path, journal: Journal
) -> None:
    """Changes in other lines are merged."""
    (place / "b.py").write_text("one = 11\ntwo = 2\nthree = 3\nfour = 4\n")
    (repository / "b.py").write_text("one = 1\ntwo = 2\nthree = 3\nfour = 44\n")
    assert await take(task, open_taking(task), "always", Face(), journal)
    assert (repository / "b.py").read_text() == "one = 11\ntwo = 2\nthree = 3\nfour = 44\n"


async def test_the_same_lines_are_not_overwritten(
    task: TaskFolder, place: Path, repository: Path, journal: Journal
) -> None:
    """Without anybody to ask nothing is written, in any file; with somebody, they decide."""
    (place / "a.py").write_text("x = 2\n")
    (place / "b.py").write_text("one = 11\n")
    (repository / "a.py").write_text("x = 3\n")
    with pytest.raises(EditConflict) as raised:
        await take(task, open_taking(task), "always", Face(), journal)
    assert raised.value.exit_code == 4
    assert (repository / "a.py").read_text() == "x = 3\n"
    assert "four" in (repository / "b.py").read_text()
    face = Face()
    face.resolutions = [TakeEdit()]
    assert await take(task, open_taking(task), "ask", face, journal)
    assert ((repository / "a.py").read_text(), (repository / "b.py").read_text()) == ("x = 2\n", "one = 11\n")


async def test_a_file_that_both_made_is_a_conflict(
    task: TaskFolder, place: Path, repository: Path, journal: Journal
) -> None:
    """Text or not."""
    for name, data in (("both.py", b"theirs = 1\n"), ("both.bin", b"\0task")):
        (place / name).write_bytes(data)
        (repository / name).write_bytes(data + b"mine")
        with pytest.raises(EditConflict):
            await take(task, open_taking(task), "always", Face(), journal)
        assert (repository / name).read_bytes() == data + b"mine"
        (place / name).unlink()


async def test_hunks_and_files_can_be_chosen(
    task: TaskFolder, place: Path, repository: Path, journal: Journal
) -> None:
    """What is not taken stays as it was; a new file of which nothing is taken is not made."""
    (place / "a.py").write_text("x = 2\n")
    (place / "b.py").unlink()
    (place / "made.py").write_text("made = 1\n")
    face = Face()
    face.decisions = [AcceptHunks(frozenset({0}))]
    assert await take(task, open_taking(task), "ask", face, journal)
    assert (repository / "a.py").read_text() == "x = 2\n"
    assert (repository / "b.py").exists()
    assert not (repository / "made.py").exists()
    assert await take(task, open_taking(task, ["b.py"]), "always", Face(), journal)
    assert not (repository / "b.py").exists()
    with pytest.raises(UsageError, match="none of these"):
        open_taking(task, ["other.py"])


async def test_nothing_is_written_after_a_no(
    task: TaskFolder, place: Path, repository: Path, journal: Journal
) -> None:
    """Binary files neither."""
    (place / "a.py").write_text("x = 2\n")
    (place / "image").write_bytes(b"\0")
    face = Face()
    face.decisions = [Reject()]
    assert await take(task, open_taking(task), "ask", face, journal) is None
    assert (repository / "a.py").read_text() == "x = 1\n"
    assert not (repository / "image").exists()


async def test_links_that_stay_inside_are_taken(
    task: TaskFolder, place: Path, repository: Path, journal: Journal
) -> None:
    """Made, led elsewhere, and removed; each is shown, and there is nothing more to take then."""
    (place / "deep").mkdir()
    (place / "deep" / "link").symlink_to("../a.py")
    taking = open_taking(task)
    assert [line.partition(" (")[2] for line in taking.beside] == ["symbolic link) -> ../a.py"]
    assert "Symbolic link deep/link leads to ../a.py" in read_changes(task).diff()
    await take(task, taking, "always", Face(), journal)
    assert linked(repository / "deep" / "link") == "../a.py"
    assert open_taking(task).is_empty
    (repository / "deep" / "link").unlink()
    (repository / "deep" / "link").symlink_to("../new.txt")
    with pytest.raises(EditConflict):
        await take(task, taking, "always", Face(), journal)
    assert linked(repository / "deep" / "link") == "../new.txt", "the user has another one"


def linked(path: Path) -> str:
    return str(path.readlink())


@pytest.mark.parametrize(
    "goal", ["/etc/passwd", "..", "../elsewhere", "deep/../../x", ".git/config", "out/file"]
)
async def test_links_that_lead_elsewhere_are_said_and_left(
    task: TaskFolder, place: Path, repository: Path, goal: str
) -> None:
    """A link that a task made could lead anywhere."""
    (repository / "out").symlink_to(repository.parent)
    (place / "link").symlink_to(goal)
    taking = open_taking(task)
    assert (taking.left_out, taking.is_empty) == (("link",), True)


@pytest.mark.parametrize("name", [".envrc", ".vscode", "HEAD"])
async def test_links_with_a_protected_name_are_said_and_left(
    task: TaskFolder, place: Path, name: str
) -> None:
    """They would be read as what they are called."""
    (place / "deep").mkdir()
    (place / "deep" / name).symlink_to("../a.py")
    taking = open_taking(task)
    assert (taking.left_out, taking.is_empty) == ((f"deep/{name}",), True)


def test_links_of_the_repository_are_followed_by_the_task(
    quiet_settings: Settings, queue: Queue, repository: Path
) -> None:
    """One that was removed is removed here; one that became a file is said and left."""
    (repository / "one").symlink_to("a.py")
    (repository / "two").symlink_to("a.py")
    task = queue(quiet_settings)
    place = Path(task.queued().workspace)
    for name in ("one", "two"):
        (place / name).unlink()
    (place / "two").write_text("text")
    taking = open_taking(task)
    assert ([link.path.name for link in taking.links], taking.left_out) == (["one"], ("two",))


async def test_whether_a_file_can_be_executed_is_taken(
    task: TaskFolder, place: Path, repository: Path, journal: Journal
) -> None:
    """Also where nothing else of it has changed, with the other changes or alone."""
    (place / "a.py").chmod(0o755)
    taking = open_taking(task)
    assert [line.partition("a.py ")[2] for line in taking.beside] == ["can be executed now"]
    assert await take(task, taking, "always", Face(), journal) is None
    assert os.access(repository / "a.py", os.X_OK)
    assert open_taking(task).is_empty
    (repository / "a.py").chmod(0o644)
    (place / "b.py").write_text("one = 1\n")
    face = Face()
    face.decisions = [Reject()]
    await take(task, open_taking(task), "ask", face, journal)
    assert not os.access(repository / "a.py", os.X_OK), "a no is a no to all of it"
    await take(task, open_taking(task), "always", Face(), journal)
    assert os.access(repository / "a.py", os.X_OK)


def test_what_tools_leave_behind_is_no_change(task: TaskFolder, place: Path) -> None:
    """Ignored or not: nobody wrote it."""
    for name in (
        "__pycache__/a.cpython-311.pyc",
        "ignored/more",
        "sub/.pytest_cache/x",
        "node_modules/a/b.js",
    ):
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text("x")
    assert open_taking(task).is_empty


async def test_a_link_in_place_of_a_file_is_a_conflict(
    task: TaskFolder, place: Path, repository: Path, journal: Journal
) -> None:
    """The user has made a link of it: what it leads to has other contents."""
    (repository / "a.py").unlink()
    (repository / "a.py").symlink_to("b.py")
    (place / "a.py").write_text("x = 2\n")
    with pytest.raises(EditConflict):
        await take(task, open_taking(task), "always", Face(), journal)


@pytest.mark.parametrize("goal", ["../outside", ".git/hooks"])
async def test_a_folder_that_leads_elsewhere_is_not_written_through(
    task: TaskFolder, place: Path, repository: Path, journal: Journal, goal: str
) -> None:
    """Files, whether they can be executed, and links below it are said and left; the rest is taken."""
    (repository.parent / "outside").mkdir()
    (place / "sub").mkdir()
    (place / "sub" / "pre-commit").write_text("#!/bin/sh\n")
    (place / "sub" / "pre-commit").chmod(0o755)
    (place / "sub" / "link").symlink_to("pre-commit")
    (place / "a.py").write_text("x = 2\n")
    (repository / "sub").symlink_to(goal)
    before = sorted(path.name for path in (repository / goal).iterdir())
    taking = open_taking(task)
    assert sorted(taking.left_out) == ["sub/link", "sub/pre-commit"]
    assert await take(task, taking, "always", Face(), journal)
    assert (repository / "a.py").read_text() == "x = 2\n"
    assert sorted(path.name for path in (repository / goal).iterdir()) == before


async def test_a_folder_that_is_swapped_while_it_is_asked_about_is_left(
    task: TaskFolder, place: Path, repository: Path, journal: Journal
) -> None:
    """Neither files nor links are made where it leads now, and no mode is changed there."""
    outside = repository.parent / "outside"
    outside.mkdir()
    (outside / "run").write_text("x\n")
    (repository / "sub").mkdir()
    (place / "sub").mkdir()
    (place / "sub" / "made").write_text("text\n")
    (place / "sub" / "run").write_text("x\n")
    (place / "sub" / "run").chmod(0o755)
    (place / "sub" / "link").symlink_to("made")
    (repository / "sub" / "run").write_text("x\n")
    taking = open_taking(task)
    assert len(taking.links) == 1
    assert len(taking.modes) == 1
    (repository / "sub").rename(repository / "old")
    (repository / "sub").symlink_to(outside)
    for chosen in (taking, replace(taking, proposal=Proposal(()), wholes=())):
        with contextlib.suppress(VivaceError):
            await take(task, chosen, "always", Face(), journal)
    assert [path.name for path in outside.iterdir()] == ["run"]
    assert not os.access(outside / "run", os.X_OK)


async def test_a_linked_folder_inside_is_taken_into(
    quiet_settings: Settings, queue: Queue, repository: Path, journal: Journal
) -> None:
    """What the user has linked inside of the project leads where it led."""
    (repository / "lib").mkdir()
    (repository / "lib" / "x.py").write_text("x = 1\n")
    (repository / "src").symlink_to("lib")
    task = queue(quiet_settings)
    (Path(task.queued().workspace) / "src" / "x.py").write_text("x = 2\n")
    assert await take(task, open_taking(task), "always", Face(), journal)
    assert (repository / "lib" / "x.py").read_text() == "x = 2\n"
    assert (repository / "src").is_symlink()
