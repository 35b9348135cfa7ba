"""Merging by lines: both changes, or None; never a byte that neither side wrote."""

import subprocess
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.thorough import examples
from vivace.agent.edits.apply import merging
from vivace.agent.edits.apply.merging import (
    diff_lines,
    has_markers,
    merge,
    merge_ours_first,
    merge_with_markers,
    moved_range,
    split_bytes,
)

ENDS = ["\n", "\r\n", "\r", ""]
LINE = st.tuples(st.sampled_from(["", "a", "b", "c", "é", "\ufeffa"]), st.sampled_from(ENDS)).map("".join)
TEXT = st.lists(LINE, max_size=12).map(lambda lines: "".join(lines).encode())


def numbered(count: int) -> list[bytes]:
    return [b"line %d\n" % number for number in range(count)]


@st.composite
def descendants(draw: st.DrawFn) -> tuple[bytes, bytes, bytes]:
    """A text whose lines are all different, and two texts made from it by changing, removing and adding."""
    base = numbered(draw(st.integers(0, 12)))

    def changed(name: str) -> bytes:
        out = []
        for index, line in enumerate([*base, b""]):
            action = draw(st.sampled_from(["keep"] * 8 + ["add", "remove", "change"]))
            if action == "add":
                out.append(b"new %d %s\n" % (index, draw(st.sampled_from([name, "same"])).encode()))
            if line and action == "change":
                out.append(b"changed %d %s\n" % (index, draw(st.sampled_from([name, "same"])).encode()))
            elif action != "remove":
                out.append(line)
        return b"".join(out)

    return b"".join(base), changed("ours"), changed("theirs")


def git_merge(folder: Path, base: bytes, ours: bytes, theirs: bytes) -> bytes | None:
    for name, text in (("base", base), ("ours", ours), ("theirs", theirs)):
        (folder / name).write_bytes(text)
    command = ["git", "merge-file", "-p", "ours", "base", "theirs"]
    done = subprocess.run(command, cwd=folder, capture_output=True, check=False)
    return done.stdout if done.returncode == 0 else None


def test_changes_in_different_places_are_both_taken() -> None:
    """Each side's change is there, and every line end is as it was."""
    base = b"\xef\xbb\xbfone\r\ntwo\nthree\rfour\nfive"
    ours = base.replace(b"one", b"ONE")
    theirs = base.replace(b"five", b"FIVE").replace(b"four\n", b"four\nnew\n")
    assert merge(base, ours, theirs) == b"\xef\xbb\xbfONE\r\ntwo\nthree\rfour\nnew\nFIVE"


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (b"a\nB\nc\n", b"a\nbb\nc\n"),  # the same line
        (b"A\nb\nc\n", b"a\nB\nc\n"),  # neighbours
        (b"a\nc\n", b"a\nB\nc\n"),  # removed and changed
        (b"a\nb\nx\nc\n", b"a\nb\ny\nc\n"),  # two texts at one place
        (b"a\r\nb\r\nc\r\n", b"a\nB\nc\n"),  # all line ends and a line
    ],
)
def test_changes_of_the_same_place_are_a_conflict(ours: bytes, theirs: bytes) -> None:
    """Nothing is chosen for the user, whichever side is called ours."""
    base = b"a\nb\nc\n"
    assert merge(base, ours, theirs) is None
    assert merge(base, theirs, ours) is None


