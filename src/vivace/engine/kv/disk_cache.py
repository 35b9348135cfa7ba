"""KV on disk: parked sessions, and prefixes that many sessions share.

Owns the files: a folder for each KV format, in it one for each tenant, named by a salted hash, so that no
tenant can find another's KV. A thread writes each file under a temporary name and renames it when complete;
the least recently used files are deleted at the limit. A failure here costs a prefill, nothing else.
"""

import contextlib
import hashlib
import os
import secrets
import struct
import time
import zlib
from array import array
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from vivace.engine.common_length import common_length
from vivace.engine.faults import log_fault

_HEADER = struct.Struct("<8sQQI")  # magic, tokens, bytes of state, checksum; then the tokens, then the state
_MAGIC = b"vivakv1\n"
_SALT_BYTES = 32
MAX_UNWRITTEN_BYTES = 512 << 20  # states in the writer's queue; beyond this, parking waits for it
COVERED = 0.9  # a prefix is not kept if an existing one covers this share of it
STALE_S = 3600.0  # an incomplete file of this age has no writer any more


class ParkedKV:
    """One file: the tokens whose KV it holds."""

    def __init__(self, tenant: str, path: Path, tokens: "array[int]", size_bytes: int, used: float) -> None:
        self.tenant = tenant
        self.path = path
        self.tokens = tokens
        self.size_bytes = size_bytes
        self.used = used
        self.unwritten: bytes | None = None  # the state, until the disk has it
        self.is_deleted = False  # set by the engine, read by the writer
        self.is_lost = False  # set by the writer, read by the engine: it could not be written

    @property
    def is_prefix(self) -> bool:
        return self.path.suffix == ".prefix"


class PrefixMatch(NamedTuple):
    parked: ParkedKV
    length: int  # how many of the wanted tokens it begins with


class DiskCache:
    def __init__(self, folder: Path, *, kv_format: str, limit_bytes: int) -> None:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._limit_bytes = limit_bytes
        self._salt = _salt(folder)
        self._folder = folder / hashlib.blake2b(kv_format.encode(), digest_size=8).hexdigest()
        self._folder.mkdir(exist_ok=True, mode=0o700)
        self._sweep(folder)
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="disk-cache")
        self._writing: list[Future[None]] = []
        self._parked = self._read_index()
        self._make_room()

    @property
    def size_bytes(self) -> int:
        return sum(parked.size_bytes for parked in self._parked.values() if not parked.is_lost)

    def key(self, tenant: str) -> str:
        """Return the name of a tenant's folder, a salted hash."""
        return _digest(self._salt, b"tenant:" + tenant.encode())

    def park(
        self, tenant: str, tokens: Sequence[int], save: Callable[[], bytes], used: float | None = None
    ) -> None:
        """Write a session's KV, unless a longer file begins with it. Delete files that are a prefix of it.

        `used` is the time of the session's last turn; now, if it is not given.
        """
        packed = array("i", tokens)
        sessions = [parked for parked in self._files_of(tenant) if not parked.is_prefix]
        alike = [(parked, common_length(parked.tokens, packed)) for parked in sessions]
        for other, length in alike:
            if length == len(packed) < len(other.tokens):
                return self.touch(other)
        if self._put(tenant, packed, save, ".session", used):
            for other, length in alike:
                if length == len(other.tokens) < len(packed):
                    self._delete(other)
        return None

    def keep_prefix(self, tenant: str, tokens: Sequence[int], save: Callable[[], bytes]) -> None:
        packed = array("i", tokens)
        for other in self._files_of(tenant):
            if other.is_prefix and common_length(other.tokens, packed) >= COVERED * len(packed):
                return
        self._put(tenant, packed, save, ".prefix")

    def find(self, tenant: str, tokens: Sequence[int]) -> PrefixMatch | None:
        """Return the file with the longest prefix in common with `tokens`."""
        packed = array("i", tokens)
        found = [
            PrefixMatch(parked, common_length(parked.tokens, packed)) for parked in self._files_of(tenant)
        ]
        return max(found, key=lambda each: each.length, default=None)

    def prefixes(self) -> list[ParkedKV]:
        """Return the kept prefixes, the latest used first."""
        kept = [parked for parked in self._parked.values() if parked.is_prefix]
        return sorted(kept, key=lambda parked: -parked.used)

    def read(self, parked: ParkedKV, *, counts_as_use: bool = True) -> bytes | None:
        """Return the state, or None if the file is gone or is not as it was written."""
        if counts_as_use:
            self.touch(parked)
        if (state := parked.unwritten) is not None:
            return state
        tokens = parked.tokens.tobytes()
        try:
            with parked.path.open("rb") as file:
                header, held, state = file.read(_HEADER.size), file.read(len(tokens)), file.read()
        except OSError:
            header, held, state = b"", b"", b""
        if held == tokens and header == _header(tokens, state):
            return state
        self._delete(parked)
        return None

    def touch(self, parked: ParkedKV) -> None:
        """Record that a file was used, so that others are deleted before it."""
        parked.used = time.time()
        with contextlib.suppress(OSError):  # the file's time tells the next engine
            os.utime(parked.path)

    def flush(self) -> None:
        """Wait until the disk has everything."""
        for future in self._writing:
            future.result()
        self._writing.clear()

    def close(self) -> None:
        self.flush()
        self._writer.shutdown()

    def _files_of(self, tenant: str) -> list[ParkedKV]:
        return [parked for parked in self._parked.values() if parked.tenant == tenant and not parked.is_lost]

    def _put(
        self,
        tenant: str,
        packed: "array[int]",
        save: Callable[[], bytes],
        suffix: str,
        used: float | None = None,
    ) -> bool:
        """Return whether the file is there, or will be when it is written."""
        path = self._folder / tenant / (_digest(self._salt, packed.tobytes()) + suffix)
        if path in self._parked and not self._parked[path].is_lost:
            self.touch(self._parked[path])
            return True
        state = save()
        if len(state) > self._limit_bytes // 2:
            return False
        self._writing = [future for future in self._writing if not future.done()]
        waiting = sum(len(parked.unwritten or b"") for parked in self._parked.values())
        if waiting + len(state) > MAX_UNWRITTEN_BYTES:
            self.flush()
        size_bytes = len(state) + 4 * len(packed) + _HEADER.size
        parked = ParkedKV(tenant, path, packed, size_bytes, time.time() if used is None else used)
        parked.unwritten = state
        self._parked[path] = parked
        self._make_room()
        self._writing.append(self._writer.submit(_write, parked, state))
        return True

    def _make_room(self) -> None:
        for lost in [parked for parked in self._parked.values() if parked.is_lost]:
            del self._parked[lost.path]
        excess = self.size_bytes - self._limit_bytes
        for parked in sorted(self._parked.values(), key=lambda each: each.used):
            if excess <= 0:
                return
            excess -= parked.size_bytes
            self._delete(parked)

    def _delete(self, parked: ParkedKV) -> None:
        parked.is_deleted = True
        self._parked.pop(parked.path, None)
        with contextlib.suppress(OSError):
            parked.path.unlink(missing_ok=True)

    def _sweep(self, folder: Path) -> None:
        """Delete the oldest files until those of all models and versions together are within the limit."""
        files = []
        for file in folder.glob("*/*/*"):
            with contextlib.suppress(OSError):
                stat = file.stat()
                files.append((stat.st_mtime, stat.st_size, file))
        excess = sum(size for _, size, _ in files) - self._limit_bytes
        for _, size, file in sorted(files):
            if excess > 0:
                excess -= size
                with contextlib.suppress(OSError):
                    file.unlink()

    def _read_index(self) -> dict[Path, ParkedKV]:
        """Return the files that earlier engines left."""
        found = {}
        for file in sorted(self._folder.glob("*/*")):
            with contextlib.suppress(OSError):
                if file.suffix == ".part":
                    if time.time() - file.stat().st_mtime > STALE_S:
                        file.unlink(missing_ok=True)
                elif parked := _read_parked(file):
                    found[file] = parked
                else:
                    file.unlink(missing_ok=True)
        return found


