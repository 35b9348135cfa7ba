"""Undo, redo, undo of older edits and rewinding: every step can be taken back, and what came after stays."""

from pathlib import Path

import pytest

from tests.agent.edits.apply.conftest import Edit
from vivace.agent.edits.apply.journal import Journal
from vivace.errors import NothingToUndo

TEXT = "one\n\ntwo\n\nthree\n\nfour\n"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "app.txt"
    path.write_text(TEXT)
    return path


def shouted(text: str, *words: str) -> str:
    for word in words:
        text = text.replace(word, word.upper())
    return text


@pytest.fixture
def edited(file: Path, edit: Edit) -> Path:
    """Edits 1, 2 and 3 of different lines."""
    for count in (1, 2, 3):
        edit({file: shouted(TEXT, *["one", "two", "three"][:count])}, f"edit {count}")
    return file


def test_undo_and_redo_walk_back_and_forth(journal: Journal, edited: Path) -> None:
    """Three undos, three redos, an undo: each step is the inverse of one before it."""
    seen = [edited.read_text()]
    for step in (journal.undo, journal.undo, journal.undo, journal.redo, journal.redo, journal.redo):
        step()
        seen.append(edited.read_text())
    assert seen == [*seen[3:][::-1], *seen[4:]]
    assert seen[3] == TEXT
    with pytest.raises(NothingToUndo, match="no edit to redo"):
        journal.redo()
    assert journal.undo().instruction == "edit 3"


def test_an_older_edit_is_undone_and_the_later_ones_stay(journal: Journal, edited: Path) -> None:
    """Undo by number merges what came after, says so, and can be redone."""
    entry = journal.undo(number=1)
    assert edited.read_text() == shouted(TEXT, "two", "three")
    assert (entry.reverses, entry.files[0].is_merged) == ((1,), True)
    journal.undo()
    assert edited.read_text() == shouted(TEXT, "two")
    journal.redo(number=1)
    assert edited.read_text() == shouted(TEXT, "one", "two")
    journal.redo(number=3)
    assert edited.read_text() == shouted(TEXT, "one", "two", "three")


def test_an_undo_can_be_undone_by_its_number(journal: Journal, edited: Path) -> None:
    """The undo's own entry, taken back, brings the edit back; and that can be taken back again."""
    undone = journal.undo()
    redone = journal.undo(number=undone.number)
    assert (redone.kind, edited.read_text()) == ("redo", shouted(TEXT, "one", "two", "three"))
    journal.undo(number=redone.number)
    assert edited.read_text() == shouted(TEXT, "one", "two")
    assert journal.standing() >= {1, 2, undone.number}


def test_later_edits_of_the_same_lines_refuse_it(journal: Journal, file: Path, edit: Edit) -> None:
    """Where the later edit built on the older one, nothing is written, and the newest first works."""
    edit({file: shouted(TEXT, "one")})
    edit({file: TEXT.replace("one", "ONE!")})
    with pytest.raises(NothingToUndo, match="same lines") as error:
        journal.undo(number=1)
    assert error.value.hint
    assert file.read_text() == TEXT.replace("one", "ONE!")
    journal.undo()
    journal.undo(number=1)
    assert file.read_text() == TEXT


def test_what_the_user_wrote_after_the_edit_stays(journal: Journal, edited: Path) -> None:
    """Undo and redo leave a line that the user has added since."""
    edited.write_text("mine\n" + edited.read_text())
    journal.undo()
    assert edited.read_text() == "mine\n" + shouted(TEXT, "one", "two")
    edited.write_text(edited.read_text() + "\nmore\n")
    journal.redo()
    assert edited.read_text() == "mine\n" + shouted(TEXT, "one", "two", "three") + "\nmore\n"


