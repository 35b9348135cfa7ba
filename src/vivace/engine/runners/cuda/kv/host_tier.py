"""KV of sequences that are not in use, in host memory: the tier between the GPU and the disk.

A saved state is a list of page copies. Pages that sequences share are copied once and held by all of their
states. Owns these states. Does not own when to save, and when to give a state up (`engine/kv/parked_cache`).
"""

from collections.abc import Callable, Iterator

import torch  # type: ignore[import-not-found,unused-ignore]

from vivace.engine.runners.base import KVState
from vivace.engine.runners.cuda.decode.graphs import CAPTURING
from vivace.engine.runners.cuda.kv.host_memory import HostMemory, HostPage, Moment, lock_for_gpu
from vivace.engine.runners.cuda.kv.pages import CopyPage, Pages
from vivace.engine.runners.cuda.kv.transfers import GpuTransfers, PlainTransfers, Transfers


def _lock_memory(address: int, size_bytes: int) -> Callable[[], None]:
    with CAPTURING:  # the driver refuses it in a capture, and spoils that
        return lock_for_gpu(address, size_bytes)


class HostKV:
    """The KV of one sequence in host memory. `mark` says what wrote it."""

    def __init__(self, mark: bytearray, pages: list[HostPage], memory: HostMemory) -> None:
        self.mark, self.pages = mark, pages
        self._memory = memory
        self.size_bytes = len(mark) + sum(page.memory.nbytes for page in pages)

    def pieces(self) -> Iterator[memoryview]:
        yield memoryview(self.mark)
        for page in self.pages:
            if page.copied:
                page.copied.synchronize()
            yield page.memory.numpy().reshape(-1).data

    def free(self) -> None:
        for page in self.pages:
            self._memory.release(page)
        self.mark, self.pages = bytearray(), []


class HostTier:
    def __init__(
        self, kv: torch.Tensor, sequences: int, copy_page: CopyPage, mark: bytes, limit_bytes: int
    ) -> None:
        pool = kv.view(torch.uint8).reshape(*kv.shape[:2], -1)
        self._mark = mark
        self._memory = HostMemory(len(kv), pool.shape[2], limit_bytes, _lock_memory if kv.is_cuda else None)
        self.transfers: Transfers = GpuTransfers(pool) if kv.is_cuda else PlainTransfers(pool)
        self.pages = Pages(
            pool.shape[1], sequences, copy_page, lambda moment: self.transfers.hold_passes(moment)
        )
        self._arrivals: dict[int, Moment] = {}  # sequences whose pages are on their way

    @property
    def used_bytes(self) -> int:
        return self._memory.used_bytes

    def save(self, seq: int, pages: int) -> HostKV:
        """Save the first pages of a sequence. Raise HostMemoryFull if there is no memory for all of them."""
        table = self.pages.table(seq)[:pages]
        mirrors = [self.pages.mirror(page) for page in table]
        fresh = iter(self._memory.take(mirrors.count(None)))
        held, moves, after = [], [], []
        for page, mirror in zip(table, mirrors, strict=True):
            if mirror:
                mirror.holders += 1
            else:
                mirror = next(fresh)
                moves.append((page, mirror))
                if moment := self.pages.last_copy(page):  # from a state that is gone: it may be on its way
                    after.append(moment)
            held.append(mirror)
        self.transfers.save(moves, after)
        for page, mirror in moves:
            self.pages.set_mirror(page, mirror)
        return HostKV(bytearray(self._mark), held, self._memory)

    def load(self, seq: int, state: KVState) -> int:
        """Load a state into an empty sequence, and return its pages. `arrive` says when they are there."""
        if not isinstance(state, HostKV) or bytes(state.mark) != self._mark or not state.pages:
            raise ValueError("This is no KV of such a model.")
        moves, after = self.pages.restore(seq, state.pages)
        self._arrivals[seq] = self.transfers.load(moves, after)
        return len(state.pages)

    def allocate(self, size_bytes: int) -> HostKV:
        """Return memory for a state that is read from elsewhere."""
        count, rest = divmod(size_bytes - len(self._mark), self._memory.slot_bytes)
        if count < 1 or rest:
            raise ValueError("This is no KV of such a model.")
        return HostKV(bytearray(len(self._mark)), self._memory.take(count), self._memory)

    def is_loading(self, seq: int) -> bool:
        moment = self._arrivals.get(seq)
        if moment is None:
            return False
        if moment.query():
            del self._arrivals[seq]
            return False
        return True

    def finish_loading(self, seq: int) -> None:
        if moment := self._arrivals.pop(seq, None):
            moment.synchronize()

    def arrive(self, seq: int) -> None:
        """Let passes that are started from now on find the sequence's pages."""
        if self._arrivals and (moment := self._arrivals.pop(seq, None)):
            self.transfers.hold_passes(moment)

    def share(self, source: int, target: int, length: int) -> None:
        self.pages.share(source, target, length)
        self._arrivals.pop(target, None)
        if moment := self._arrivals.get(source):
            self._arrivals[target] = moment

    def close(self) -> None:
        self._memory.close()
