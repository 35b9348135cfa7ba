"""Looking for markers in text that comes in pieces: nothing here looks at a character twice without need.

Owns white space, and how much of a text's end may be the beginning of a marker.
"""

import re

_SPACE = re.compile(r"[ \t\r\n]*")


def past_space(text: str, at: int) -> int:
    """Where the white space that begins at `at` ends."""
    found = _SPACE.match(text, at)
    return found.end() if found else at


def begun(text: str, at: int, markers: tuple[str, ...]) -> int:
    """Length of the longest end of `text` from `at` on that a marker begins with."""
    longest = max(map(len, markers), default=1) - 1
    for length in range(min(longest, len(text) - at), 0, -1):
        if any(marker.startswith(text[len(text) - length :]) for marker in markers if len(marker) > length):
            return length
    return 0


def is_begun(text: str, at: int, *markers: str) -> bool:
    """Whether the text from `at` on is the beginning of a marker, and no more."""
    rest = text[at : at + max(map(len, markers))]
    return any(len(rest) < len(marker) and marker.startswith(rest) for marker in markers)
