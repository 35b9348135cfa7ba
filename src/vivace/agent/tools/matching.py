"""Where a text stands in a file, though the model may not have copied it exactly.

Owns the three ways, tried in this order: exact; up to white space; alike enough, if nothing else in the file
is. Each must find one place only. What was found, or why nothing was, is said exactly. Does not change
anything (`edit`).
"""

import difflib
import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Literal

from vivace.errors import EditRejected

How = Literal["exact", "white space", "alike"]
LEAST_ALIKE = 0.86  # below this, a place is only shown, not taken
LEAST_LEAD = 0.06  # over the second best place
MAX_COMPARED_CHARS = (
    4_000_000  # lines of the file times characters of the text: above, no search for likeness
)
LEAST_COMPARED = 0.4
MAX_STEPS = 20_000_000  # of comparing letters, in one search: some seconds
MAX_DIFF_CHARS = 250_000  # characters of one text times those of the other
SHOWN_PLACES = 5


@dataclass(frozen=True)
class Match:
    first_line: int  # from 1
    last_line: int  # this one included
    how: How
    column: int = 0  # of an exact match: where it begins in its first line
    end_column: int = 0  # and ends in its last
    likeness: float = 1.0

    @property
    def in_words(self) -> str:
        lines = (
            f"line {self.first_line}"
            if self.first_line == self.last_line
            else f"lines {self.first_line}-{self.last_line}"
        )
        if self.how == "exact":
            return f"found exactly, at {lines}"
        if self.how == "white space":
            return f"found at {lines}, with other white space"
        return f"not found exactly; {lines} are {self.likeness:.0%} alike, and nothing else is"


def find(lines: Sequence[str], wanted: str) -> Match:
    """Return the one place of `wanted` in the lines of a file. Raise EditRejected if there is not one."""
    if exact := find_exact(lines, wanted):
        return _only(exact, "exactly")
    block = wanted.strip("\n").split("\n")
    loose = _find_loose(lines, block)
    return _only(loose, "up to white space") if loose else _alike(lines, block)


def find_exact(lines: Sequence[str], wanted: str) -> list[Match]:
    """Return every place where the text stands as it is, without overlap."""
    text = "".join(f"{line}\n" for line in lines)
    starts = list(accumulate((len(line) + 1 for line in lines), initial=0))
    places, at = [], text.find(wanted)
    while at >= 0 and wanted:
        places.append(_exact(starts, at, at + len(wanted.removesuffix("\n"))))
        at = text.find(wanted, at + len(wanted))
    return places


def _exact(starts: list[int], start: int, stop: int) -> Match:
    """Return where the characters `start` to `stop` of the file are. A final newline belongs to its line."""
    first, last = bisect_right(starts, start), bisect_right(starts, stop)
    return Match(first, last, "exact", start - starts[first - 1], stop - starts[last - 1])


def _only(places: list[Match], how: str) -> Match:
    if len(places) == 1:
        return places[0]
    shown = ", ".join(str(place.first_line) for place in places[:SHOWN_PLACES])
    more = f" and {len(places) - SHOWN_PLACES} more" if len(places) > SHOWN_PLACES else ""
    raise EditRejected(
        f"The text stands {len(places)} times in the file, {how}: at lines {shown}{more}.",
        "Give more lines around it, so that it is only one, or set replace_all.",
    )


def _find_loose(lines: Sequence[str], block: list[str]) -> list[Match]:
    """Return the places whose lines are the same but for white space."""
    wanted = [_squeezed(line) for line in block]
    if not any(wanted):
        return []
    size = len(wanted)
    starts = starts_of(wanted, [_squeezed(line) for line in lines])
    return [Match(at + 1, at + size, "white space") for at in starts]


def starts_of(wanted: list[str], lines: list[str]) -> list[int]:
    """Return where the wanted lines begin, overlapping too; each line is looked at twice (KMP)."""
    borders, found, same = [0], [], 0
    for at, line in enumerate([*wanted[1:], "\n", *lines], 1):  # no line is a newline
        while same and (same == len(wanted) or wanted[same] != line):
            same = borders[same - 1]
        same += wanted[same] == line
        borders.append(same)
        if same == len(wanted):
            found.append(at - 2 * len(wanted))
    return found


def _squeezed(line: str) -> str:
    return re.sub(r"\s+", " ", line).strip()


