"""Files that are open in a face: the buffer is read in place of the file, and the face writes the change."""

import asyncio
from pathlib import Path

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from tests.agent.edits.editors import FakeEditor
from tests.thorough import examples
from vivace.agent.edits.apply.files import DISK, Files, OpenFiles
from vivace.agent.edits.apply.journal import Change, Journal
from vivace.agent.edits.apply.source import SourceFile, new_source, splice
from vivace.agent.edits.apply.writing import write_changes
from vivace.agent.edits.find.units import lines_unit
from vivace.errors import EditConflict, FileProblem, NothingToUndo, WriteProblem

pytestmark = pytest.mark.usefixtures("no_fsync")
LINES = "".join(f"{number}\n" for number in range(9))


def read(path: Path) -> str:
    return path.read_text()


def has(path: Path) -> bool:
    return path.exists()


def texts_in(folder: Path) -> list[str]:
    return [path.read_text() for path in folder.iterdir()]


def change_of(source: SourceFile, line: int, text: str) -> Change:
    """Replace one line."""
    return Change(source, splice(source, line, line, text), lines_unit(source, line, line))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path.resolve() / "a.txt"
    path.write_text(LINES)
    return path


def test_a_buffer_is_read_in_place_of_the_file(file: Path) -> None:
    """While a buffer is open it counts, by whatever name the file is read; closed, the disk counts again."""
    files = OpenFiles()
    files.set_buffer(file, "mine\n")
    link = file.with_name("link.txt")
    link.symlink_to(file)
    assert (files.read(file).text, files.read(link).text, DISK.read(file).text) == ("mine\n", "mine\n", LINES)
    files.set_buffer(link, None)
    assert files.read(file).text == LINES


def test_a_buffer_without_a_file_can_be_read(tmp_path: Path) -> None:
    """A file that was never saved exists for the edit."""
    files, path = OpenFiles(), tmp_path / "untitled.py"
    files.set_buffer(path, "x = 1\n")
    assert files.exists(path)
    assert files.is_file(path)
    assert files.read(path).lines == ("x = 1",)


@pytest.mark.parametrize("text", ["half \ud800", "x" * 2_000_001])
def test_a_text_that_cannot_be_edited_is_refused(tmp_path: Path, text: str) -> None:
    """Half a character and a text over the limit are said at once, with a hint."""
    with pytest.raises(FileProblem) as raised:
        OpenFiles().set_buffer(tmp_path / "a.txt", text)
    assert raised.value.hint


async def test_without_an_editor_the_journal_merges_into_the_file(file: Path, journal: Journal) -> None:
    """An edit of a buffer goes to disk without what the user has not saved."""
    files = OpenFiles()
    files.set_buffer(file, "unsaved\n" + LINES)
    written = await write_changes([change_of(files.read(file), 6, "four")], "it", journal, files)
    assert read(file) == LINES.replace("4", "four")
    assert written.entry is not None
    assert written.entry.files[0].is_merged


async def test_the_face_writes_and_the_journal_undoes(file: Path, journal: Journal) -> None:
    """What the editor saved is an entry; its undo keeps what the user had not saved before."""
    unsaved = "unsaved\n" + LINES
    editor = FakeEditor({file: unsaved})
    files = OpenFiles(editor)
    await files.refresh([file])
    written = await write_changes([change_of(files.read(file), 6, "four")], "it", journal, files)
    assert editor.buffers[file] == read(file) == unsaved.replace("4", "four")
    assert files.read(file).text == read(file)
    assert written.entry is not None
    journal.undo(number=written.entry.number)
    assert read(file) == unsaved


async def test_a_buffer_that_is_not_saved_leaves_no_entry(file: Path, journal: Journal) -> None:
    """The file on disk is as it was, so there is nothing for the journal to take back."""
    editor = FakeEditor({file: LINES}, saves=False)
    files = OpenFiles(editor)
    await files.refresh([file])
    written = await write_changes([change_of(files.read(file), 1, "zero")], "it", journal, files)
    assert written.entry is None
    assert (editor.buffers[file], read(file)) == (LINES.replace("0", "zero"), LINES)
    with pytest.raises(NothingToUndo):
        journal.undo()


async def test_what_was_typed_meanwhile_is_merged(file: Path, journal: Journal) -> None:
    """The edit fits itself into the buffer as it is when it is written, or it is a conflict."""
    editor = FakeEditor({file: LINES})
    files = OpenFiles(editor)
    await files.refresh([file])
    source = files.read(file)
    editor.buffers[file] = "typed\n" + LINES
    await write_changes([change_of(source, 5, "four")], "it", journal, files)
    assert editor.buffers[file] == "typed\n" + LINES.replace("4", "four")
    editor.buffers[file] = LINES.replace("4", "mine")
    with pytest.raises(EditConflict) as raised:
        await write_changes([change_of(source, 5, "other")], "it", journal, files)
    assert editor.buffers[file] == LINES.replace("4", "mine")
    assert [read(kept) for kept in raised.value.kept] == [LINES.replace("4", "other")]


