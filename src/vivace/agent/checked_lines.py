"""Lines of JSON with a checksum, so that a line that a disk or a cable has changed is noticed.

Owns the form: the last field of the object is `"crc"`, the CRC-32 of all that stands before its
digits, of which it has eight. Lines of before have none and are read as they are. Does not own what the lines
mean.
"""

from typing import Literal
from zlib import crc32

_FIELD = b',"crc":"'
_LAST = b'"}\n'
_END = 8 + len(_LAST)  # bytes of the digits and what follows them
_SIZE = len(_FIELD) + _END

Seal = Literal["whole", "none", "broken"]


def sealed(line: bytes) -> bytes:
    """Return an object of JSON, which has a field at least, as a line with its checksum."""
    begun = line[:-1] + _FIELD
    return b"%b%08x%b" % (begun, crc32(begun), _LAST)


def is_whole(line: bytes) -> bool:
    """Return whether the line ends with its own checksum."""
    return line[-_END:] == b"%08x%b" % (crc32(line[:-_END]), _LAST)


def seal_of(line: bytes) -> Seal:
    """Return whether the line has its checksum, has none, or has one that is not its own."""
    if is_whole(line):
        return "whole"
    around = line[-_SIZE:-_END] + line[-len(_LAST) :]  # without the checksum itself
    same = sum(a == b for a, b in zip(around, _FIELD + _LAST, strict=False))
    return "broken" if same >= len(_FIELD + _LAST) - 3 else "none"  # three letters may have changed, too


def last_newline(data: bytes) -> tuple[int, bool]:
    """Return how many bytes of a file's lines are whole, and whether a newline is to follow them.

    A crash cuts off what has no checksum at its end. If all but the last byte has one, that was the newline.
    """
    whole = data.rfind(b"\n") + 1
    is_newline_lost = whole < len(data) - 1 and seal_of(data[whole:-1] + b"\n") != "none"
    return (len(data) - 1, True) if is_newline_lost else (whole, False)
