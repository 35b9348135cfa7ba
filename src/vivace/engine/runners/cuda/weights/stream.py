"""Weights on their way to the GPU: read by several threads, in the order in which they are asked for.

Names in that order are cut into batches. While one is unpacked, the next ones are read: a thread fills pinned
memory with one large read after the other, and a stream of its own copies that to the device as it is in the
file. So the host only moves bytes, and holds READERS * 2 chunks of them. Owns threads, pinned memory and
batches. What the bytes mean is `pieces`'; the order is `build`'s.
"""

import itertools
import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from types import TracebackType
from typing import Any, NamedTuple

import torch  # type: ignore[import-not-found,unused-ignore]

from vivace.engine.runners.cuda.weights.pieces import Checkpoint, Piece, cut_off, read_exactly, unreadable

READERS = 8  # threads
CHUNK_BYTES = 8 << 20  # of one read and one copy
BATCH_BYTES = 128 << 20  # of one batch on the device; a larger weight is a batch of its own
AHEAD = 3  # batches that are read while one is unpacked
ALIGNMENT = 256

Tell = Callable[[int, int], None]  # bytes that are read, of all


class _Run(NamedTuple):
    """Bytes that lie together in a file and in a batch."""

    file: Path
    offset: int
    start: int  # in the batch
    size: int


