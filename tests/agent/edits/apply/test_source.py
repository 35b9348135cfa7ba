"""Reading a source file and splicing text into it, byte for byte."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vivace.agent.edits.apply.source import MAX_BYTES, SourceFile, read_source, source_from_bytes, splice
from vivace.errors import EditRejected, FileProblem, UsageError

BOM = b"\xef\xbb\xbf"
LINE = st.text(st.characters(exclude_characters="\r\n\0", exclude_categories=("Cs",)), max_size=6)  # type: ignore[arg-type]
END = st.sampled_from(["\n", "\r\n", "\r"])


@st.composite
def sources(draw: st.DrawFn) -> SourceFile:
    """A file with any mixture of line ends, with or without byte order mark and final newline."""
    pairs = draw(st.lists(st.tuples(LINE, END), max_size=8))
    text = "".join(line + end for line, end in pairs) + draw(st.sampled_from(["", "last"]))
    raw = draw(st.sampled_from([b"", BOM])) + text.encode()
    return source_from_bytes(Path("x.txt"), raw)


@st.composite
def ranges(draw: st.DrawFn) -> tuple[SourceFile, int, int]:
    source = draw(sources())
    first = draw(st.integers(1, len(source.lines) + 1))
    return source, first, draw(st.integers(first - 1, len(source.lines)))


def bytes_of(source: SourceFile, start: int, stop: int) -> bytes:
    pairs = list(zip(source.lines, source.ends, strict=True))[start:stop]
    return "".join(line + end for line, end in pairs).encode()


@given(ranges())
def test_own_text_back_is_identity(case: tuple[SourceFile, int, int]) -> None:
    """Splicing lines' own text back gives the file's own bytes."""
    source, first, last = case
    assert splice(source, first, last, source.text_of(first, last)) == source.raw


@given(ranges(), st.lists(LINE, max_size=5))
def test_outside_is_untouched(case: tuple[SourceFile, int, int], new: list[str]) -> None:
    """Bytes before and after the range are identical, whatever is put into it."""
    source, first, last = case
    result = splice(source, first, last, "".join(f"{line}\n" for line in new))
    above = (BOM if source.bom else b"") + bytes_of(source, 0, first - 1)
    below = bytes_of(source, last, len(source.lines))
    if below:
        assert result.startswith(above)
        assert result.endswith(below)
    else:  # at the end of the file only the final line end may come or go
        assert result.rstrip(b"\r\n").startswith(above.rstrip(b"\r\n"))


@given(ranges(), st.lists(LINE, max_size=5))
def test_lines_are_what_was_asked_for(case: tuple[SourceFile, int, int], new: list[str]) -> None:
    """The result's lines are the old ones with the range replaced, and its end is as it was."""
    source, first, last = case
    result = source_from_bytes(source.path, splice(source, first, last, "".join(f"{x}\n" for x in new)))
    expected = source.lines[: first - 1] + tuple(new) + source.lines[last:]
    if new and (source.final_newline or expected[-1]):
        assert result.lines == expected
        assert result.final_newline == source.final_newline
    assert result.bom == source.bom


@given(sources())
def test_text_has_the_lines(source: SourceFile) -> None:
    """The normalised text splits at newlines into exactly the lines."""
    assert source.text.count("\n") == len(source.lines) - (not source.final_newline)
    assert tuple(source.text.removesuffix("\n").split("\n")) == source.lines or not source.lines


def test_unchanged_lines_keep_their_own_ends() -> None:
    """Inside the range a line that stays keeps its line end; a new one takes the dominant end."""
    source = source_from_bytes(Path("x"), b"a\r\nb\nc\r\nd\r\n")
    assert splice(source, 1, 4, "a\nnew\nb\nd\n") == b"a\r\nnew\r\nb\nd\r\n"


def test_mixed_ends_do_not_fuse() -> None:
    """A kept carriage return and an empty line after it stay two line ends."""
    source = source_from_bytes(Path("x"), b"a\n\rb\n\n")
    assert splice(source, 1, 3, "a\n\n\n") == b"a\n\r\n\n\n"


def test_missing_final_newline_stays_missing() -> None:
    """A file without a final newline has none after its last lines were replaced, extended or deleted."""
    source = source_from_bytes(Path("x"), b"a\r\nb")
    assert splice(source, 2, 2, "c\nd\n") == b"a\r\nc\r\nd"
    assert splice(source, 3, 2, "c\n") == b"a\r\nb\r\nc"
    assert splice(source, 2, 2, "") == b"a"


def test_empty_file_can_be_filled() -> None:
    """What is put into an empty file ends in a newline."""
    assert splice(source_from_bytes(Path("x"), b""), 1, 0, "a\nb") == b"a\nb\n"


def test_odd_separators_are_not_line_ends() -> None:
    """A form feed or a Unicode line separator stays inside its line."""
    source = source_from_bytes(Path("x"), "a\x0cb\u2028c\n".encode())
    assert len(source.lines) == 1


def test_splice_refuses_lines_that_are_not_there() -> None:
    """A range outside of the file is an error, not a silent clip."""
    with pytest.raises(UsageError, match="2 lines"):
        splice(source_from_bytes(Path("x"), b"a\nb\n"), 2, 5, "")


def test_half_a_character_is_rejected() -> None:
    """An answer with a lone surrogate is rejected before anything is written."""
    with pytest.raises(EditRejected):
        splice(source_from_bytes(Path("x"), b"a\n"), 1, 1, "\ud800\n")


def test_missing_file_names_the_nearest(tmp_path: Path) -> None:
    """A misspelt file name is answered with the one that was meant."""
    (tmp_path / "server.py").touch()
    with pytest.raises(FileProblem) as error:
        read_source(tmp_path / "sever.py")
    assert "server.py" in error.value.hint


def test_broken_link_says_where_it_points(tmp_path: Path) -> None:
    """A link to nothing is named as such."""
    (tmp_path / "link.py").symlink_to("gone.py")
    with pytest.raises(FileProblem) as error:
        read_source(tmp_path / "link.py")
    assert "gone.py" in error.value.hint


@pytest.mark.parametrize(
    ("content", "word"),
    [
        (b"\x7fELF\0\0", "binary"),
        (b"ok\nna\xefve\n", "byte 5 (line 2)"),
        ("hé".encode("utf-16"), "UTF-16"),
        (b"x" * (MAX_BYTES + 1), "too large"),
    ],
)
def test_unsuitable_content_is_named(tmp_path: Path, content: bytes, word: str) -> None:
    """Binary, non-UTF-8 and huge files are refused with the reason."""
    path = tmp_path / "x.py"
    path.write_bytes(content)
    with pytest.raises(FileProblem) as error:
        read_source(path)
    assert word in error.value.message
    assert error.value.hint


def test_folder_and_pipe_are_refused(tmp_path: Path) -> None:
    """A folder or a named pipe is refused at once, without waiting for a writer."""
    os.mkfifo(tmp_path / "pipe")
    for name, word in ((".", "folder"), ("pipe", "regular")):
        with pytest.raises(FileProblem, match=word):
            read_source(tmp_path / name)


@pytest.mark.parametrize("name", ["x" * 300, "a\0b", "file.txt/inner", "loop"])
def test_impossible_paths_are_refused(tmp_path: Path, name: str) -> None:
    """A path that no file can have is a FileProblem, never a traceback."""
    (tmp_path / "file.txt").touch()
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(FileProblem):
        read_source(tmp_path / name)
