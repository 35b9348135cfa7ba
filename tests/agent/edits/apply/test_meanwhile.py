"""A file that changes between reading and writing: both changes, or nothing written and nothing lost."""

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from tests.thorough import examples
from vivace.agent.edits.apply.journal import Journal
from vivace.agent.edits.apply.merging import split_bytes
from vivace.agent.edits.apply.source import SourceFile, read_source, splice
from vivace.agent.edits.find.languages import language_for
from vivace.agent.edits.find.outline import list_units
from vivace.agent.edits.find.units import Unit, find_unit, lines_unit
from vivace.errors import EditConflict

Write = Callable[..., SourceFile]
pytestmark = pytest.mark.usefixtures("no_fsync")
CODE = """import os


def first():
    return 1


def second():
    return 2
"""


def unit_of(source: SourceFile, name: str) -> Unit:
    return find_unit(list_units(source, language_for(source.path)), name)


def test_both_changes_are_taken(journal: Journal, on_disk: Write) -> None:
    """The user's change above moves the unit; the edit is merged, said to be, and undone alone."""
    source = on_disk(CODE)
    theirs = CODE.replace("import os", "import os\nimport sys\n\nX = 1")
    source.path.write_text(theirs)
    new = CODE.replace("return 2", "return 3")
    entry = journal.apply(source, new.encode(), "return three", unit_of(source, "second"))
    assert source.path.read_text() == theirs.replace("return 2", "return 3")
    assert entry.files[0].is_merged
    journal.undo()
    assert source.path.read_text() == theirs


@pytest.mark.parametrize(
    ("theirs", "words"),
    [
        (CODE.replace("return 2", "return 22"), "same lines"),
        (CODE.replace("def second():\n    return 2\n", ""), "same lines"),
        (CODE.replace("\n", "\r\n"), "same lines"),
        ("\0binary", "same lines"),
    ],
)
def test_what_cannot_be_merged_is_kept(journal: Journal, on_disk: Write, theirs: str, words: str) -> None:
    """The file stays as the other program wrote it, the journal is empty, the proposed text is saved."""
    source = on_disk(CODE)
    source.path.write_bytes(theirs.encode())
    new = CODE.replace("return 2", "return 3").encode()
    with pytest.raises(EditConflict, match=words) as error:
        journal.apply(source, new, "return three", unit_of(source, "second"))
    assert source.path.read_bytes() == theirs.encode()
    assert [path.read_bytes() for path in error.value.kept] == [new]
    assert list(journal.entries()) == []


def test_a_merge_that_does_not_parse_is_refused(journal: Journal, on_disk: Write) -> None:
    """Both changes alone are fine; together they are no program any more."""
    source = on_disk("a = [\n    1,\n]\n\nb = [\n    2,\n]\n")
    source.path.write_text("a = (\n    1,\n]\n\nb = [\n    2,\n]\n".replace("]\n\nb", ")\n\nb"))
    new = b"a = [\n    1,\n]\n\nb = [\n    2,\n    3\n]\n"
    journal.apply(source, new, "add three", "b")
    source = on_disk("def f():\n    if x:\n        a()\n\n    b()\n")
    source.path.write_text("def f():\n    a()\n\n    b()\n")
    new = b"def f():\n    if x:\n        a()\n\n        b()\n"
    with pytest.raises(EditConflict, match="does not go with that"):
        journal.apply(source, new, "indent b", "f")
    assert source.path.read_text() == "def f():\n    a()\n\n    b()\n"


def test_a_merge_is_checked_like_the_edit(journal: Journal, on_disk: Write) -> None:
    """A function that the user renamed meanwhile is found by its lines, and its loss is noticed."""
    source = on_disk(CODE)
    source.path.write_text("# mine\n\n" + CODE)
    new = CODE.replace("def second():\n    return 2\n", "def third():\n    return 2\n")
    with pytest.raises(EditConflict, match="now called third"):
        journal.apply(source, new.encode(), "make it better", unit_of(source, "second"))