class _Batch:
    """Some weights as they are in the file, one after the other in one piece of device memory."""

    def __init__(self, pieces: dict[str, Piece]) -> None:
        self.starts: dict[str, int] = {}
        self.runs: list[_Run] = []
        self.raw = torch.empty(0)
        self.copied: Any = None  # on the device: behind the last of its copies
        self.reads: list[Future[None]] = []
        self.size, before = 0, None
        for name, piece in pieces.items():
            if before is not None and before.is_continued_by(piece):
                self.runs[-1] = self.runs[-1]._replace(size=self.runs[-1].size + piece.size)
            else:
                self.size = -(-self.size // ALIGNMENT) * ALIGNMENT
                self.runs.append(_Run(piece.file, piece.offset, self.size, piece.size))
            self.starts[name] = self.size
            self.size, before = self.size + piece.size, piece


class _Slot:
    """Pinned memory that is filled, then copied; `wait` before it is filled again."""

    def __init__(self, size: int, *, is_pinned: bool) -> None:
        self.memory = torch.empty(size, dtype=torch.uint8, pin_memory=is_pinned)
        self.bytes = self.memory.numpy().data
        self._copied: Any = torch.cuda.Event() if is_pinned else None  # type: ignore[no-untyped-call,unused-ignore]

    def wait(self) -> None:
        if self._copied is not None:
            self._copied.synchronize()

    def copy_to(self, target: torch.Tensor) -> None:
        """Begin to copy as much as `target` holds, on the thread's stream; to the host it is done at once."""
        target.copy_(self.memory[: len(target)], non_blocking=True)
        if self._copied is not None:
            self._copied.record()


class WeightStream:
    """The weights of a checkpoint, each once and in `order`, on the device. To be closed, also midway."""

    def __init__(
        self,
        checkpoint: Checkpoint,
        order: Sequence[str],
        device: torch.device | str,
        tell: Tell = lambda _done, _total: None,
        *,
        readers: int = READERS,
        chunk_bytes: int = CHUNK_BYTES,
        batch_bytes: int = BATCH_BYTES,
    ) -> None:
        self._device, self._tell, self._chunk_bytes = torch.device(device), tell, chunk_bytes
        self._pieces, self._computed = checkpoint.pieces, checkpoint.computed
        is_cuda = self._device.type == "cuda"
        self._side: Any = torch.cuda.Stream() if is_cuda else None  # type: ignore[no-untyped-call,unused-ignore]
        pieces = {name: self._pieces[name] for name in order if name in self._pieces}
        self._done, self._total = 0, sum(piece.size for piece in pieces.values())
        self._files = _open_files(pieces.values())
        self._slots: SimpleQueue[_Slot] = SimpleQueue()
        for _ in range(2 * readers):
            self._slots.put(_Slot(chunk_bytes, is_pinned=is_cuda))
        self._threads = ThreadPoolExecutor(readers, "weights")
        self._waiting = _cut(pieces, batch_bytes)
        self._ahead: deque[_Batch] = deque()
        self._batch = _Batch({})

    def __enter__(self) -> "WeightStream":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the threads: at most one chunk of each is still read."""
        self._threads.shutdown(cancel_futures=True)
        for descriptor in self._files.values():
            os.close(descriptor)
        self._files = {}
        if self._side is not None:
            self._side.synchronize()  # nothing is copied any more into memory that is given back
        self._ahead.clear()
        self._batch = _Batch({})

    def __contains__(self, name: object) -> bool:
        return name in self._pieces or name in self._computed

    def rows(self, *names: str) -> torch.Tensor:
        """Return these weights below each other. Those before them in the order are gone then."""
        if names[0] in self._computed:
            return self._computed[names[0]].to(self._device)
        found, begin = [], 0
        while begin < len(names):
            batch, end = self._batch_of(names[begin]), begin + 1
            while end < len(names) and self._follow(batch, names[end - 1], names[end]):
                end += 1
            first, last = names[begin], names[end - 1]
            stop = batch.starts[last] + self._pieces[last].size
            found.append(self._pieces[first].unpack(batch.raw[batch.starts[first] : stop]))
            begin = end
        return found[0] if len(found) == 1 else torch.cat(found)

    def _follow(self, batch: _Batch, name: str, other: str) -> bool:
        """Return whether both lie together in the batch, and can be unpacked at once."""
        piece = self._pieces[name]
        is_next = batch.starts.get(other) == batch.starts[name] + piece.size
        return is_next and piece.is_continued_by(self._pieces[other])

    def _batch_of(self, name: str) -> _Batch:
        while name not in self._batch.starts:
            self._advance()
        return self._batch

    def _advance(self) -> None:
        """Let go of the batch at hand, wait for the next one, and begin to read another."""
        self._batch = _Batch({})
        for batch in itertools.islice(self._waiting, AHEAD + 1 - len(self._ahead)):
            self._begin(batch)
        assert self._ahead, "weights are asked for in order, and each once"
        self._batch = self._ahead.popleft()
        for read in self._batch.reads:
            read.result()
        self._done += sum(run.size for run in self._batch.runs)
        self._tell(self._done, self._total)
        if self._side is not None:
            torch.cuda.current_stream().wait_event(self._batch.copied)

    def _begin(self, batch: _Batch) -> None:
        batch.raw = torch.empty(batch.size, dtype=torch.uint8, device=self._device)
        if self._side is not None:  # what was in that memory before may still be read
            self._side.wait_stream(torch.cuda.current_stream())
            batch.copied = self._side.record_event()
        for begin in range(0, batch.size, self._chunk_bytes):
            end = min(begin + self._chunk_bytes, batch.size)
            batch.reads.append(self._threads.submit(self._fill, batch, begin, end))
        self._ahead.append(batch)

    def _fill(self, batch: _Batch, begin: int, end: int) -> None:
        """Read these bytes of the batch, and begin to copy them. Runs on a thread."""
        slot = self._slots.get()
        try:
            slot.wait()
            for run in batch.runs:
                low, high = max(begin, run.start), min(end, run.start + run.size)
                if low < high:
                    self._read(run, slot.bytes[low - begin : high - begin], low - run.start)
            with torch.cuda.stream(self._side):  # None: on the host there is none
                slot.copy_to(batch.raw[begin:end])
                if self._side is not None:
                    batch.copied.record(self._side)  # again: the last record of all is behind all copies
        finally:
            self._slots.put(slot)

    def _read(self, run: _Run, target: memoryview, offset: int) -> None:
        try:
            read_exactly(self._files[run.file], target, run.offset + offset, run.file)
        except OSError as error:
            raise unreadable(run.file, error) from error


def _cut(pieces: dict[str, Piece], batch_bytes: int) -> Iterator[_Batch]:
    """Cut the weights into batches of about that many bytes, in order."""
    batch, size = dict[str, Piece](), 0
    for name, piece in pieces.items():
        if batch and size + piece.size > batch_bytes:
            yield _Batch(batch)
            batch, size = {}, 0
        batch[name] = piece
        size += piece.size
    if batch:
        yield _Batch(batch)


def _open_files(pieces: Any) -> dict[Path, int]:
    """Open all files, and see that they are as long as they must be before anything is read."""
    ends: dict[Path, int] = {}
    for piece in pieces:
        ends[piece.file] = max(ends.get(piece.file, 0), piece.offset + piece.size)
    opened: dict[Path, int] = {}
    try:
        for file, end in ends.items():
            opened[file] = os.open(file, os.O_RDONLY)
            if os.fstat(opened[file]).st_size < end:
                raise cut_off(file)
    except BaseException as error:
        for descriptor in opened.values():
            os.close(descriptor)
        if isinstance(error, OSError):
            raise unreadable(file, error) from error
        raise
    return opened