async def test_a_removal_is_left_to_the_journal(file: Path, journal: Journal) -> None:
    """An editor can write texts only; an edit that removes a file is written to disk as a whole."""
    editor = FakeEditor()
    files = OpenFiles(editor)
    await write_changes([Change(files.read(file), None, "file")], "it", journal, files)
    assert not has(file)
    assert not editor.writes


async def test_a_stop_while_the_face_writes_waits_for_it(file: Path, journal: Journal) -> None:
    """The edit is whole and undoable, though its task was cancelled in the middle of the write."""
    editor = FakeEditor({file: LINES})
    editor.held = asyncio.Event()
    files = OpenFiles(editor)
    await files.refresh([file])
    change = change_of(files.read(file), 1, "zero")
    task = asyncio.create_task(write_changes([change], "it", journal, files))
    await editor.began.wait()
    task.cancel()
    await asyncio.sleep(0)
    editor.held.set()
    written = await task
    assert written.entry is not None
    assert read(file) == LINES.replace("0", "zero")


async def test_a_face_that_never_answers_can_be_stopped(
    file: Path, journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stop is obeyed after a while, and the proposed text is kept."""
    monkeypatch.setattr("vivace.agent.edits.apply.writing.STOP_WAIT_S", 0.01)
    editor = FakeEditor({file: LINES})
    editor.held = asyncio.Event()
    files = OpenFiles(editor)
    await files.refresh([file])
    change = change_of(files.read(file), 1, "zero")
    task = asyncio.create_task(write_changes([change], "it", journal, files))
    await editor.began.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert texts_in(journal.folder / "kept") == [LINES.replace("0", "zero")]


LINE = st.text(st.characters(codec="utf-8", exclude_characters="\r\n\0\ufeff"), max_size=5)
TEXT = st.lists(LINE, min_size=1, max_size=8).map(lambda lines: "".join(f"{line}\n" for line in lines))
DISK_FORM = st.sampled_from(["plain", "returns", "mark", "both", "absent"])
PROPERTY = settings(
    max_examples=examples(60),
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    deadline=None,
)


def put_on_disk(path: Path, text: str, form: str) -> None:
    """Write a text as an editor would save it."""
    path.unlink(missing_ok=True)
    data = text.encode()
    if form in ("returns", "both"):
        data = data.replace(b"\n", b"\r\n")
    if form in ("mark", "both"):
        data = b"\xef\xbb\xbf" + data
    if form != "absent":
        path.write_bytes(data)


@PROPERTY
@given(TEXT, TEXT, DISK_FORM, st.data())
def test_nothing_outside_of_the_unit_changes(
    tmp_path: Path, journal: Journal, text: str, saved: str, form: str, data: st.DataObject
) -> None:
    """Lines around the unit come back to the editor as it gave them, whatever form the file on disk has."""
    path = tmp_path.resolve() / "a.txt"
    put_on_disk(path, saved, form)
    lines = text.split("\n")[:-1]
    at = data.draw(st.integers(1, len(lines)))
    new = data.draw(LINE)
    assume(new != lines[at - 1] and new)
    editor = FakeEditor({path: text}, saves=False)
    files = OpenFiles(editor)

    async def edit() -> None:
        await files.refresh([path])
        await write_changes([change_of(files.read(path), at, new)], "it", journal, files)

    asyncio.run(edit())
    assert editor.buffers[path].split("\n") == [*lines[: at - 1], new, *lines[at:], ""]


@PROPERTY
@given(st.integers(1, 4), st.integers(0, 3), st.booleans(), st.booleans(), st.booleans())
def test_a_failed_write_loses_nothing(
    tmp_path: Path, journal: Journal, count: int, fails_at: int, late: bool, saves: bool, makes_one: bool
) -> None:
    """Whichever file fails, before or after its text changed: all are as they were, the texts are kept."""
    assume(fails_at < count)
    paths = [tmp_path.resolve() / f"{number}.txt" for number in range(count)]
    editor = FakeEditor({path: f"{path.stem}\n" for path in paths}, saves=saves)
    for path in paths:
        path.write_text(f"{path.stem}\n")
    made = paths[-1] if makes_one else None
    if made is not None:
        made.unlink()
        del editor.buffers[made]
    editor.fails_at, editor.fails_after_writing = fails_at, late
    files = OpenFiles(editor)
    before = dict(editor.buffers)

    def change(path: Path) -> Change:
        source = new_source(path) if path == made else files.read(path)
        return Change(source, b"new\n", "file")

    async def edit() -> None:
        await files.refresh(paths)
        with pytest.raises(WriteProblem, match="locked") as raised:
            await write_changes([change(path) for path in paths], "it", journal, files)
        assert len(raised.value.kept) == count

    asyncio.run(edit())
    now = {path: text for path, text in editor.buffers.items() if path != made}
    assert now == {path: text for path, text in before.items() if path != made}
    assert [path.exists() for path in paths] == [path != made for path in paths]
    assert all(path.read_text() == before[path] for path in paths if path != made)
    assert not list(journal.entries())


def test_the_disk_alone_is_written_by_the_journal() -> None:
    """Without a face that has files open, nothing is asked and nothing is different."""
    assert not Files().is_written_by_face
    assert not OpenFiles().is_written_by_face
