"""KV in host memory: what comes back is what was saved, however late copies are done."""

import random
import threading
from collections.abc import Callable, Iterable

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: vivace extras add cuda")

from vivace.engine.runners.base import HostMemoryFull, KVFull  # noqa: E402
from vivace.engine.runners.cuda.kv.host_memory import HostMemory, Moment  # noqa: E402
from vivace.engine.runners.cuda.kv.host_tier import HostKV, HostTier  # noqa: E402
from vivace.engine.runners.cuda.kv.transfers import Moves  # noqa: E402

MOVES = ["write", "write", "share", "trim", "save", "save", "load", "load", "free", "read"]
ONE_AT_A_TIME = threading.RLock()
PAGES, SEQUENCES, LAYERS, SLOTS = 12, 5, 2, 14


class LateMoment:
    """A copy that is done when somebody waits for it, after all copies that were asked for before it."""

    def __init__(self, queue: "list[LateMoment]", copy: Callable[[], None]) -> None:
        self._queue, self._copy = queue, copy
        queue.append(self)

    def query(self) -> bool:
        return self not in self._queue

    def synchronize(self) -> None:
        with ONE_AT_A_TIME:  # a thread that writes files may wait for it, too
            while self in self._queue:
                self._queue[0]._copy()
                self._queue.pop(0)


class LateTransfers:
    """Copies as late as they may be. Passes are done at once."""

    def __init__(self, pool: "torch.Tensor") -> None:  # type: ignore[name-defined]
        self._pool = pool
        self._out: list[LateMoment] = []
        self._in: list[LateMoment] = []
        self.copied = 0  # pages

    def save(self, moves: Moves, after: Iterable[Moment]) -> None:
        before: list[Moment | None] = list(after)
        for page, slot in moves:
            slot.copied = self._late(self._out, [*before, slot.copied], self._saving(page, slot.memory))

    def _saving(self, page: int, memory: "torch.Tensor") -> Callable[[], object]:  # type: ignore[name-defined]
        return lambda: memory.copy_(self._pool[:, page])

    def _loading(self, page: int, memory: "torch.Tensor") -> Callable[[], object]:  # type: ignore[name-defined]
        return lambda: self._pool[:, page].copy_(memory)

    def load(self, moves: Moves, after: Iterable[Moment]) -> Moment:
        before: list[Moment | None] = list(after)
        for page, slot in moves:
            slot.copied = self._late(self._in, [*before, slot.copied], self._loading(page, slot.memory))
        return self._late(self._in, [], lambda: None)

    def _late(
        self, queue: list[LateMoment], before: list[Moment | None], copy: Callable[[], object]
    ) -> LateMoment:
        def work() -> None:
            for moment in before:
                if moment:
                    moment.synchronize()
            copy()

        self.copied += 1
        return LateMoment(queue, work)

    def hold_passes(self, moment: Moment) -> None:
        moment.synchronize()


