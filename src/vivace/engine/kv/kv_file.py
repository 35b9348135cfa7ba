"""One file of parked KV: what is in it, how it is written and read.

    header (magic, number of tokens, bytes of the state, checksum), tokens, state

A file is written under a temporary name and renamed when complete. Owns the format. Does not own which files
there are (`parked_cache`).
"""

import contextlib
import os
import secrets
import struct
import zlib
from array import array
from collections.abc import Callable, Iterable
from pathlib import Path

from vivace.engine.runners.base import HeldKV, KVState

_HEADER = struct.Struct("<8sQQI")  # magic, tokens, bytes of state, checksum
_MAGIC = b"vivakv1\n"
PART = ".part"  # an incomplete file ends with this

Allocate = Callable[[int], HeldKV]  # memory for a state of this many bytes


def size_of(state: KVState) -> int:
    return len(state) if isinstance(state, bytes) else state.size_bytes


def file_size(tokens: int, state_bytes: int) -> int:
    return _HEADER.size + 4 * tokens + state_bytes


def write_file(path: Path, tokens: "array[int]", state: KVState, used: float) -> None:
    """Write a file whose time is `used`, which tells the next engine. Raise OSError and leave nothing."""
    fresh = path.with_name(f"{path.name}.{secrets.token_hex(4)}{PART}")
    try:
        path.parent.mkdir(exist_ok=True, mode=0o700)
        with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            head = tokens.tobytes()
            file.write(bytes(_HEADER.size))
            file.write(head)
            checksum = zlib.crc32(head)
            for piece in _pieces(state):
                checksum = zlib.crc32(piece, checksum)
                file.write(piece)
            file.seek(0)
            file.write(_HEADER.pack(_MAGIC, len(tokens), size_of(state), checksum))
        os.utime(fresh, (used, used))
        fresh.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            fresh.unlink(missing_ok=True)
        raise


def read_file(path: Path, tokens: "array[int]", allocate: Allocate | None) -> KVState | None:
    """Return the state, or None if the file is not as it was written. Raise OSError if it is gone."""
    head = tokens.tobytes()
    with path.open("rb") as file:
        header = file.read(_HEADER.size)
        if len(header) < _HEADER.size or file.read(len(head)) != head:
            return None
        magic, count, size, checksum = _HEADER.unpack(header)
        is_whole = os.fstat(file.fileno()).st_size == file_size(count, size)
        if magic != _MAGIC or count != len(tokens) or not is_whole:
            return None
        if allocate is None:
            plain = file.read()
            return plain if zlib.crc32(plain, zlib.crc32(head)) == checksum else None
        return _read_into(allocate(size), file.readinto, zlib.crc32(head), checksum)


def read_tokens(file: Path) -> "array[int] | None":
    """Return the tokens whose KV a file holds, or None if it is no such file."""
    with file.open("rb") as opened:
        header = opened.read(_HEADER.size)
        if len(header) < _HEADER.size:
            return None
        magic, count, size, _ = _HEADER.unpack(header)
        if magic != _MAGIC or file.stat().st_size != file_size(count, size):
            return None
        tokens = array("i")
        tokens.frombytes(opened.read(4 * count))
    return tokens


def _read_into(
    held: HeldKV, read: Callable[[memoryview], int], checksum: int, expected: int
) -> HeldKV | None:
    try:
        for piece in held.pieces():
            if read(piece) != len(piece):
                break
            checksum = zlib.crc32(piece, checksum)
    except BaseException:
        held.free()
        raise
    if checksum == expected:
        return held
    held.free()
    return None


def _pieces(state: KVState) -> Iterable[bytes | memoryview]:
    return [state] if isinstance(state, bytes) else state.pieces()
