"""Finds markers in text that comes in pieces, in linear time.

Owns white space, and how much of a text's end may be the beginning of a marker.
"""

import functools
import re

_SPACE = re.compile(r"[ \t\r\n]*")


def past_space(text: str, at: int) -> int:
    """Return the end of the white space at `at`."""
    found = _SPACE.match(text, at)
    return found.end() if found else at


def begun(text: str, at: int, markers: tuple[str, ...]) -> int:
    """Return the length of the longest suffix of `text[at:]` that is a prefix of a marker."""
    beginnings = _beginnings(markers)
    if not text.endswith(beginnings, at):  # nearly always, and asked for every token
        return 0
    return next(len(beginning) for beginning in beginnings if text.endswith(beginning, at))


@functools.cache
def _beginnings(markers: tuple[str, ...]) -> tuple[str, ...]:
    """Return all proper prefixes of the markers, the longest first."""
    found = {marker[:length] for marker in markers for length in range(1, len(marker))}
    return tuple(sorted(found, key=len, reverse=True))


def is_begun(text: str, at: int, *markers: str) -> bool:
    """Return whether `text[at:]` is a proper prefix of a marker."""
    rest = text[at : at + max(map(len, markers))]
    return any(len(rest) < len(marker) and marker.startswith(rest) for marker in markers)