def _write(parked: ParkedKV, state: bytes) -> None:
    """Write one file. Runs in the writer's thread."""
    fresh = parked.path.with_name(f"{parked.path.name}.{secrets.token_hex(4)}.part")
    try:
        parked.path.parent.mkdir(exist_ok=True, mode=0o700)
        with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            tokens = parked.tokens.tobytes()
            file.write(_header(tokens, state))
            file.write(tokens)
            file.write(state)
        os.utime(fresh, (parked.used, parked.used))  # the file's time tells the next engine
        fresh.replace(parked.path)
        if parked.is_deleted:
            parked.path.unlink(missing_ok=True)
    except Exception as error:  # noqa: BLE001 - the boundary of the thread: it logs, and the file is lost
        if not isinstance(error, OSError):  # the disk is full, or the folder is gone
            log_fault("KV could not be written", error)
        parked.is_lost = True
        with contextlib.suppress(OSError):
            fresh.unlink(missing_ok=True)
    parked.unwritten = None


def _read_parked(file: Path) -> ParkedKV | None:
    stat = file.stat()
    with file.open("rb") as opened:
        header = opened.read(_HEADER.size)
        if len(header) < _HEADER.size:
            return None
        magic, count, size, _ = _HEADER.unpack(header)
        if magic != _MAGIC or stat.st_size != _HEADER.size + 4 * count + size:
            return None
        tokens = array("i")
        tokens.frombytes(opened.read(4 * count))
    return ParkedKV(file.parent.name, file, tokens, stat.st_size, stat.st_mtime)


def _salt(folder: Path) -> bytes:
    """Return the folder's random salt, created once and readable by its owner only."""
    file, fresh = folder / "salt", folder / f"salt.{secrets.token_hex(4)}.part"
    if file.exists() and file.stat().st_size != _SALT_BYTES:
        file.unlink(missing_ok=True)
    if not file.exists():
        with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as opened:
            opened.write(secrets.token_bytes(_SALT_BYTES))
        with contextlib.suppress(FileExistsError):  # another engine was first
            os.link(fresh, file)
        fresh.unlink()
    return file.read_bytes()


def _header(tokens: bytes, state: bytes) -> bytes:
    return _HEADER.pack(_MAGIC, len(tokens) // 4, len(state), zlib.crc32(state, zlib.crc32(tokens)))


def _digest(salt: bytes, data: bytes) -> str:
    return hashlib.blake2b(data, key=salt, digest_size=16).hexdigest()