def test_a_merge_that_breaks_the_file_is_refused(journal: Journal, tmp_path: Path, edit: Edit) -> None:
    """If what came after cannot stand without the edit, the file stays as it is."""
    path = tmp_path / "app.py"
    path.write_text("a = 0\n\n\nz = 0\n")
    edit({path: "if True:\n    a = 0\n\n\nz = 0\n"})
    path.write_text("if True:\n    a = 0\n\n    b = 1\n\nz = 0\n")
    with pytest.raises(NothingToUndo, match="broken"):
        journal.undo()
    assert "b = 1" in path.read_text()


@pytest.mark.parametrize(("verb", "number"), [("undo", 9), ("redo", 9), ("undo", 1), ("redo", 3)])
def test_wrong_numbers_are_told(journal: Journal, edited: Path, verb: str, number: int) -> None:
    """An unknown number, an edit that is undone already, one that is not undone: one sentence and a hint."""
    journal.undo(number=1)
    with pytest.raises(NothingToUndo) as error:
        getattr(journal, verb)(number=number)
    assert error.value.hint
    assert edited.read_text() == shouted(TEXT, "two", "three")


def test_rewinding_is_one_step(journal: Journal, edited: Path) -> None:
    """All after edit 1 is taken back at once, brought back at once, and again."""
    entry = journal.rewind(1)
    assert (edited.read_text(), entry.reverses) == (shouted(TEXT, "one"), (3, 2))
    journal.redo()
    assert edited.read_text() == shouted(TEXT, "one", "two", "three")
    journal.rewind(0)
    assert edited.read_text() == TEXT
    with pytest.raises(NothingToUndo):
        journal.undo()
    with pytest.raises(NothingToUndo):
        journal.rewind(99)


def test_rewinding_passes_through_undos(journal: Journal, edited: Path) -> None:
    """The files are as they were after that entry, whatever was undone and redone since."""
    journal.undo(number=2)
    state = edited.read_text()
    journal.redo()
    journal.undo()
    journal.rewind(4)  # the undo of 2
    assert edited.read_text() == state
    journal.rewind(3)
    assert edited.read_text() == shouted(TEXT, "one", "two", "three")


def test_rewinding_in_a_folder_leaves_the_others(journal: Journal, tmp_path: Path, edit: Edit) -> None:
    """With a folder only what was edited in it is taken back."""
    inner, outer = tmp_path / "inner" / "a.txt", tmp_path / "innermost.txt"
    edit({inner: "a\n"})
    edit({outer: "b\n"})
    edit({inner: "c\n"})
    journal.rewind(0, tmp_path / "inner")
    assert (inner.exists(), outer.read_text()) == (False, "b\n")


def test_several_edits_are_undone_as_one(journal: Journal, edited: Path) -> None:
    """Edits 1 and 3 go, 2 stays; one redo brings both back; those undone already are left out."""
    assert journal.undo_all({1, 3}) is not None
    assert edited.read_text() == shouted(TEXT, "two")
    assert journal.undo_all({1, 3}) is None
    journal.redo()
    assert edited.read_text() == shouted(TEXT, "one", "two", "three")


def test_a_damaged_entry_is_no_obstacle_to_a_number(journal: Journal, edited: Path) -> None:
    """The edit that is named can be undone, even if a newer entry is damaged."""
    (journal.folder / "0000000003.edit").write_bytes(b"torn")
    with pytest.raises(NothingToUndo, match="damaged"):
        journal.undo()
    journal.undo(number=1)
    assert edited.read_text() == shouted(TEXT, "two", "three")


def test_a_file_that_became_a_link_is_left_alone(journal: Journal, edited: Path, tmp_path: Path) -> None:
    """Undo does not replace a link that stands where the file was, nor write through it."""
    elsewhere = tmp_path / "elsewhere.txt"
    edited.rename(elsewhere)
    edited.symlink_to(elsewhere)
    before = elsewhere.read_text()
    with pytest.raises(Exception, match="symbolic link"):
        journal.undo(number=3)
    assert (edited.is_symlink(), elsewhere.read_text()) == (True, before)
