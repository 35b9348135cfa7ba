"""Kill -9 before every change of the disk in a step of several files: all of them old, or all new."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.agent.edits.killing import run_killed_at_change
from vivace.agent.edits.apply.journal import Change, Entry, Journal
from vivace.agent.edits.apply.source import new_source, read_source
from vivace.errors import WriteProblem

pytestmark = [pytest.mark.usefixtures("no_fsync"), pytest.mark.forks]

Contents = tuple[bytes | None, ...]
OLD: Contents = (b"one\r\ntwo\n", b"\xef\xbb\xbfthree", None)
NEW: Contents = (b"ONE\r\ntwo\n", b"\xef\xbb\xbfTHREE", b"made\n")


class Place:
    """Three files and a journal, made anew for each kill."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.paths = [folder / name for name in ("a.txt", "b.txt", "inner/c.txt")]
        self.journal = Journal(folder / "undo")

    def reset(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir()
        for path, content in zip(self.paths, OLD, strict=True):
            if content is not None:
                path.write_bytes(content)

    def edit(self, new: Contents = NEW) -> Entry:
        changes = []
        for path, content in zip(self.paths, new, strict=True):
            source = read_source(path) if path.exists() else new_source(path)
            changes.append(Change(source, content, "unit"))
        return self.journal.apply_all(changes, "change it")

    @property
    def contents(self) -> Contents:
        return tuple(path.read_bytes() if path.exists() else None for path in self.paths)


def nothing(_place: Place) -> None:
    """Begin with the old files."""


ACTIONS: dict[str, tuple[Callable[[Place], object], Callable[[Place], object], Contents, Contents]] = {
    "edit": (nothing, Place.edit, OLD, NEW),
    "undo": (Place.edit, lambda place: place.journal.undo(), NEW, OLD),
    "redo": (
        lambda place: (place.edit(), place.journal.undo()),
        lambda place: place.journal.redo(),
        OLD,
        NEW,
    ),
    "rewind": (
        lambda place: (place.edit(), place.edit((b"x", b"y", b"z"))),
        lambda place: place.journal.rewind(0),
        (b"x", b"y", b"z"),
        OLD,
    ),
}


@pytest.mark.parametrize("name", ACTIONS)
def test_killed_anywhere(tmp_path: Path, name: str) -> None:
    """After the kill healing leaves all files old or all new, and undo and redo go on from there."""
    prepare, act, old, new = ACTIONS[name]
    place = Place(tmp_path / "place")
    ended: set[tuple[bool, bool]] = set()  # were the files mixed after the kill; did the entry stand
    for step in range(5000):
        place.reset()
        prepare(place)
        before = len(list(place.journal.entries()))
        done = run_killed_at_change(step, lambda: act(place))
        is_mixed = place.contents not in (old, new)
        place.journal.heal()
        assert place.contents in (old, new)
        stands = place.contents == new
        assert len(list(place.journal.entries())) == before + stands, "an entry stands if its bytes do"
        assert not list(place.folder.rglob("*.pending"))
        ended.add((is_mixed, stands))
        _walk_back_and_forth(place)
        if done:
            break
    assert done
    assert ended == {(False, False), (True, True), (False, True)}


def _walk_back_and_forth(place: Place) -> None:
    """Rewind everything and bring it back: the oldest and the newest bytes again."""
    contents = place.contents
    if not list(place.journal.entries()):
        assert contents == OLD
        return
    if contents == OLD:  # the last step was an undo
        place.journal.redo()
        assert place.contents != OLD
        contents = place.contents
    place.journal.rewind(0)
    assert place.contents == OLD
    place.journal.redo()
    assert place.contents == contents


def test_killed_anywhere_in_the_healing(tmp_path: Path) -> None:
    """A healing that is killed is healed by the next one."""
    place = Place(tmp_path / "place")
    for step in range(5000):
        place.reset()
        _leave_mixed(place)
        done = run_killed_at_change(step, place.journal.heal)
        place.journal.heal()
        assert place.contents == NEW
        place.journal.undo()
        assert place.contents == OLD
        if done:
            break
    assert done


def _leave_mixed(place: Place) -> None:
    """Stop an edit between two files."""
    place.edit()
    (entry,) = place.journal.folder.glob("*.edit")
    entry.rename(entry.with_suffix(".pending"))
    assert OLD[1] is not None
    place.paths[1].write_bytes(OLD[1])


def test_what_was_changed_since_the_kill_is_kept(tmp_path: Path) -> None:
    """Healing merges the user's change in a file that was not written yet, and in one that was."""
    place = Place(tmp_path / "place")
    place.reset()
    place.paths[0].write_bytes(b"one\ntwo\nthree\nfour\n")
    place.paths[1].write_bytes(b"one\ntwo\nthree\nfour\n")
    place.edit((b"ONE\ntwo\nthree\nfour\n", b"ONE\ntwo\nthree\nfour\n", b"made\n"))
    (entry,) = place.journal.folder.glob("*.edit")
    entry.rename(entry.with_suffix(".pending"))
    place.paths[0].write_bytes(b"ONE\ntwo\nthree\nmine\n")
    place.paths[1].write_bytes(b"one\ntwo\nthree\nmine\n")
    place.journal.heal()
    assert place.contents == (b"ONE\ntwo\nthree\nmine\n", b"ONE\ntwo\nthree\nmine\n", b"made\n")
    place.journal.undo()
    assert place.contents == (b"one\ntwo\nthree\nmine\n", b"one\ntwo\nthree\nmine\n", None)


def test_what_cannot_be_finished_is_put_back(tmp_path: Path) -> None:
    """If the second file has become read-only, the first gets its old bytes again."""
    place = Place(tmp_path / "place")
    place.reset()
    _leave_mixed(place)
    place.paths[1].chmod(0o444)
    assert place.journal.heal() == []
    assert place.contents == OLD


def test_what_can_be_neither_finished_nor_put_back_is_told(tmp_path: Path) -> None:
    """Edits of other files go on; one of these files, and undo, say what is in the way, until it is gone."""
    place = Place(tmp_path / "place")
    place.reset()
    _leave_mixed(place)
    place.paths[1].unlink()
    place.paths[1].mkdir()
    assert place.journal.heal() == []
    other = tmp_path / "other.txt"
    other.write_text("old")
    place.journal.apply(read_source(other), b"new", "i", "unit")
    with pytest.raises(WriteProblem, match="cut short") as error:
        place.journal.apply(read_source(place.paths[0]), b"newer", "i", "unit")
    assert ".pending" in error.value.hint
    with pytest.raises(WriteProblem, match="cut short"):
        place.journal.undo()
    place.paths[1].rmdir()
    assert OLD[1] is not None
    place.paths[1].write_bytes(OLD[1])
    assert len(place.journal.heal()) == 1
    assert place.contents == NEW