def test_lines_that_are_alike_are_not_mixed_up(journal: Journal, on_disk: Write) -> None:
    """The unit is removed, and not one of the equal lines below it, next to which the user wrote."""
    source = on_disk("a\na\na\n", "any.txt")
    source.path.write_text("a\nmine\na\na\n")
    with pytest.raises(EditConflict):
        journal.apply(source, b"a\na\n", "remove the first", lines_unit(source, 1, 1))
    source = on_disk("a\na\na\na\n", "any.txt")
    source.path.write_text("a\na\nmine\na\na\n")
    journal.apply(source, b"a\na\na\n", "remove the first", lines_unit(source, 1, 1))
    assert source.path.read_text() == "a\nmine\na\na\n"


def test_the_same_change_by_hand_is_no_conflict(journal: Journal, on_disk: Write) -> None:
    """If the user wrote just what was proposed, the file stays, and undo passes over the edit."""
    source = on_disk("one\n")
    new = b"two\n"
    journal.apply(source, new, "first", "unit")
    journal.apply(source, new, "again", "unit")
    assert source.path.read_bytes() == new
    assert journal.undo().instruction == "first"
    assert source.path.read_bytes() == b"one\n"


END = st.sampled_from([b"\n", b"\r\n", b"\r"])


@st.composite
def numbered_lines(draw: st.DrawFn) -> list[bytes]:
    """Lines that are all different, with any ends, or none at the end of the text."""
    lines = [b"%d" % number + draw(END) for number in range(draw(st.integers(1, 8)))]
    if draw(st.booleans()):
        lines[-1] = lines[-1].rstrip()
    return lines


def changed(data: st.DataObject, lines: list[bytes], *, is_last: bool) -> list[bytes]:
    """Return the lines as another program might leave them."""
    changed: list[bytes] = []
    for line in lines:
        match data.draw(st.sampled_from(["keep", "keep", "keep", "add", "remove", "change"])):
            case "add":
                changed += [b"mine\n", line]
            case "change":
                changed.append(b"changed " + line)
            case "keep":
                changed.append(line)
    if is_last and changed and changed[-1].endswith((b"\r", b"\n")) and data.draw(st.booleans()):
        changed.append(b"the end")
    return changed


@settings(max_examples=examples(200), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    old=numbered_lines(),
    bom=st.sampled_from([b"", b"\xef\xbb\xbf"]),
    new=st.text("ab\n", max_size=6),
    data=st.data(),
)
def test_bytes_outside_of_the_unit_never_change(
    tmp_path: Path, old: list[bytes], bom: bytes, new: str, data: st.DataObject
) -> None:
    """Any line ends, any change above and below: the unit is the proposed one, the rest theirs, to the byte.

    Or nothing is written, and the proposal is kept. Undo gives their bytes back.
    """
    path, journal = tmp_path / "any.txt", Journal(tmp_path / "undo")
    path.write_bytes(bom + b"".join(old))
    source = read_source(path)
    start = data.draw(st.integers(0, len(old) - 1))
    stop = data.draw(st.integers(start + 1, len(old)))
    proposed = splice(source, start + 1, stop, new)
    above = changed(data, old[:start], is_last=False)
    below = changed(data, old[stop:], is_last=True)
    now = bom + b"".join([*above, *old[start:stop], *below])
    assume(source.raw != proposed != now)
    assume(proposed.startswith(bom + b"".join(old[:start])))  # else `splice` took the last newline along
    path.write_bytes(now)
    conflict: EditConflict | None = None
    try:
        journal.apply(source, proposed, "i", lines_unit(source, start + 1, stop))
    except EditConflict as error:
        conflict = error
    if conflict is not None:
        assert path.read_bytes() == now != source.raw
        assert conflict.kept[0].read_bytes() == proposed
        return
    lines = split_bytes(proposed.removeprefix(bom))
    unit = lines[start : len(lines) - (len(old) - stop)]
    assert path.read_bytes() == bom + b"".join([*above, *unit, *below])
    journal.undo(path)
    assert path.read_bytes() == now
