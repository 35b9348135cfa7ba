"""Three versions of a text merged by lines: the base, and two texts that were made from it (diff3).

Owns the alignment of lines and the merge. A line is bytes with its line end, so that a byte outside of a
change is never touched. Changes that overlap or touch are a conflict unless they are equal, as in
`git merge-file`: so no two lines become neighbours that were not in one of the texts. Our own, since git may
be missing and the package `merge3` is under the GPL. Reads and writes no files.
"""

import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

MAX_EDITS = 1000  # lines removed and added in the middle of a text: beyond, all of the middle is one change
_LINE = re.compile(rb"[^\r\n]*(?:\r\n|\n|\r)|[^\r\n]+")

OURS, MIDDLE, THEIRS = b"<<<<<<< the edit", b"=======", b">>>>>>> the file"

Lines = Sequence[bytes]
OnConflict = Callable[[Lines, Lines], Lines | None]


class Hunk(NamedTuple):
    """Lines `start` to `stop` of the base (from 0, `stop` excluded) became `lines`."""

    start: int
    stop: int
    lines: Lines


def split_bytes(text: bytes) -> list[bytes]:
    """Return the lines with their ends. A line ends at "\\r\\n", "\\n" or "\\r"."""
    return _LINE.findall(text)


def merge(base: bytes, ours: bytes, theirs: bytes, *, within: tuple[int, int] | None = None) -> bytes | None:
    """Return the text with both changes, or None if they are in conflict.

    `within` says where our change is: lines of the base, from 0, the end excluded. Among lines that are alike
    a change is then not taken for one of its neighbours.
    """
    if ours in (base, theirs):
        return theirs
    if theirs == base:
        return ours
    return _merged(base, ours, theirs, within, lambda _ours, _theirs: None)


def merge_ours_first(base: bytes, ours: bytes, theirs: bytes, *, within: tuple[int, int] | None) -> bytes:
    """Return the text with both changes, and ours where they are in conflict."""
    merged = _merged(base, ours, theirs, within, lambda our_lines, _theirs: our_lines)
    assert merged is not None, "no conflict is left"
    return merged


def merge_with_markers(base: bytes, ours: bytes, theirs: bytes, *, within: tuple[int, int] | None) -> bytes:
    """Return the text with both changes, and both between markers where they are in conflict."""

    def marked(our_lines: Lines, their_lines: Lines) -> Lines:
        end = b"\r\n" if b"\r\n" in base + theirs else b"\n"
        sides = [_ended(lines, end) for lines in (our_lines, their_lines)]
        return [OURS + end, *sides[0], MIDDLE + end, *sides[1], THEIRS + end]

    merged = _merged(base, ours, theirs, within, marked)
    assert merged is not None, "no conflict is left"
    return merged


def has_markers(text: bytes) -> bool:
    """Return whether a line of the text is a marker of ours."""
    return any(line.rstrip(b"\r\n") in (OURS, MIDDLE, THEIRS) for line in split_bytes(text))


def _ended(lines: Lines, end: bytes) -> Lines:
    """Return the lines, the last one with a line end: a marker follows."""
    return [*lines[:-1], lines[-1].rstrip(b"\r\n") + end] if lines else lines


def _merged(
    base: bytes, ours: bytes, theirs: bytes, within: tuple[int, int] | None, on_conflict: OnConflict
) -> bytes | None:
    base_lines, our_lines = split_bytes(base), split_bytes(ours)
    our_hunks = _hunks_within(base_lines, our_lines, *(within or (0, len(base_lines))))
    their_hunks = diff_lines(base_lines, split_bytes(theirs))
    lines = _merge_lines(base_lines, our_hunks, their_hunks, on_conflict)
    return None if lines is None else b"".join(lines)


def moved_range(base: bytes, other: bytes, start: int, stop: int) -> tuple[int, int]:
    """Return where lines `start` to `stop` of the base (from 0, `stop` excluded) are in `other`.

    A change across one end of the range belongs to it as a whole.
    """
    first, last = start, stop
    for hunk in diff_lines(split_bytes(base), split_bytes(other)):
        growth = len(hunk.lines) - (hunk.stop - hunk.start)
        if hunk.stop <= start:
            first += growth
            last += growth
        elif hunk.start < stop:
            first -= max(0, start - hunk.start)
            last += growth + max(0, hunk.stop - stop)
    return first, last