class Played:
    """A small pool whose bytes are stamps, and what each sequence and each saved state should hold."""

    def __init__(self, draw: random.Random) -> None:
        self.draw = draw
        self.kv = torch.zeros(LAYERS, PAGES, 64, dtype=torch.uint8)
        self.tier = HostTier(self.kv, SEQUENCES, self.copy_page, b"mark", SLOTS * LAYERS * 64)
        self.late = LateTransfers(self.kv)
        self.tier.transfers = self.late
        self.texts: list[list[int]] = [[] for _ in range(SEQUENCES)]
        self.states: list[tuple[HostKV, list[int]]] = []

    def copy_page(self, source: int, target: int) -> None:
        self.kv[:, target] = self.kv[:, source]

    def write(self, seq: int, stamp: int) -> None:
        start, count = self.draw.randint(0, len(self.texts[seq])), self.draw.randint(1, 150)
        self.tier.arrive(seq)
        self.tier.pages.reserve(seq, start, start + count)
        for at in range(start, start + count):
            self.kv[:, self.tier.pages.table(seq)[at // 64], at % 64] = stamp % 251
        self.texts[seq] = self.texts[seq][:start] + [stamp % 251] * count
        self.tier.pages.trim(seq, start + count)

    def share(self, seq: int, other: int) -> None:
        length = self.draw.randint(0, len(self.texts[seq]))
        self.tier.share(seq, other, length)
        self.texts[other] = self.texts[seq][:length]

    def trim(self, seq: int) -> None:
        length = self.draw.choice([0, self.draw.randint(0, len(self.texts[seq]))])
        self.tier.pages.trim(seq, length)
        del self.texts[seq][length:]

    def save(self, seq: int) -> None:
        if self.texts[seq]:
            state = self.tier.save(seq, -(-len(self.texts[seq]) // 64))
            self.states.append((state, list(self.texts[seq])))

    def load(self, seq: int) -> None:
        if self.states:
            state, text = self.draw.choice(self.states)
            self.tier.pages.trim(seq, 0)
            self.texts[seq] = []
            self.tier.load(seq, state)
            self.texts[seq] = list(text)

    def free(self) -> None:
        if self.states:
            self.states.pop(self.draw.randrange(len(self.states)))[0].free()

    def check(self, seq: int) -> None:
        self.tier.arrive(seq)
        table = self.tier.pages.table(seq)
        for layer in range(LAYERS):
            found = [int(self.kv[layer, table[at // 64], at % 64]) for at in range(len(self.texts[seq]))]
            assert found == self.texts[seq]

    def check_state(self) -> None:
        if self.states:
            state, text = self.draw.choice(self.states)
            mark, *pages = [bytes(piece) for piece in state.pieces()]
            assert mark == b"mark"
            assert b"".join(page[:64] for page in pages)[: len(text)] == bytes(text)


def test_what_comes_back_is_what_was_saved(seed: int) -> None:
    """Random writes, forks, trims, saves and loads; a pass or a copy never sees half of another copy."""
    draw = random.Random(seed)
    played = Played(draw)
    for stamp in range(1500):
        seq, other = draw.sample(range(SEQUENCES), 2)
        try:
            match draw.choice(MOVES):
                case "write":
                    played.write(seq, stamp)
                case "share":
                    played.share(seq, other)
                case "trim":
                    played.trim(seq)
                case "save":
                    played.save(seq)
                case "load":
                    played.load(seq)
                case "free":
                    played.free()
                case _:
                    played.check(other)
                    played.check_state()
        except KVFull:
            played.trim(other)
        except HostMemoryFull:
            played.free()
    for seq in range(SEQUENCES):
        played.check(seq)
        played.tier.pages.trim(seq, 0)
    while played.states:
        played.free()
    assert played.tier.pages.free_pages == PAGES
    assert played.tier.used_bytes == 0


def test_pages_that_are_on_their_way_are_saved_when_they_are_there(seed: int) -> None:
    """Loaded, its state given up, and saved again before the copy was done."""
    played = Played(random.Random(seed))
    played.write(0, 7)
    played.save(0)
    played.tier.pages.trim(0, 0)
    played.tier.pages.reserve(1, 0, PAGES * 64)  # somebody else has had all pages
    played.kv.zero_()
    played.tier.pages.trim(1, 0)
    played.load(2)
    played.free()
    played.save(2)
    played.check_state()


def test_shared_pages_are_in_host_memory_once(seed: int) -> None:
    """Two sequences with one beginning: its pages are copied once, out and back, and freed with the last."""
    played = Played(random.Random(seed))
    tier, page_bytes = played.tier, LAYERS * 64
    tier.pages.reserve(0, 0, 256)
    tier.share(0, 1, 192)
    tier.pages.reserve(1, 192, 256)
    one, other = tier.save(0, 4), tier.save(1, 4)
    assert tier.used_bytes == 5 * page_bytes
    assert played.late.copied == 5
    for seq in (0, 1):
        tier.pages.trim(seq, 0)
    tier.pages.reserve(2, 0, PAGES * 64)  # whatever was still there is gone
    tier.pages.trim(2, 0)
    tier.load(3, one)
    tier.load(4, other)
    assert tier.pages.free_pages == PAGES - 5
    one.free()
    assert tier.used_bytes == 4 * page_bytes
    other.free()
    assert tier.used_bytes == 0


def test_a_state_that_comes_right_back_is_not_copied(seed: int) -> None:
    """As long as nobody has taken the pages of a parked sequence, they are simply its pages again."""
    played = Played(random.Random(seed))
    tier = played.tier
    played.write(0, 7)
    played.save(0)
    pages = list(tier.pages.table(0))
    tier.pages.trim(0, 0)
    played.load(1)
    assert tier.pages.table(1) == pages
    played.check(1)


def test_a_freed_state_is_not_loaded(seed: int) -> None:
    """What was given up for others is refused, and nothing is taken for it."""
    played = Played(random.Random(seed))
    played.write(0, 7)
    state = played.tier.save(0, 1)
    state.free()
    with pytest.raises(ValueError, match="no KV"):
        played.tier.load(1, state)


def test_memory_is_unlocked_before_its_addresses_are_free() -> None:
    """Else who is given the same addresses later cannot lock them."""
    locked: dict[int, int] = {}

    def lock(address: int, size_bytes: int) -> Callable[[], None]:
        locked[address] = size_bytes

        def unlock() -> None:
            del locked[address]

        return unlock

    memory = HostMemory(LAYERS, 4096, 4 * LAYERS * 4096, lock)
    (page,) = memory.take(1)
    memory.close()
    del memory
    assert locked  # a page of it is still in use
    del page
    assert not locked
