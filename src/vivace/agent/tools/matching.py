"""Where a text stands in a file, though the model may not have copied it exactly.

Owns the three ways, tried in this order: exact; up to white space; alike enough, if nothing else in the file
is. Each must find one place only. What was found, or why nothing was, is said exactly. Does not change
anything (`edit`).
"""

import difflib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from vivace.errors import EditRejected

How = Literal["exact", "white space", "alike"]
LEAST_ALIKE = 0.86  # below this, a place is only shown, not taken
LEAST_LEAD = 0.06  # over the second best place
MAX_COMPARED_CHARS = (
    4_000_000  # lines of the file times characters of the text: above, no search for likeness
)
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
    places, at = [], text.find(wanted)
    while at >= 0:
        places.append(_exact(text, at, at + len(wanted)))
        at = text.find(wanted, at + len(wanted))
    return places


def _exact(text: str, start: int, end: int) -> Match:
    """Return where the characters `start` to `end` of the text are. A final newline belongs to its line."""
    first = text.count("\n", 0, start) + 1
    inner = text[start:end].removesuffix("\n")
    last = first + inner.count("\n")
    column = start - (text.rfind("\n", 0, start) + 1)
    stop = start + len(inner)
    return Match(first, last, "exact", column, stop - (text.rfind("\n", 0, stop) + 1))


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
    squeezed = [_squeezed(line) for line in lines]
    size = len(wanted)
    starts = [at for at in range(len(lines) - size + 1) if squeezed[at : at + size] == wanted]
    return [Match(at + 1, at + size, "white space") for at in starts]


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
    near = "\n".join(lines[at : at + len(block)])
    why = f"The nearest, at line {at + 1}, is {likeness:.0%} alike"
    if likeness >= LEAST_ALIKE:
        why += ", but another place is nearly as near"
    diff = "\n".join(difflib.ndiff(text.split("\n"), near.split("\n")))
    raise EditRejected(f"The text is not in the file. {why}:\n{diff}", "Copy the lines exactly as they are.")


def _ranked(lines: Sequence[str], block: list[str]) -> list[tuple[float, int]]:
    """Return how alike each place of as many lines is, the likeliest first."""
    text = "\n".join(map(_squeezed, block))
    matcher = difflib.SequenceMatcher(None, autojunk=False)
    matcher.set_seq2(text)
    found = []
    squeezed = [_squeezed(line) for line in lines]
    for at in range(max(1, len(lines) - len(block) + 1)):
        matcher.set_seq1("\n".join(squeezed[at : at + len(block)]))
        if matcher.real_quick_ratio() > 0.4 and matcher.quick_ratio() > 0.4:
            found.append((matcher.ratio(), at))
    return sorted(found, key=lambda each: (-each[0], each[1]))


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
