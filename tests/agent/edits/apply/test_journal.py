"""Undo, also after a crash, also much later."""

import json
import os
import threading
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.thorough import examples
from vivace.agent.edits.apply import entries
from vivace.agent.edits.apply.entries import EntryFolder
from vivace.agent.edits.apply.journal import Journal
from vivace.agent.edits.apply.replacing import sha256_of
from vivace.agent.edits.apply.source import SourceFile, read_source, splice, write_source
from vivace.errors import NothingToUndo, WriteProblem

Write = Callable[..., SourceFile]


def edit(journal: Journal, path: Path, new: bytes) -> None:
    journal.apply(read_source(path), new, "change it", "main")


def test_undo_takes_the_edit_back(journal: Journal, on_disk: Write) -> None:
    """After undo the file has its old bytes, and the entry says what was undone."""
    source = on_disk("old\r\n")
    edit(journal, source.path, b"new\n")
    entry = Journal(journal.folder).undo()
    assert source.path.read_bytes() == b"old\r\n"
    assert (entry.path, entry.instruction, entry.unit) == (str(source.target), "change it", "main")


def test_repeated_undo_walks_back(journal: Journal, on_disk: Write) -> None:
    """Each undo goes one edit further back, through edits that return to earlier bytes too."""
    path = on_disk("a").path
    for content in (b"b", b"a", b"c"):
        edit(journal, path, content)
    seen = []
    for _ in range(3):
        journal.undo()
        seen.append(path.read_bytes())
    assert seen == [b"a", b"b", b"a"]
    with pytest.raises(NothingToUndo):
        journal.undo()


def test_changed_since_is_refused(journal: Journal, on_disk: Write) -> None:
    """A file that was changed after the edit is left as it is."""
    path = on_disk("old").path
    edit(journal, path, b"new")
    path.write_bytes(b"newer")
    with pytest.raises(NothingToUndo, match="changed since") as error:
        journal.undo()
    assert error.value.hint
    assert path.read_bytes() == b"newer"
    path.write_bytes(b"new")
    journal.undo()
    assert path.read_bytes() == b"old"


def test_gone_file_is_refused(journal: Journal, on_disk: Write) -> None:
    """A file that was deleted is not brought back to life."""
    path = on_disk("old").path
    edit(journal, path, b"new")
    path.unlink()
    with pytest.raises(NothingToUndo, match="gone"):
        journal.undo()


def test_undo_of_one_path(journal: Journal, on_disk: Write, tmp_path: Path) -> None:
    """With a path, also through a link, the newest edit of that file is undone and no other."""
    first, second = on_disk("1", "first.py").path, on_disk("2", "second.py").path
    edit(journal, first, b"1 new")
    edit(journal, second, b"2 new")
    (tmp_path / "link.py").symlink_to("first.py")
    journal.undo(tmp_path / "link.py")
    assert (first.read_bytes(), second.read_bytes()) == (b"1", b"2 new")


def test_entries_of_the_first_version_can_be_undone(journal: Journal, on_disk: Write) -> None:
    """An entry as vivace 0.1 wrote it is undone while the file is as it left it, and then redone."""
    path = on_disk("new").path
    hashes = {"before_sha256": sha256_of(b"old"), "after_sha256": sha256_of(b"new")}
    header = {"number": 7, "path": str(path), "unit": "main", "instruction": "i", "recorded_at_s": 1.5}
    journal.folder.mkdir(parents=True)
    data = json.dumps(header | hashes).encode() + b"\n" + zlib.compress(b"old")
    (journal.folder / "0000000007.edit").write_bytes(data)
    path.write_bytes(b"newer")
    with pytest.raises(NothingToUndo, match="changed since"):
        journal.undo()
    path.write_bytes(b"new")
    assert journal.undo().reverses == (7,)
    assert path.read_bytes() == b"old"
    journal.redo()
    assert path.read_bytes() == b"new"


def test_refused_edit_leaves_no_entry(journal: Journal, on_disk: Write) -> None:
    """An edit that could not be written is not in the journal."""
    source = on_disk("old")
    source.path.write_bytes(b"theirs")
    with pytest.raises(WriteProblem):
        journal.apply(source, b"new", "x", "y")
    assert list(journal.entries()) == []


def test_an_edit_taken_back_by_hand_is_passed_over(journal: Journal, on_disk: Write) -> None:
    """An edit whose file has its old bytes already does not hide the one before it."""
    path = on_disk("a").path
    edit(journal, path, b"b")
    edit(journal, path, b"c")
    path.write_bytes(b"b")
    journal.undo()
    assert path.read_bytes() == b"a"


