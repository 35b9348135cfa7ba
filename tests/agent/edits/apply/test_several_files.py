"""One edit of several files: all of it or nothing of it, new files and removed ones included."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.agent.edits.apply.conftest import Edit
from vivace.agent.edits.apply.journal import Change, Journal
from vivace.agent.edits.apply.source import new_source, read_source
from vivace.errors import EditConflict, FileProblem, NothingToUndo, WriteProblem


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    """Two files with content and one that is yet to be made."""
    paths = [tmp_path / "a.txt", tmp_path / "b.txt", tmp_path / "new" / "c.txt"]
    for path in paths[:2]:
        path.write_text("old\n")
    return paths


def contents(files: list[Path]) -> list[str | None]:
    return [path.read_text() if path.exists() else None for path in files]


def test_taken_and_undone_as_one(journal: Journal, files: list[Path], edit: Edit) -> None:
    """One entry, one undo, one redo, for a file that is changed, one that is removed and one that is made."""
    entry = edit(dict(zip(files, ["new\n", None, "made\n"], strict=True)))
    assert [Path(file.path) for file in entry.files] == files
    assert contents(files) == ["new\n", None, "made\n"]
    journal.undo(files[2])
    assert contents(files) == ["old\n", "old\n", None]
    journal.redo()
    assert contents(files) == ["new\n", None, "made\n"]


def test_modes_come_back(journal: Journal, files: list[Path], edit: Edit) -> None:
    """A file that is made has the mode of the umask; one that is made again has the mode that it had."""
    files[1].chmod(0o751)
    edit(dict(zip(files, ["new\n", None, "made\n"], strict=True)))
    umask = os.umask(0)
    os.umask(umask)
    assert files[2].stat().st_mode & 0o777 == 0o666 & ~umask
    files[2].chmod(0o700)
    journal.undo()
    journal.redo()
    assert files[2].stat().st_mode & 0o777 == 0o700
    journal.undo()
    assert files[1].stat().st_mode & 0o777 == 0o751


def test_a_new_file_that_was_changed_is_not_removed(journal: Journal, files: list[Path], edit: Edit) -> None:
    """Undo leaves it, and leaves the edit's other files too."""
    edit({files[0]: "new\n", files[2]: "made\n"})
    files[2].write_text("mine\n")
    with pytest.raises(NothingToUndo, match="not removed"):
        journal.undo()
    assert contents(files) == ["new\n", "old\n", "mine\n"]


def test_a_new_file_that_was_removed_by_hand(journal: Journal, files: list[Path], edit: Edit) -> None:
    """It is gone already: undo takes back the rest of the edit, and redo makes only the rest again."""
    edit({files[0]: "new\n", files[2]: "made\n"})
    files[2].unlink()
    journal.undo()
    assert contents(files) == ["old\n", "old\n", None]
    journal.redo()
    assert contents(files) == ["new\n", "old\n", None]


def test_a_new_file_must_be_new(files: list[Path]) -> None:
    """A path that exists, or whose folder is a file, is refused before any work is done."""
    with pytest.raises(FileProblem, match="exists already"):
        new_source(files[0])
    with pytest.raises(WriteProblem, match="not a folder"):
        new_source(files[0] / "inside.txt")


def test_a_new_file_through_a_dangling_link(journal: Journal, tmp_path: Path, edit: Edit) -> None:
    """The link stays a link, and its target is made and removed."""
    (tmp_path / "link.txt").symlink_to("target.txt")
    edit({tmp_path / "link.txt": "made\n"})
    assert ((tmp_path / "link.txt").is_symlink(), (tmp_path / "target.txt").read_text()) == (True, "made\n")
    journal.undo()
    assert ((tmp_path / "link.txt").is_symlink(), (tmp_path / "target.txt").exists()) == (True, False)


def spoil_read_only(files: list[Path]) -> None:
    files[1].chmod(0o444)


def spoil_gone(files: list[Path]) -> None:
    files[1].unlink()


def spoil_changed(files: list[Path]) -> None:
    files[1].write_text("mine\n")


def spoil_made(files: list[Path]) -> None:
    files[2].parent.mkdir()
    files[2].write_text("mine\n")


@pytest.mark.parametrize(
    ("spoil", "kind", "words"),
    [
        (spoil_read_only, WriteProblem, "read-only"),
        (spoil_gone, EditConflict, "gone"),
        (spoil_changed, EditConflict, "same lines"),
        (spoil_made, EditConflict, "made by another program"),
    ],
)
def test_if_one_cannot_be_written_none_is(
    journal: Journal,
    files: list[Path],
    spoil: Callable[[list[Path]], None],
    kind: type[WriteProblem],
    words: str,
) -> None:
    """Read-only, deleted, changed or made meanwhile: the others stay old, and all proposed texts are kept."""
    new = [b"new a\n", b"new b\n", b"new c\n"]
    sources = [read_source(files[0]), read_source(files[1]), new_source(files[2])]
    changes = [Change(source, text, "unit") for source, text in zip(sources, new, strict=True)]
    spoil(files)
    before = contents(files)
    with pytest.raises(kind, match=words) as error:
        journal.apply_all(changes, "change it")
    assert contents(files) == before
    assert list(journal.entries()) == []
    assert [path.read_bytes() for path in error.value.kept] == new
    assert all(str(path) in error.value.hint for path in error.value.kept)
    assert {path.stat().st_mode & 0o777 for path in error.value.kept} == {0o600}


CALLS = {
    "write": (os, "write"),
    "fsync": (os, "fsync"),
    "fchmod": (os, "fchmod"),
    "rename": (Path, "replace"),
    "mkdir": (Path, "mkdir"),
}


@pytest.mark.parametrize("call", CALLS)
def test_an_error_at_any_call_leaves_all_old_or_all_new(
    journal: Journal, files: list[Path], edit: Edit, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    """Whichever call fails, whichever time it is made: an error means all old, and otherwise all is new."""
    owner, name = CALLS[call]
    real = getattr(owner, name)
    new: dict[Path, str | None] = dict(zip(files, ["new\n", "new\n", "made\n"], strict=True))
    calls = failing = 0

    def fail(*args: Any, **named: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == failing:
            raise OSError(28, "No space left on device")
        return real(*args, **named)

    while calls == failing:
        calls, failing = 0, failing + 1
        entries = list(journal.entries())
        with monkeypatch.context() as patched:
            patched.setattr(owner, name, fail)
            try:
                edit(new)
            except WriteProblem:
                calls = failing  # it may have been the last
                assert contents(files) == ["old\n", "old\n", None]
                assert list(journal.entries()) == entries
                assert journal.heal() == []
                continue
        assert contents(files) == ["new\n", "new\n", "made\n"]
        calls = min(calls, failing)
        journal.undo()
        assert contents(files) == ["old\n", "old\n", None]
    assert failing > 1


def test_kept_texts_are_limited(journal: Journal, files: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the newest texts of refused edits are kept."""
    monkeypatch.setattr("vivace.agent.edits.apply.rebasing.MAX_KEPT", 3)
    source = read_source(files[0])
    files[0].write_text("mine\n")
    for number in range(5):
        with pytest.raises(EditConflict):
            journal.apply(source, b"new %d\n" % number, "i", "unit")
    kept = sorted((journal.folder / "kept").iterdir())
    assert [path.read_bytes() for path in kept] == [b"new 2\n", b"new 3\n", b"new 4\n"]
