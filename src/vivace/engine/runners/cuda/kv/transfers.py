"""Copies of pages between the GPU and the host, beside the passes: each direction has a stream of its own.

Owns what waits for what. A copy begins when all that was asked of the GPU before it is done, and passes go on
meanwhile: only one that writes to a page that is being copied waits for that. Does not own the pages.
"""

import ctypes
from collections.abc import Iterable, Sequence
from typing import Protocol, TypeAlias, cast

import torch  # type: ignore[import-not-found,unused-ignore]
from torch.cuda import Event  # type: ignore[import-not-found,unused-ignore]

from vivace.engine.runners.cuda.kv.host_memory import HostPage, Moment

CHUNK_PAGES = 8  # copied before somebody who waits for one of them goes on: 15 MB, 0.3 ms for a 1.5B model
MAX_PITCH = (1 << 31) - 1  # of a copy in two dimensions
_UNIFIED = 4  # CU_MEMORYTYPE_UNIFIED: the address says where it is

Moves: TypeAlias = Sequence[tuple[int, HostPage]]  # a page of the pool, and the slot for its contents


class Transfers(Protocol):
    def save(self, moves: Moves, after: Iterable[Moment]) -> None:
        """Copy pages to the host, after these moments and all that passes have written so far."""
        ...

    def load(self, moves: Moves, after: Iterable[Moment]) -> Moment:
        """Copy pages to the GPU, after these moments. Return when all of them are there."""
        ...

    def hold_passes(self, moment: Moment) -> None:
        """Let passes that are started from now on wait for a copy."""
        ...


class Done:
    """A moment that is over."""

    def query(self) -> bool:
        return True

    def synchronize(self) -> None:
        return None


class PlainTransfers:
    """Copies on a CPU: done at once."""

    def __init__(self, pool: torch.Tensor) -> None:
        self._pool = pool  # [layers, pages, bytes]

    def save(self, moves: Moves, after: Iterable[Moment]) -> None:
        del after
        for page, slot in moves:
            slot.memory.copy_(self._pool[:, page])
            slot.copied = Done()

    def load(self, moves: Moves, after: Iterable[Moment]) -> Moment:
        del after
        for page, slot in moves:
            self._pool[:, page] = slot.memory
        return Done()

    def hold_passes(self, moment: Moment) -> None:
        moment.synchronize()


class GpuTransfers:
    def __init__(self, pool: torch.Tensor) -> None:
        self._pool = pool
        self._out = torch.cuda.Stream()  # type: ignore[no-untyped-call,unused-ignore]
        self._in = torch.cuda.Stream()  # type: ignore[no-untyped-call,unused-ignore]
        self._copy_page = _PageCopy(pool) if pool.stride(0) <= MAX_PITCH else _LayerCopies(pool)

    def save(self, moves: Moves, after: Iterable[Moment]) -> None:
        self._begin(self._out, [*after, *(slot.copied for _, slot in moves if slot.copied)])
        for first in range(0, len(moves), CHUNK_PAGES):
            chunk = moves[first : first + CHUNK_PAGES]
            for page, slot in chunk:
                self._copy_page.to_host(page, slot.memory, self._out.cuda_stream)
            moment = cast(Moment, self._out.record_event())
            for _, slot in chunk:
                slot.copied = moment

    def load(self, moves: Moves, after: Iterable[Moment]) -> Moment:
        self._begin(self._in, [*after, *(slot.copied for _, slot in moves if slot.copied)])
        moment: Moment | None = None
        for first in range(0, len(moves), CHUNK_PAGES):
            chunk = moves[first : first + CHUNK_PAGES]
            for page, slot in chunk:
                self._copy_page.to_gpu(page, slot.memory, self._in.cuda_stream)
            moment = cast(Moment, self._in.record_event())
            for _, slot in chunk:
                slot.copied = moment
        return moment or cast(Moment, self._in.record_event())  # other pages may still be on their way

    def _begin(self, stream: "torch.cuda.Stream", after: Iterable[Moment]) -> None:
        """Let a copy wait for all passes that were started, and for the copies before it."""
        stream.wait_event(torch.cuda.current_stream().record_event())
        waited: set[int] = set()
        for moment in after:
            if id(moment) not in waited:
                waited.add(id(moment))
                stream.wait_event(cast(Event, moment))

    def hold_passes(self, moment: Moment) -> None:
        torch.cuda.current_stream().wait_event(cast(Event, moment))


class _Copy2D(ctypes.Structure):
    """CUDA_MEMCPY2D of the driver."""

    _fields_ = [
        *(
            (f"source_{name}", ctypes.c_size_t)
            for name in ("x", "y", "type", "host", "device", "array", "pitch")
        ),
        *(
            (f"target_{name}", ctypes.c_size_t)
            for name in ("x", "y", "type", "host", "device", "array", "pitch")
        ),
        ("width", ctypes.c_size_t),
        ("height", ctypes.c_size_t),
    ]


class _PageCopy:
    """One copy of the driver's for all layers of a page. It needs no kernel: passes have the GPU's cores."""

    def __init__(self, pool: torch.Tensor) -> None:
        self._call = ctypes.CDLL("libcuda.so.1").cuMemcpy2DAsync_v2
        self._call.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
        self._pool, pitch = pool.data_ptr(), pool.stride(0)
        layers, _, width = pool.shape
        self._width = width
        # Filled in once: a long session has hundreds of copies.
        self._out = _Copy2D(0, 0, _UNIFIED, 0, 0, 0, pitch, 0, 0, _UNIFIED, 0, 0, 0, width, width, layers)
        self._in = _Copy2D(0, 0, _UNIFIED, 0, 0, 0, width, 0, 0, _UNIFIED, 0, 0, 0, pitch, width, layers)
        self._out_at, self._in_at = ctypes.addressof(self._out), ctypes.addressof(self._in)

    def to_host(self, page: int, memory: torch.Tensor, stream: int) -> None:
        self._out.source_device = self._pool + page * self._width
        self._out.target_device = memory.data_ptr()
        self._check(self._call(self._out_at, stream))

    def to_gpu(self, page: int, memory: torch.Tensor, stream: int) -> None:
        self._in.source_device = memory.data_ptr()
        self._in.target_device = self._pool + page * self._width
        self._check(self._call(self._in_at, stream))

    def _check(self, status: int) -> None:
        if status:
            raise RuntimeError(f"CUDA could not copy a page ({status}).")


class _LayerCopies:
    """A copy for each layer, where layers are further apart than one copy can take."""

    def __init__(self, pool: torch.Tensor) -> None:
        self._pool = pool

    def to_host(self, page: int, memory: torch.Tensor, stream: int) -> None:
        with torch.cuda.stream(torch.cuda.ExternalStream(stream)):  # type: ignore[no-untyped-call,unused-ignore]
            for layer, each in enumerate(memory):
                each.copy_(self._pool[layer, page], non_blocking=True)

    def to_gpu(self, page: int, memory: torch.Tensor, stream: int) -> None:
        with torch.cuda.stream(torch.cuda.ExternalStream(stream)):  # type: ignore[no-untyped-call,unused-ignore]
            for layer, each in enumerate(memory):
                self._pool[layer, page].copy_(each, non_blocking=True)
