"""KV of sessions that were parked, and prefixes that many sessions share: in memory, on disk, or in both.

Owns the index and what leaves first. A state whose memory the runner owns (`HeldKV`) stays there until that
memory is full. A thread writes every state to disk, into a folder for each KV format, in it one for each
tenant, named by a salted hash, so that no tenant can find another's KV. The least recently used make room, in
memory and on disk. Several engines may share the folder: the limit is for all of their files. A failure here
costs a prefill, nothing else. Does not own the files' format (`kv_file`).
"""

import contextlib
import hashlib
import os
import secrets
import time
from array import array
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple, TypeVar

from vivace.engine.common_length import common_length
from vivace.engine.faults import log_fault
from vivace.engine.kv.kv_file import PART, Allocate, file_size, read_file, read_head, size_of, write_file
from vivace.engine.runners.base import Checkpoint, HeldKV, HostMemoryFull, KVState, SavedKV

T = TypeVar("T")

_SALT_BYTES = 32
MAX_UNWRITTEN_BYTES = 512 << 20  # states in the writer's queue; beyond this, parking waits for it
COVERED = 0.9  # a prefix is not kept if an existing one covers this share of it
CHECKPOINT_SHARE = 0.125  # of the limit, the most for the checkpoints of one session
STALE_S = 3600.0  # an incomplete file of this age has no writer any more


class ParkedKV:
    """One state: the tokens whose KV it holds, the lengths that it has checkpoints of, and where it is."""

    def __init__(
        self,
        tenant: str,
        path: Path,
        tokens: "array[int]",
        size_bytes: int,
        used: float,
        lengths: tuple[int, ...] = (),
    ) -> None:
        self.tenant = tenant
        self.path = path
        self.tokens = tokens
        self.size_bytes = size_bytes  # of its file
        self.used = used
        self.lengths = lengths
        self.state: KVState | None = None  # in memory
        self.checkpoints: tuple[Checkpoint, ...] = ()  # in memory
        self.is_on_disk = False  # set by the engine, read by the writer: its file shall be there
        self.is_lost = False  # set by the writer, read by the engine: its file could not be written
        self.is_writing = False

    @property
    def is_prefix(self) -> bool:
        return self.path.suffix == ".prefix"

    @property
    def has_file(self) -> bool:
        return self.is_on_disk and not self.is_lost

    @property
    def is_there(self) -> bool:
        return self.state is not None or self.has_file


class PrefixMatch(NamedTuple):
    parked: ParkedKV
    length: int  # how many of the wanted tokens it is good for
    common: int  # how many of them it begins with


