"""The difference between a unit and the text that is replacing it, while that text is still being written.

Owns the alignment: each new line extends it by one row of dynamic programming over the old lines. Pure data;
does not own colours, widths or the terminal.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

_ADD, _DELETE, _MATCH = 0, 1, 2
_WEAK_GAIN, _PLAIN_GAIN, _UNIQUE_GAIN = 2, 4, 16  # what a match of such a line is worth, in skipped lines


class Row(NamedTuple):
    """One row to draw: " " is in both texts, "-" only in the old, "+" only in the new, "@" heads a hunk."""

    tag: str
    text: str


@dataclass(frozen=True)
class Hunk:
    """One change with the lines around it. An empty side stands before its line `first`."""

    old_first: int  # line numbers of the file, from 1
    old_count: int
    new_first: int
    new_count: int
    rows: tuple[Row, ...]

    @property
    def rows_with_header(self) -> list[Row]:
        old, new = _span(self.old_first, self.old_count), _span(self.new_first, self.new_count)
        return [Row("@", f"@@ -{old} +{new} @@"), *self.rows]

    @property
    def new_text(self) -> str:
        """Return the lines of the new side, each closed by "\\n"."""
        return "".join(f"{row.text}\n" for row in self.rows if row.tag != "-")


class LiveDiff:
    """Feed complete new lines as they come, ask for `rows` at any time, `close` at the end.

    Old lines count as deleted only once the new text has passed them: the new lines so far are aligned with
    the prefix of the old ones that fits best. A line that is unique in the old text is strong evidence that
    the new text has reached it; a blank line or a lone brace is weak evidence. O(old lines) a new line, in
    time and in memory.
    """

    def __init__(
        self,
        old_lines: Sequence[str],
        first_line: int = 1,
        above: Sequence[str] = (),
        below: Sequence[str] = (),
    ) -> None:
        """`above` and `below` are the file's lines around the unit, for context in `hunks`."""
        self._old, self._new = list(old_lines), list[str]()
        self._first_line, self._above, self._below = first_line, list(above), list(below)
        self._gains = _gains(self._old)
        self._scores = [-j for j in range(len(self._old) + 1)]
        self._moves: list[bytearray] = []
        self._closed = False
        self._rows: list[Row] | None = None

    @property
    def old_lines(self) -> tuple[str, ...]:
        """Return the lines of the unit as it was."""
        return tuple(self._old)

    def new_lines(self, since: int = 0) -> tuple[str, ...]:
        """Return the lines that were fed so far, without the first `since` of them."""
        return tuple(self._new[since:])

    @property
    def first_line(self) -> int:
        """Return the number of the unit's first line in its file."""
        return self._first_line

    def feed(self, lines: Iterable[str]) -> None:
        """Add complete new lines, without line ends."""
        for line in lines:
            assert not self._closed
            self._new.append(line)
            self._align(line)
        self._rows = None

    def close(self) -> None:
        """End the text: old lines that did not come again are deleted."""
        self._closed, self._rows = True, None

    def rows(self, partial: str = "") -> list[Row]:
        """Return all rows so far. `partial`, the line in progress, is context while it may still match."""
        if self._rows is None:
            self._rows = self._trace(self._reached())
        if not partial:
            return list(self._rows)
        return [*self._rows, Row(" " if self._is_expected(partial) else "+", partial)]

    def hunks(self, context: int = 3) -> list[Hunk]:
        """Return the changes, with `context` lines around each and line numbers of the file."""
        self.close()
        above, below = self._above[max(0, len(self._above) - context) :], self._below[:context]
        rows = [Row(" ", line) for line in above] + self.rows() + [Row(" ", line) for line in below]
        start = self._first_line - len(above)
        return [_hunk(rows, first, last, start) for first, last in _ranges(rows, context)]

    def _align(self, line: str) -> None:
        """Compute score[j], the best of the new lines against old[:j]. A match gains, a skip costs 1."""
        before, gains, old = self._scores, self._gains, self._old
        best = before[0] - 1
        scores, moves = [best], bytearray(len(before))
        for j in range(1, len(before)):
            best, move = best - 1, _DELETE
            if before[j] - 1 >= best:
                best, move = before[j] - 1, _ADD
            if old[j - 1] == line and before[j - 1] + gains[j - 1] >= best:
                best, move = before[j - 1] + gains[j - 1], _MATCH
            scores.append(best)
            moves[j] = move
        self._scores = scores
        self._moves.append(moves)

    def _reached(self) -> int:
        """Return how many old lines the new text has passed: the best prefix, the shortest of several."""
        return len(self._old) if self._closed else self._scores.index(max(self._scores))

    def _trace(self, reached: int) -> list[Row]:
        """Follow the moves back. Within a change the deleted rows come before the added ones."""
        i, j = len(self._new), reached
        rows: list[Row] = []
        added: list[Row] = []
        deleted: list[Row] = []
        while i or j:
            move = _ADD if j == 0 else _DELETE if i == 0 else self._moves[i - 1][j]
            if move == _MATCH:
                rows += [*added, *deleted, Row(" ", self._old[j - 1])]
                added, deleted = [], []
            elif move == _ADD:
                added.append(Row("+", self._new[i - 1]))
            else:
                deleted.append(Row("-", self._old[j - 1]))
            i, j = i - (move != _DELETE), j - (move != _ADD)
        rows += [*added, *deleted]
        rows.reverse()
        return rows

    def _is_expected(self, partial: str) -> bool:
        """Return whether an old line that may come next begins with `partial`."""
        assert self._rows is not None
        added = 0
        while added < len(self._rows) and self._rows[-1 - added].tag == "+":
            added += 1
        reached = self._reached()
        return any(line.startswith(partial) for line in self._old[reached : reached + added + 1])


def _gains(old_lines: list[str]) -> list[int]:
    counts = Counter(old_lines)

    def gain(line: str) -> int:
        if sum(character.isalnum() for character in line) < 3:
            return _WEAK_GAIN
        return _UNIQUE_GAIN if counts[line] == 1 else _PLAIN_GAIN

    return [gain(line) for line in old_lines]


def _ranges(rows: list[Row], context: int) -> list[tuple[int, int]]:
    """Return index ranges [first, last) of the rows around changes, joined where they touch."""
    hunks: list[tuple[int, int]] = []
    for index, row in enumerate(rows):
        if row.tag == " ":
            continue
        first, last = max(0, index - context), min(len(rows), index + context + 1)
        if hunks and first <= hunks[-1][1]:
            hunks[-1] = (hunks[-1][0], last)
        else:
            hunks.append((first, last))
    return hunks


def _hunk(rows: list[Row], first: int, last: int, start: int) -> Hunk:
    before, inside = rows[:first], rows[first:last]
    return Hunk(
        old_first=start + sum(row.tag != "+" for row in before),
        old_count=sum(row.tag != "+" for row in inside),
        new_first=start + sum(row.tag != "-" for row in before),
        new_count=sum(row.tag != "-" for row in inside),
        rows=tuple(inside),
    )


def _span(line: int, count: int) -> str:
    """Return the span as diff(1) writes it: an empty one names the line before, a count of 1 is omitted."""
    if count == 1:
        return str(line)
    return f"{line - (count == 0)},{count}"
