"""How much of a file was changed, and whether all of it was where it should be.

Owns the counting of lines. A span has the lines of a unit before the edit, counted from 0, without its end;
an empty one is a place where something may be added.
"""

from collections.abc import Iterable
from difflib import SequenceMatcher

Span = tuple[int, int]


def lines_changed(before: str, after: str) -> int:
    """Return how many lines a diff removes and adds."""
    old, new = before.splitlines(), after.splitlines()
    codes = SequenceMatcher(None, old, new, autojunk=False).get_opcodes()
    return sum(i2 - i1 + j2 - j1 for kind, i1, i2, j1, j2 in codes if kind != "equal")


def lines_outside(before: str, after: str, spans: Iterable[Span]) -> int:
    """Return how many lines outside of all spans were changed; at least 1 if any was."""
    if not (spans := sorted(spans)):
        return lines_changed(before, after)
    pieces = _outside(before.splitlines(), spans)
    new = after.splitlines()
    if _are_in_place(pieces, new):
        return 0
    kept = [line for piece in pieces for line in piece]
    blocks = SequenceMatcher(None, kept, new, autojunk=False).get_matching_blocks()
    return max(1, len(kept) - sum(block.size for block in blocks))


def _outside(old: list[str], spans: list[Span]) -> list[list[str]]:
    """Return the lines before, between and behind the spans: one piece more than there are spans apart."""
    pieces, end = [old[: spans[0][0]]], spans[0][1]
    for first, last in spans[1:]:
        if first >= end:
            pieces.append(old[end:first])
        end = max(end, last)
    return [*pieces, old[end:]]


def _are_in_place(pieces: list[list[str]], new: list[str]) -> bool:
    """Return whether `new` begins with the first piece, ends with the last, and has the others in order."""
    head, *middle, tail = pieces
    start, end = len(head), len(new) - len(tail)
    if start > end or new[:start] != head or new[end:] != tail:
        return False
    for piece in middle:
        places = range(start, end - len(piece) + 1)
        if (found := next((at for at in places if new[at : at + len(piece)] == piece), None)) is None:
            return False
        start = found + len(piece)
    return True