class ParkedCache:
    """`allocate` gives memory of the runner's own for a state that is read from disk, if it has such.

    `can_cut` says whether a state is of use at any shorter length, or only at those of its checkpoints.
    """

    def __init__(
        self,
        folder: Path,
        *,
        kv_format: str,
        limit_bytes: int,
        allocate: Allocate | None = None,
        can_cut: bool = True,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._limit_bytes = limit_bytes
        self.checkpoint_bytes = int(limit_bytes * CHECKPOINT_SHARE)  # the most of one session
        self._allocate = allocate
        self._can_cut = can_cut
        self._salt = _salt(folder)
        self._folder = folder / hashlib.blake2b(kv_format.encode(), digest_size=8).hexdigest()
        self._folder.mkdir(exist_ok=True, mode=0o700)
        self._sweep(folder)
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="kv-files")
        self._writing: list[tuple[Future[None], ParkedKV]] = []
        self._parked: dict[Path, ParkedKV] = {}
        self._make_room()

    @property
    def disk_bytes(self) -> int:
        return sum(parked.size_bytes for parked in self._parked.values() if parked.has_file)

    def key(self, tenant: str) -> str:
        """Return the name of a tenant's folder, a salted hash."""
        return _digest(self._salt, b"tenant:" + tenant.encode())

    def park(
        self,
        tenant: str,
        tokens: Sequence[int],
        save: Callable[[], KVState],
        used: float | None = None,
        checkpoints: tuple[Checkpoint, ...] = (),
    ) -> None:
        """Keep a session's KV, unless a longer one begins with it. Delete those that are a prefix of it.

        `used` is the time of the session's last turn; now, if it is not given.
        """
        packed = array("i", tokens)
        sessions = [parked for parked in self._of(tenant) if not parked.is_prefix]
        alike = [(parked, common_length(parked.tokens, packed)) for parked in sessions]
        for other, length in alike:
            if length == len(packed) < len(other.tokens) and self._usable(other, length) == length:
                return self.touch(other)
        if self._put(tenant, packed, save, ".session", used, checkpoints):
            for other, length in alike:
                if length == len(other.tokens) < len(packed):
                    self._delete(other)
        return None

    def keep_prefix(
        self,
        tenant: str,
        tokens: Sequence[int],
        save: Callable[[], KVState],
        covered: float = COVERED,
        checkpoints: tuple[Checkpoint, ...] = (),
    ) -> None:
        """Keep what sessions begin with, unless a prefix that is there covers this share of it."""
        packed = array("i", tokens)
        for other in self._of(tenant):
            shared = common_length(other.tokens, packed)
            if other.is_prefix and self._usable(other, shared) >= covered * len(packed):
                return self.touch(other)
        self._put(tenant, packed, save, ".prefix", checkpoints=checkpoints)
        return None

    def find(self, tenant: str, tokens: Sequence[int]) -> PrefixMatch | None:
        """Return what is good for the longest prefix of `tokens`."""
        packed = array("i", tokens)
        found = []
        for parked in self._of(tenant):
            common = common_length(parked.tokens, packed)
            found.append(PrefixMatch(parked, self._usable(parked, common), common))
        return max(found, key=lambda each: (each.length, each.common), default=None)

    def _usable(self, parked: ParkedKV, common: int) -> int:
        """Return the longest prefix that a state can go on from, of those no longer than `common`."""
        if self._can_cut or common == len(parked.tokens):
            return common
        return max((length for length in parked.lengths if length <= common), default=0)

    def prefixes(self) -> list[ParkedKV]:
        """Return the kept prefixes, the latest used first."""
        kept = [parked for parked in self._parked.values() if parked.is_prefix]
        return sorted(kept, key=lambda parked: -parked.used)

    def read(self, parked: ParkedKV, *, counts_as_use: bool = True) -> SavedKV | None:
        """Return what is kept, or None if its file is gone or is not as it was written."""
        if counts_as_use:
            self.touch(parked)
        if parked.state is not None:
            return SavedKV(parked.state, parked.checkpoints)
        saved = None
        try:
            saved = self._with_memory(lambda: read_file(parked.path, parked.tokens, self._allocate))
        except HostMemoryFull:
            return None  # the file is as good as before
        except (OSError, ValueError):
            pass
        if saved is None:
            self._delete(parked)
        elif isinstance(saved.state, HeldKV):
            parked.state, parked.checkpoints = saved
        return saved

    def touch(self, parked: ParkedKV) -> None:
        """Record that a state was used, so that others are deleted before it."""
        parked.used = time.time()
        with contextlib.suppress(OSError):  # the file's time tells other engines
            os.utime(parked.path, (parked.used, parked.used))

    def flush(self) -> None:
        """Wait until the disk has everything."""
        for future, _ in self._writing:
            future.result()
        self._make_room()

    def close(self) -> None:
        self.flush()
        self._writer.shutdown()

    def _of(self, tenant: str) -> list[ParkedKV]:
        return [parked for parked in self._parked.values() if parked.tenant == tenant and parked.is_there]

    def _put(
        self,
        tenant: str,
        packed: "array[int]",
        save: Callable[[], KVState],
        suffix: str,
        used: float | None = None,
        checkpoints: tuple[Checkpoint, ...] = (),
    ) -> bool:
        """Return whether the state is kept."""
        path = self._folder / tenant / (_digest(self._salt, packed.tobytes()) + suffix)
        if path in self._parked and self._parked[path].is_there:
            self.touch(self._parked[path])
            return True
        self._count_written()
        try:
            state = self._with_memory(save)
        except HostMemoryFull:
            return False
        sizes, lengths = [len(each.state) for each in checkpoints], tuple(each.length for each in checkpoints)
        size_bytes = file_size(len(packed), size_of(state), sizes)
        parked = ParkedKV(tenant, path, packed, size_bytes, time.time() if used is None else used, lengths)
        parked.state, parked.checkpoints = state, checkpoints
        parked.is_on_disk = size_of(state) <= self._limit_bytes // 2
        if not parked.is_on_disk and isinstance(state, bytes):
            return False
        self._wait_for_writer(parked)
        self._parked[path] = parked
        if parked.is_on_disk:
            parked.is_writing = True
            self._writing.append((self._writer.submit(_write, parked, SavedKV(state, checkpoints)), parked))
        self._make_room()
        return True

    def _wait_for_writer(self, parked: ParkedKV) -> None:
        """Wait where too much is unwritten in memory that only the writer can free."""
        waiting = sum(each.size_bytes for _, each in self._writing if isinstance(each.state, bytes))
        if isinstance(parked.state, bytes) and waiting + parked.size_bytes > MAX_UNWRITTEN_BYTES:
            self.flush()

    def _with_memory(self, work: Callable[[], T]) -> T:
        """Return what `work` returns. As long as it finds no memory, drop the least recently used state."""
        while True:
            try:
                return work()
            except HostMemoryFull:
                self._count_written()
                held = [each for each in self._parked.values() if isinstance(each.state, HeldKV)]
                free = [each for each in held if not each.is_writing]
                if not free:
                    raise
                oldest = min(free, key=lambda each: each.used)
                self._drop_state(oldest)
                if not oldest.is_there:
                    self._delete(oldest)

    def _count_written(self) -> None:
        """Note what the writer has done since the last call."""
        done = [parked for future, parked in self._writing if future.done()]
        self._writing = [(future, parked) for future, parked in self._writing if not future.done()]
        for parked in done:
            parked.is_writing = False
            is_kept = isinstance(parked.state, HeldKV) and self._parked.get(parked.path) is parked
            if not is_kept:
                self._drop_state(parked)

    def _make_room(self) -> None:
        """Delete the least recently used files beyond the limit, and forget what is nowhere any more."""
        self._count_written()
        self._read_folder()
        excess = self.disk_bytes - self._limit_bytes
        if excess > 0:
            self._read_times()
        for parked in sorted(self._parked.values(), key=lambda each: each.used):
            if excess > 0 and parked.has_file:
                excess -= parked.size_bytes
                self._delete_file(parked)
            if not parked.is_there or (isinstance(parked.state, bytes) and not parked.is_on_disk):
                self._delete(parked)

    def _delete(self, parked: ParkedKV) -> None:
        self._parked.pop(parked.path, None)
        self._delete_file(parked)
        if not parked.is_writing:  # or else when it is written
            self._drop_state(parked)

    def _delete_file(self, parked: ParkedKV) -> None:
        parked.is_on_disk = False
        with contextlib.suppress(OSError):
            parked.path.unlink(missing_ok=True)

    def _drop_state(self, parked: ParkedKV) -> None:
        if isinstance(parked.state, HeldKV):
            parked.state.free()
        parked.state, parked.checkpoints = None, ()

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

    def _read_times(self) -> None:
        """Learn when other engines have used their files."""
        for parked in self._parked.values():
            with contextlib.suppress(OSError):
                parked.used = max(parked.used, parked.path.stat().st_mtime)

    def _read_folder(self) -> None:
        """Take up files that other engines have left or written since, and forget those they have deleted."""
        there = set(self._folder.glob("*/*"))
        for parked in self._parked.values():
            if parked.has_file and not parked.is_writing and parked.path not in there:
                parked.is_on_disk = False
        for file in sorted(there - self._parked.keys()):
            with contextlib.suppress(OSError):
                stat = file.stat()
                if file.suffix == PART:
                    if time.time() - stat.st_mtime > STALE_S:
                        file.unlink(missing_ok=True)
                elif (head := read_head(file)) is not None:
                    tenant, (tokens, lengths) = file.parent.name, head
                    parked = ParkedKV(tenant, file, tokens, stat.st_size, stat.st_mtime, lengths)
                    parked.is_on_disk = True
                    self._parked[file] = parked
                else:
                    file.unlink(missing_ok=True)


def _write(parked: ParkedKV, saved: SavedKV) -> None:
    """Write one file. Runs in the writer's thread."""
    try:
        if parked.is_on_disk:
            write_file(parked.path, parked.tokens, saved, parked.used)
        if not parked.is_on_disk:  # not wanted any more
            parked.path.unlink(missing_ok=True)
    except Exception as error:  # noqa: BLE001 - the boundary of the thread: it logs, and the file is lost
        if not isinstance(error, OSError):  # the disk is full, or the folder is gone
            log_fault("KV could not be written", error)
        parked.is_lost = True


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


def _digest(salt: bytes, data: bytes) -> str:
    return hashlib.blake2b(data, key=salt, digest_size=16).hexdigest()