def diff_lines(old: Lines, new: Lines) -> list[Hunk]:
    """Return what changed, in order; an unchanged line is between any two hunks."""
    head = _common_length(old, new)
    tail = _common_length(old[head:][::-1], new[head:][::-1])
    old_middle, new_middle = old[head : len(old) - tail], new[head : len(new) - tail]
    hunks: list[Hunk] = []
    i = j = head
    for a, b, length in [*_matches(old_middle, new_middle), (len(old_middle), len(new_middle), 0)]:
        if (i, j) != (head + a, head + b):
            hunks.append(Hunk(i, head + a, new[j : head + b]))
        i, j = head + a + length, head + b + length
    return hunks


def _hunks_within(base: Lines, ours: Lines, start: int, stop: int) -> list[Hunk]:
    """Return the changes, looked for in lines `start` to `stop` of the base if all of them are there."""
    below = len(base) - stop
    if base[:start] != ours[:start] or base[stop:] != ours[max(start, len(ours) - below) :]:
        return diff_lines(base, ours)
    hunks = diff_lines(base[start:stop], ours[start : len(ours) - below])
    return [Hunk(hunk.start + start, hunk.stop + start, hunk.lines) for hunk in hunks]


def _merge_lines(
    base: Lines, ours: list[Hunk], theirs: list[Hunk], on_conflict: OnConflict
) -> list[bytes] | None:
    """Take what is unchanged from the base, and each change from the side that made it.

    `on_conflict` gets our lines and theirs, and returns what to take; None ends the merge.
    """
    pending = sorted(
        [(hunk, 0) for hunk in ours] + [(hunk, 1) for hunk in theirs],
        key=lambda each: (each[0].start, each[0].stop),
    )
    merged: list[bytes] = []
    done = 0  # lines of the base
    while pending:
        group, pending = _touching(pending)
        start, stop = group[0][0].start, max(hunk.stop for hunk, _ in group)
        sides = [_side(base, group, side, start, stop) for side in (0, 1)]
        is_both = len({side for _, side in group}) == 2
        taken: Lines | None = sides[group[0][1]]
        if is_both and sides[0] != sides[1]:
            taken = on_conflict(sides[0], sides[1])
        if taken is None:
            return None
        merged += [*base[done:start], *taken]
        done = stop
    return [*merged, *base[done:]]


_Sided = tuple[Hunk, int]  # a change and who made it


def _touching(pending: list[_Sided]) -> tuple[list[_Sided], list[_Sided]]:
    """Split off the first changes that overlap or touch one another."""
    stop = pending[0][0].stop
    for index, (hunk, _) in enumerate(pending):
        if hunk.start > stop:
            return pending[:index], pending[index:]
        stop = max(stop, hunk.stop)
    return pending, []


def _side(base: Lines, group: list[_Sided], side: int, start: int, stop: int) -> list[bytes]:
    """Return what one side made of lines `start` to `stop` of the base."""
    lines: list[bytes] = []
    for hunk in (hunk for hunk, of in group if of == side):
        lines += [*base[start : hunk.start], *hunk.lines]
        start = hunk.stop
    return [*lines, *base[start:stop]]


def _matches(old: Lines, new: Lines) -> list[tuple[int, int, int]]:
    """Return the runs of common lines: where in `old`, where in `new`, how long (Myers' O(ND)).

    Diagonal d holds the points (x, x - d). For each the furthest x is kept, with the runs on the way to it.
    """
    reached: dict[int, tuple[int, _Runs | None]] = {1: (0, None)}
    for edits in range(min(len(old) + len(new), MAX_EDITS) + 1):
        for d in range(-edits, edits + 1, 2):
            if d == -edits or (d != edits and reached[d - 1][0] < reached[d + 1][0]):
                x, runs = reached[d + 1]
            else:
                x, runs = reached[d - 1][0] + 1, reached[d - 1][1]
            first = x
            while x < len(old) and x - d < len(new) and old[x] == new[x - d]:
                x += 1
            if x > first:
                runs = _Runs(runs, (first, first - d, x - first))
            if x >= len(old) and x - d >= len(new):
                return _in_order(runs)
            reached[d] = (x, runs)
    return []


class _Runs(NamedTuple):
    """A run and those before it, shared by all ways that go on from there."""

    earlier: "_Runs | None"
    run: tuple[int, int, int]


def _in_order(runs: _Runs | None) -> list[tuple[int, int, int]]:
    found = []
    while runs is not None:
        found.append(runs.run)
        runs = runs.earlier
    return found[::-1]


def _common_length(one: Lines, other: Lines) -> int:
    """Return how many lines both begin with."""
    pairs = zip(one, other, strict=False)
    return next((n for n, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))