def test_private(journal: Journal, on_disk: Write) -> None:
    """Nobody else can read the journal."""
    edit(journal, on_disk("old").path, b"new")
    assert journal.folder.stat().st_mode & 0o777 == 0o700
    assert {file.stat().st_mode & 0o777 for file in journal.folder.iterdir()} == {0o600}


def test_pruned(journal: Journal, on_disk: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the newest entries are kept, by number and by size, and always the last one."""
    path = on_disk("0").path
    monkeypatch.setattr(entries, "MAX_ENTRIES", 3)
    for number in range(1, 6):
        edit(journal, path, str(number).encode())
    assert [entry.number for entry in journal.entries()] == [5, 4, 3]
    monkeypatch.setattr(entries, "MAX_BYTES", 10)
    edit(journal, path, b"last")
    assert [entry.number for entry in journal.entries()] == [6]


def test_damaged_entry_is_told(journal: Journal, on_disk: Write) -> None:
    """Old bytes that are not what was recorded are never written back."""
    path = on_disk("old").path
    edit(journal, path, b"new")
    (file,) = journal.folder.glob("*.edit")
    header = file.read_bytes().split(b"\n")[0]
    for damaged in (file.read_bytes()[:-3], header + b"\n" + zlib.compress(b"other"), b"", header):
        file.write_bytes(damaged)
        with pytest.raises(NothingToUndo, match="damaged"):
            journal.undo()
    assert path.read_bytes() == b"new"


def test_damaged_entry_does_not_stop_an_edit(journal: Journal, on_disk: Write) -> None:
    """After a damaged entry edits go on, and can be undone."""
    path = on_disk("old").path
    edit(journal, path, b"new")
    next(journal.folder.glob("*.edit")).write_bytes(b"")
    edit(journal, path, b"newer")
    journal.undo()
    assert path.read_bytes() == b"new"


def test_unusable_folder_stops_the_edit(on_disk: Write, tmp_path: Path) -> None:
    """No edit is made that could not be undone."""
    source = on_disk("old")
    (tmp_path / "file").touch()
    with pytest.raises(WriteProblem, match="journal"):
        Journal(tmp_path / "file" / "undo").apply(source, b"new", "x", "y")
    assert source.path.read_bytes() == b"old"


def test_a_name_that_is_not_utf8_is_refused(journal: Journal, tmp_path: Path) -> None:
    """The journal could not name the file, so it is not edited, and the proposed text is kept."""
    path = tmp_path / os.fsdecode(b"\xff.txt")
    try:
        path.write_bytes(b"old")
    except OSError:
        pytest.skip("this file system takes only UTF-8")
    with pytest.raises(WriteProblem, match="not UTF-8") as error:
        edit(journal, path, b"new")
    assert (path.read_bytes(), error.value.kept[0].read_bytes()) == (b"old", b"new")


def test_full_journal_disk_stops_the_edit(
    journal: Journal, on_disk: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the entry cannot be written, neither is the file."""
    source = on_disk("old")

    def full(_fd: int, _data: bytes) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(WriteProblem, match="No space"):
        journal.apply(source, b"new", "x", "y")
    assert source.path.read_bytes() == b"old"
    assert list(journal.entries()) == []


def test_two_at_once(journal: Journal, on_disk: Write) -> None:
    """Edits of several files at the same time get an entry each."""
    paths = [on_disk("old", f"f{number}.py").path for number in range(8)]
    threads = [threading.Thread(target=edit, args=(journal, path, b"new")) for path in paths]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(entry.path for entry in journal.entries()) == sorted(str(path) for path in paths)
    assert len({entry.number for entry in journal.entries()}) == 8


def test_hung_writer_is_not_waited_for_forever(
    journal: Journal, on_disk: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While another process holds the lock, an edit gives up with a clear answer."""
    source = on_disk("old")
    monkeypatch.setattr(entries, "LOCK_WAIT_S", 0.05)
    with EntryFolder(journal.folder).lock(), pytest.raises(WriteProblem, match="Another vivace"):
        journal.apply(source, b"new", "x", "y")


@settings(max_examples=examples(40), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.sampled_from(["a\n", "b\r\n", "c", "\r", "é\n"]), min_size=1).map("".join), st.data())
def test_splice_then_undo_is_identity(tmp_path: Path, text: str, data: st.DataObject) -> None:
    """Whatever is spliced in, undo gives the very same bytes back."""
    path = tmp_path / "x.txt"
    path.write_bytes(text.encode())
    source = read_source(path)
    first = data.draw(st.integers(1, len(source.lines)))
    last = data.draw(st.integers(first, len(source.lines)))
    journal = Journal(tmp_path / "undo")
    journal.apply(source, splice(source, first, last, "something\nnew\n"), "x", "y")
    journal.undo()
    assert path.read_bytes() == text.encode()
    write_source(read_source(path), b"")