def test_a_text_without_any_line_in_common_is_one_change(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the limit of edits the middle counts as changed as a whole: a conflict, never a wrong merge."""
    monkeypatch.setattr(merging, "MAX_EDITS", 3)
    base = numbered(9)
    theirs = [b"top\n", *base[:3], b"x\n", b"y\n", b"z\n", *base[3:], b"end\n"]
    (hunk,) = diff_lines(base, theirs)
    assert (hunk.start, hunk.stop) == (0, 9)
    ours = [*base[:6], b"ours\n", *base[6:]]
    assert merge(b"".join(base), b"".join(ours), b"".join(theirs)) is None


def test_large_texts_take_no_time_to_speak_of() -> None:
    """Forty thousand lines, most of them alike, with a change at either end."""
    base = [b"\n" if number % 2 else b"x\n" for number in range(40_000)]
    ours, theirs = [*base], [*base]
    ours[10], theirs[1], theirs[-2] = b"ours\n", b"first\n", b"last\n"
    merged = split_bytes(merge(b"".join(base), b"".join(ours), b"".join(theirs)) or b"")
    assert (merged[1], merged[10], merged[-2]) == (b"first\n", b"ours\n", b"last\n")


@settings(max_examples=examples(60), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(descendants())
def test_git_agrees(tmp_path: Path, texts: tuple[bytes, bytes, bytes]) -> None:
    """Where both merge, the result is the same; where one sees a conflict, so does the other."""
    base, ours, theirs = texts
    assert merge(base, ours, theirs) == git_merge(tmp_path, base, ours, theirs)


@settings(max_examples=examples(300))
@given(TEXT, TEXT)
def test_a_diff_leads_from_one_text_to_the_other(old: bytes, new: bytes) -> None:
    """The hunks applied to the old lines give the new ones, and an unchanged line is between any two."""
    old_lines, new_lines = split_bytes(old), split_bytes(new)
    assert b"".join(old_lines) == old
    hunks = diff_lines(old_lines, new_lines)
    assert all(one.stop < other.start for one, other in pairwise(hunks))
    for hunk in reversed(hunks):
        old_lines[hunk.start : hunk.stop] = hunk.lines
    assert old_lines == new_lines


@settings(max_examples=examples(300))
@given(TEXT, TEXT, TEXT)
def test_laws_of_merging(base: bytes, ours: bytes, theirs: bytes) -> None:
    """The sides may be swapped; a side that changed nothing, or the same, adds nothing."""
    merged = merge(base, ours, theirs)
    assert merged == merge(base, theirs, ours)
    assert merge(base, base, theirs) == theirs
    assert merge(base, ours, ours) == ours
    if merged is not None:
        known = {*split_bytes(base), *split_bytes(ours), *split_bytes(theirs)}
        assert set(split_bytes(merged)) <= known, "every line is somebody's, line ends included"


@settings(max_examples=examples(200))
@given(st.integers(0, 8), st.integers(0, 8), st.data())
def test_a_range_moves_with_its_lines(above: int, below: int, data: st.DataObject) -> None:
    """Lines that did not change are found again, whatever came above and below."""
    unit = [b"unit %d\n" % number for number in range(data.draw(st.integers(1, 4)))]
    base = [*numbered(above), *unit, *[b"tail %d\n" % number for number in range(below)]]
    fresh = st.lists(st.sampled_from([b"new\n", b"other\n"]), max_size=5)
    other = [*data.draw(fresh), *unit, *data.draw(fresh)]
    start, stop = moved_range(b"".join(base), b"".join(other), above, above + len(unit))
    assert other[start:stop] == unit


@given(descendants())
@settings(max_examples=examples(150))
def test_a_conflict_takes_our_lines_or_marks_both(texts: tuple[bytes, bytes, bytes]) -> None:
    """Where both merge, all three ways agree; else one has no line of a conflict twice, one has markers."""
    base, ours, theirs = texts
    merged = merge(base, ours, theirs)
    first = merge_ours_first(base, ours, theirs, within=None)
    marked = merge_with_markers(base, ours, theirs, within=None)
    if merged is not None:
        assert first == marked == merged
        assert not has_markers(marked)
        return
    assert has_markers(marked)
    known = set(split_bytes(base)) | set(split_bytes(ours)) | set(split_bytes(theirs))
    assert set(split_bytes(first)) <= known
    assert all(line in split_bytes(first) for line in split_bytes(ours) if line not in split_bytes(base))


def test_markers_keep_the_files_line_ends() -> None:
    """A file with CRLF gets markers with CRLF, also where the last line has no end."""
    marked = merge_with_markers(b"a\r\nb", b"a\r\nB", b"a\r\nc", within=None)
    assert marked == b"a\r\n<<<<<<< the edit\r\nB\r\n=======\r\nc\r\n>>>>>>> the file\r\n"
