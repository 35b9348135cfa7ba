"""One file of parked KV: what is in it, how it is written and read.

    header (magic, number of tokens, bytes of the state, number of checkpoints, checksum),
    a row for each checkpoint (its length, its bytes, their checksum), tokens, state, checkpoints

The state is of all tokens; a checkpoint is what of the model's memory cannot be cut, at an earlier length. A
file is written under a temporary name and renamed when complete. Owns the format. Does not own which files
there are (`parked_cache`).
"""

import contextlib
import os
import secrets
import struct
import zlib
from array import array
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import BinaryIO, NamedTuple

from vivace.engine.runners.base import Checkpoint, HeldKV, KVState, SavedKV

_HEADER = struct.Struct("<8sQQQI")  # magic, tokens, bytes of state, checkpoints, checksum
_ROW = struct.Struct("<QQI")  # a checkpoint's length, bytes, checksum
_MAGIC = b"vivakv2\n"
PART = ".part"  # an incomplete file ends with this

Allocate = Callable[[int], HeldKV]  # memory for a state of this many bytes


def size_of(state: KVState) -> int:
    return len(state) if isinstance(state, bytes) else state.size_bytes


def file_size(tokens: int, state_bytes: int, checkpoints: Sequence[int] = ()) -> int:
    """Return the size of a file; `checkpoints` are their bytes."""
    return _HEADER.size + _ROW.size * len(checkpoints) + 4 * tokens + state_bytes + sum(checkpoints)


class Head(NamedTuple):
    """What a file holds: the KV of these tokens, and checkpoints at these lengths of them."""

    tokens: "array[int]"
    lengths: tuple[int, ...]


def write_file(path: Path, tokens: "array[int]", saved: SavedKV, used: float) -> None:
    """Write a file whose time is `used`, which tells the next engine. Raise OSError and leave nothing."""
    fresh = path.with_name(f"{path.name}.{secrets.token_hex(4)}{PART}")
    try:
        path.parent.mkdir(exist_ok=True, mode=0o700)
        with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            state, checkpoints = saved
            head = b"".join(_ROW.pack(at, len(kept), zlib.crc32(kept)) for at, kept in checkpoints)
            head += tokens.tobytes()
            file.write(bytes(_HEADER.size))
            file.write(head)
            checksum = zlib.crc32(head)
            for piece in _pieces(state):
                checksum = zlib.crc32(piece, checksum)
                file.write(piece)
            for checkpoint in checkpoints:
                file.write(checkpoint.state)
            file.seek(0)
            file.write(_HEADER.pack(_MAGIC, len(tokens), size_of(state), len(checkpoints), checksum))
        os.utime(fresh, (used, used))
        fresh.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            fresh.unlink(missing_ok=True)
        raise


def read_file(path: Path, tokens: "array[int]", allocate: Allocate | None) -> SavedKV | None:
    """Return what a file holds, or None if it is not as it was written. Raise OSError if it is gone.

    A damaged checkpoint is left out.
    """
    with path.open("rb") as file:
        found = _read_head(file)
        if found is None or found.head.tokens != tokens:
            return None
        state: KVState | None
        if allocate is None:
            plain = file.read(found.state_bytes)
            state = plain if zlib.crc32(plain, found.head_checksum) == found.checksum else None
        else:
            held = allocate(found.state_bytes)
            state = _read_into(held, file.readinto, found.head_checksum, found.checksum)
        if state is None:
            return None
        kept = [(length, file.read(size), checksum) for length, size, checksum in found.rows]
    intact = (Checkpoint(length, read) for length, read, checksum in kept if zlib.crc32(read) == checksum)
    return SavedKV(state, tuple(intact))


def read_head(path: Path) -> Head | None:
    """Return what a file holds, or None if it is no such file."""
    with path.open("rb") as file:
        found = _read_head(file)
    return found.head if found else None


class _FoundHead(NamedTuple):
    head: Head
    state_bytes: int
    rows: list[tuple[int, int, int]]
    head_checksum: int
    checksum: int  # of the head and the state


def _read_head(file: BinaryIO) -> _FoundHead | None:
    header, size = file.read(_HEADER.size), os.fstat(file.fileno()).st_size
    if len(header) < _HEADER.size:
        return None
    magic, count, state_bytes, checkpoints, checksum = _HEADER.unpack(header)
    if magic != _MAGIC or size < file_size(count, state_bytes) + _ROW.size * checkpoints:
        return None
    rows, packed = file.read(_ROW.size * checkpoints), file.read(4 * count)
    table = list(_ROW.iter_unpack(rows))
    if size != file_size(count, state_bytes, [each[1] for each in table]):
        return None
    tokens = array("i")
    tokens.frombytes(packed)
    lengths = tuple(each[0] for each in table)
    return _FoundHead(Head(tokens, lengths), state_bytes, table, zlib.crc32(rows + packed), checksum)


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
