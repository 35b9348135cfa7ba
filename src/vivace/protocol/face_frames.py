"""The bytes between the server and the face host: whole messages on a Unix socket, each behind its length.

Owns the framing and the size that a message may have. Does no I/O. Does not own what messages mean: the first
one of a connection is the server's `Arrival`, all others are a face's own and pass through the server unread.
"""

import struct

import msgspec

MAX_FRAME_BYTES = 64 * 1024 * 1024
HEAD_BYTES = 4
_HEAD = struct.Struct(">I")


class Arrival(msgspec.Struct, frozen=True):
    """A face has come; what the server knows of it."""

    folder: str = ""  # that it is to open with; "": not said


class BadFrame(Exception):
    """The other side sent what cannot be a message of ours."""


def framed(message: bytes) -> bytes:
    """Return a message behind its length."""
    return _HEAD.pack(len(message)) + message


def length_of(head: bytes) -> int:
    """Return how many bytes follow."""
    length: int = _HEAD.unpack(head)[0]
    if length > MAX_FRAME_BYTES:
        raise BadFrame(f"a message of {length} bytes")
    return length
