"""Requests that are too large, refused before millions of small things are made of them.

Owns how much a field that may hold anything, and a request as a whole, may hold. A text may be as long as
the body: it is one thing. Does not parse: it looks at bytes, in linear time.
"""

import re
from typing import Any

import msgspec

from vivace.protocol.shapes.refusal import Refusal

MAX_FIELD_BYTES = 1024 * 1024  # of what is not text
MAX_PIECES = 300_000  # strings, objects and arrays; ten thousand items that are calls have two thirds of it
STRETCH = 4096  # what one look at a string takes of it, in escapes: other threads run in between
COUNTED = 256 * 1024  # bytes, some 0.2 ms, for the same reason


def string_pattern(stretch: int) -> re.Pattern[bytes]:
    """Return a pattern for a string after its opening quote, or for the beginning of a long one."""
    return re.compile(rb'(?:[^"\\]+|\\.){0,%d}("?)' % stretch, re.DOTALL)


_OPENING = re.compile(rb'[{\["]')
_STRING = string_pattern(STRETCH)


def check_fields(sized: msgspec.Struct) -> None:
    """Raise a `Refusal` for a field that is too large. All fields of `sized` are `Raw`."""
    for name in sized.__struct_fields__:
        value: Any = getattr(sized, name)
        if len(memoryview(value)) > MAX_FIELD_BYTES:
            raise _too_large(f"{name} has more than {MAX_FIELD_BYTES} bytes.", name)


def check_pieces(data: bytes | str) -> None:
    """Raise a `Refusal` for JSON that has too many values."""
    marks = data.encode(errors="replace") if isinstance(data, str) else data
    if _may_have_too_many(marks) and _has_too_many(marks):
        raise _too_large(f"A request has at most {MAX_PIECES} strings, objects and arrays.", None)


def _may_have_too_many(data: bytes) -> bool:
    """Count those in texts, too: ten times quicker, and enough for most of what is large."""
    twice = 0
    for start in range(0, len(data), COUNTED):
        part = data[start : start + COUNTED]
        twice += 2 * part.count(b"{") + 2 * part.count(b"[") + part.count(b'"')
        if twice > 2 * MAX_PIECES:
            return True
    return False


def _has_too_many(data: bytes) -> bool:
    place = 0
    for _ in range(MAX_PIECES):
        opening = _OPENING.search(data, place)
        if opening is None:
            return False
        place = opening.end()
        if opening[0] == b'"':
            place = _end_of_string(data, place)
    return _OPENING.search(data, place) is not None


def _end_of_string(data: bytes, place: int) -> int:
    """Return where the open string ends; the end of all if it never does."""
    while stretch := _STRING.match(data, place):
        if stretch[1]:
            return stretch.end()
        if stretch.end() == place:
            break
        place = stretch.end()
    return len(data)


def _too_large(message: str, param: str | None) -> Refusal:
    return Refusal(message, code="request_too_large", status=413, param=param)
