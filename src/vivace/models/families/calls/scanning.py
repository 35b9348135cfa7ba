"""Looking for markers in text that comes in pieces: nothing here looks at a character twice without need.

Owns white space, and how much of a text's end may be the beginning of a marker.
"""

import functools
import re

_SPACE = re.compile(r"[ \t\r\n]*")


def past_space(text: str, at: int) -> int:
    """Where the white space that begins at `at` ends."""
    found = _SPACE.match(text, at)
    return found.end() if found else at


def begun(text: str, at: int, markers: tuple[str, ...]) -> int:
    """Length of the longest end of `text` from `at` on that a marker begins with."""
    beginnings = _beginnings(markers)
    if not text.endswith(beginnings, at):  # nearly always, and asked for every token
        return 0
    return next(len(beginning) for beginning in beginnings if text.endswith(beginning, at))


@functools.cache
def _beginnings(markers: tuple[str, ...]) -> tuple[str, ...]:
    """Of all markers, the longest first; no whole one."""
    found = {marker[:length] for marker in markers for length in range(1, len(marker))}
    return tuple(sorted(found, key=len, reverse=True))


def is_begun(text: str, at: int, *markers: str) -> bool:
    """Whether the text from `at` on is the beginning of a marker, and no more."""
    rest = text[at : at + max(map(len, markers))]
    return any(len(rest) < len(marker) and marker.startswith(rest) for marker in markers)