def _alike(lines: Sequence[str], block: list[str]) -> Match:
    """Return the one place that is alike enough. Raise EditRejected with the nearest one otherwise."""
    text = "\n".join(block)
    if not text.strip():
        raise EditRejected("The text to be replaced is empty.", "Copy the lines that shall change.")
    ranked = _ranked(lines, block) if len(lines) * len(text) <= MAX_COMPARED_CHARS else []
    if not ranked:
        raise EditRejected("The text is not in the file.", "Read the file again and copy the lines exactly.")
    likeness, at = ranked[0]
    second = max((each for each, other in ranked[1:] if abs(other - at) >= len(block)), default=0.0)
    if likeness >= LEAST_ALIKE and likeness - second >= LEAST_LEAD:
        return Match(at + 1, at + len(block), "alike", likeness=likeness)
    why = f"The nearest, at line {at + 1}, is {likeness:.0%} alike"
    if likeness >= LEAST_ALIKE:
        why += ", but another place is nearly as near"
    diff = _diff(block, lines[at : at + len(block)])
    raise EditRejected(f"The text is not in the file. {why}:\n{diff}", "Copy the lines exactly as they are.")


def _diff(block: Sequence[str], near: Sequence[str]) -> str:
    """Return how the two differ; line by line where a diff of all would take long."""
    if sum(map(len, block)) * sum(map(len, near)) <= MAX_DIFF_CHARS:
        return "\n".join(difflib.ndiff(block, near))
    pairs = zip(block, near, strict=False)
    return "\n".join(f"  {a}" if a == b else f"- {a}\n+ {b}" for a, b in pairs)


def _ranked(lines: Sequence[str], block: list[str]) -> list[tuple[float, int]]:
    """Return how alike places of as many lines are, the likeliest first.

    If that takes too long, what was found is shown, but not taken: another place may be as near.
    Places that can be neither the likeliest nor so near to it that it is not taken are not compared.
    """
    matcher = _CountingMatcher("\n".join(map(_squeezed, block)))
    squeezed = [_squeezed(line) for line in lines]
    ends = list(accumulate((len(line) + 1 for line in squeezed), initial=0))
    bounds = []
    for at in range(max(1, len(lines) - len(block) + 1)):
        end = min(at + len(block), len(lines))
        if matcher.most_alike(ends[end] - ends[at] - 1) > LEAST_COMPARED:
            matcher.compare_to("\n".join(squeezed[at:end]))
            bounds.append((matcher.quick_ratio(), at))
    found: list[tuple[float, int]] = []
    best = 0.0
    try:
        for bound, at in sorted(bounds, key=lambda each: (-each[0], each[1])):
            if bound <= max(LEAST_COMPARED, best - LEAST_LEAD):
                break
            matcher.compare_to("\n".join(squeezed[at : at + len(block)]))
            found.append((matcher.ratio(), at))
            best = max(best, found[-1][0])
    except _TooMuchWork:
        found += [(each, at + 2 * len(block)) for each, at in found[:1]]
    return sorted(found, key=lambda each: (-each[0], each[1]))


class _TooMuchWork(Exception):
    pass


class _CountingMatcher(difflib.SequenceMatcher[str]):
    """Compares texts with one text, and stops when all comparisons together took too many steps."""

    def __init__(self, text: str) -> None:
        super().__init__(None, autojunk=False)
        self.set_seq2(text)
        self._counts = Counter(text)
        self._compared = ""
        self._left = MAX_STEPS
        self._size = len(text)

    def compare_to(self, text: str) -> None:
        self._compared = text
        self.set_seq1(text)

    def most_alike(self, size: int) -> float:
        """Return how alike a text of this size can be at most."""
        return 2.0 * min(size, self._size) / max(1, size + self._size)

    def find_longest_match(
        self, alo: int = 0, ahi: int | None = None, blo: int = 0, bhi: int | None = None
    ) -> difflib.Match:
        part = self._compared[alo:ahi]
        self._left -= sum(part.count(letter) * count for letter, count in self._counts.items())
        if self._left < 0:
            raise _TooMuchWork
        return super().find_longest_match(alo, ahi, blo, bhi)


def reindented(new: str, old_line: str, found_line: str) -> str:
    """Return the new text moved by as much as the model's copy was off from the file."""
    given, real = _indent(old_line), _indent(found_line)
    if given == real:
        return new
    moved = []
    for line in new.split("\n"):
        if not line.strip():
            moved.append("")
        elif line.startswith(given):
            moved.append(real + line[len(given) :])
        else:
            moved.append(line)
    return "\n".join(moved)


def _indent(line: str) -> str:
    return line[: len(line) - len(line.lstrip())]
