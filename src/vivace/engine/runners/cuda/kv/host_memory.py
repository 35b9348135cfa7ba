"""Host memory for saved KV: page-locked slots of one KV page each, up to a limit.

The GPU copies to and from page-locked memory at the bus's speed, but locking it takes longer than the copy.
So slots are made in slabs, some ahead of need, by a thread. Owns the memory, and how many states need each
slot. Does not own what is copied (`transfers`).
"""

import contextlib
import mmap
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Protocol

import numpy as np
import torch  # type: ignore[import-not-found,unused-ignore]

from vivace.engine.runners.base import HostMemoryFull

SLAB_BYTES = 8 << 20  # locked at a time, 5 ms: passes may have to wait for that
AHEAD_BYTES = 1 << 30  # kept free if the limit allows it
PAUSE_S = 0.005  # between two slabs
Lock = Callable[[int, int], Callable[[], None]]  # lock memory by its address and size; return what unlocks it


class Moment(Protocol):
    """When a copy is done."""

    def query(self) -> bool: ...

    def synchronize(self) -> None: ...


class HostPage:
    """The contents of one page in host memory, or on their way there."""

    __slots__ = ("copied", "holders", "memory", "page")

    def __init__(self, memory: torch.Tensor, copied: Moment | None) -> None:
        self.memory = memory  # [layers, bytes of a layer's page]
        self.copied = copied  # the last copy that reads or writes the memory
        self.holders = 1  # saved states; without one the contents are not valid any more
        self.page: int | None = None  # the page of the pool that has the same contents


class HostMemory:
    def __init__(self, layers: int, page_bytes: int, limit_bytes: int, lock: Lock | None = None) -> None:
        self._size = (layers, page_bytes)
        self.slot_bytes = layers * page_bytes
        self._slots_left = limit_bytes // self.slot_bytes  # that may still be made
        self._slab_slots = max(1, SLAB_BYTES // self.slot_bytes)
        self._free: deque[tuple[torch.Tensor, Moment | None]] = deque()
        self._made = 0
        self._lock, self._slabs = lock, list[mmap.mmap]()
        self._growing, self._is_closed = threading.Lock(), False
        self._growth: Future[None] | None = None
        self._grower = ThreadPoolExecutor(1, thread_name_prefix="kv-memory")  # left to the process's end
        self._grow_ahead()

    @property
    def used_bytes(self) -> int:
        return (self._made - len(self._free)) * self.slot_bytes

    def take(self, count: int) -> list[HostPage]:
        """Return slots for `count` pages, all or none."""
        while len(self._free) < count and self._grow():
            pass
        if len(self._free) < count:
            raise HostMemoryFull
        taken = [HostPage(*self._free.popleft()) for _ in range(count)]
        self._grow_ahead()
        return taken

    def release(self, page: HostPage) -> None:
        """Let one state less need this slot."""
        page.holders -= 1
        if not page.holders:
            self._free.append((page.memory, page.copied))

    def close(self) -> None:
        self._is_closed = True
        self._grower.shutdown()

    @property
    def _is_short(self) -> bool:
        is_wanted = not self._is_closed and threading.main_thread().is_alive()
        return is_wanted and len(self._free) * self.slot_bytes < AHEAD_BYTES and self._slots_left > 0

    def _grow_ahead(self) -> None:
        """Have slots made beside the engine, where memory must be locked and few are free."""
        if self._lock and self._is_short and (self._growth is None or self._growth.done()):
            self._growth = self._grower.submit(self._grow_while_short)

    def _grow_while_short(self) -> None:
        with contextlib.suppress(RuntimeError):  # `take` tries it again, and tells
            while self._is_short and self._grow():
                time.sleep(PAUSE_S)

    def _grow(self) -> bool:
        """Make one slab. Return whether that was possible."""
        with self._growing:
            slots = min(self._slab_slots, self._slots_left)
            if not slots:
                return False
            self._slots_left -= slots
            slab = mmap.mmap(-1, slots * self.slot_bytes)
            if hasattr(mmap, "MADV_HUGEPAGE"):
                slab.madvise(mmap.MADV_HUGEPAGE)
            memory = np.frombuffer(slab, np.uint8)
            if self._lock:
                memory[:: mmap.PAGESIZE] = 0  # it is faster to lock what is there
                unlock = self._lock(memory.ctypes.data, len(memory))
                # Before the addresses are free: who is given them next could not lock them.
                weakref.finalize(slab, unlock).atexit = False
            self._slabs.append(slab)
            self._made += slots
            for slot in torch.from_numpy(memory).view(slots, *self._size):
                self._free.append((slot, None))
        return True


def lock_for_gpu(address: int, size_bytes: int) -> Callable[[], None]:
    """Lock memory so that the GPU copies to and from it without the CPU. Return what unlocks it."""
    runtime = torch.cuda.cudart()  # type: ignore[no-untyped-call,unused-ignore]
    status = runtime.cudaHostRegister(address, size_bytes, 0)
    if int(status):
        raise RuntimeError(f"cudaHostRegister failed: {status}")
    return lambda: runtime.cudaHostUnregister(address)
