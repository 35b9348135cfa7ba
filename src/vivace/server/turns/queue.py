"""Who may begin now, and how long the others wait: a bounded queue before a bounded number of turns.

Owns the order. Realtime goes before background, which gets one admission in twenty while it waits. Within a
tier the key that was served least goes first, by virtual token counters: a key that comes anew starts level
with the others. Within a key, first come, first served. An eighth of the slots is kept for realtime turns,
and an eighth of the places in the queue for those of keys that have none there: neither long background turns
nor one busy key can lock the others out. Does not arbitrate between running turns: the engine's scheduler
does.

`AdmissionQueue` is the machine, without asyncio; `TurnQueue` and `QueueTicket` are the thin shell that lets
tasks wait.
"""

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from heapq import heapify, heappop, heapreplace
from typing import Literal, Self

from vivace.engine.wire.frames import Tier
from vivace.fairness import FairCounters, RealtimeShare
from vivace.protocol.shapes.outcomes import Queued
from vivace.server.turns.limits import RateRefused

MAX_RUNNING, MAX_WAITING = 64, 256
KEPT = 8  # one of this many is kept
FIRST_GUESS_S = 5.0  # of a turn's duration, before one has ended
NEWEST_WEIGHT = 0.2  # of the last turn in the mean duration
LEAST_RETRY_S = 1.0


class QueueEntry:
    """One turn in the queue."""

    def __init__(
        self, number: int, tier: Tier, key: str, tokens: float, on_change: Callable[[], None]
    ) -> None:
        self.number = number
        self.tier: Tier = tier
        self.key = key
        self.tokens = tokens  # charged when it is admitted
        self.on_change = on_change  # its state or its position is another
        self.state: Literal["waiting", "running", "left"] = "waiting"
        self.position = 0  # 1: next; 0: does not wait
        self.began_at = 0.0


class AdmissionQueue:
    def __init__(self, max_running: int, max_waiting: int, clock: Callable[[], float]) -> None:
        assert max_running > 0, max_running
        self._max_running = max_running
        self._max_waiting = max_waiting
        self._clock = clock
        self._waiting: dict[Tier, dict[str, deque[QueueEntry]]] = {"realtime": {}, "background": {}}
        self._waiting_count = 0
        self._running: dict[Tier, int] = {"realtime": 0, "background": 0}
        self._served: dict[Tier, FairCounters] = {"realtime": FairCounters(), "background": FairCounters()}
        self._share = RealtimeShare()
        self._mean_s: float | None = None
        self._entered = 0

    def running(self, tier: Tier) -> int:
        return self._running[tier]

    def waiting(self, tier: Tier) -> int:
        return sum(map(len, self._waiting[tier].values()))

    def estimate_s(self, position: int) -> float:
        """Return the seconds until this place is admitted, by how long recent turns took."""
        mean_s = FIRST_GUESS_S if self._mean_s is None else self._mean_s
        return position * mean_s / self._max_running

    def enter(self, tier: Tier, key: str, tokens: float, on_change: Callable[[], None]) -> QueueEntry:
        """Add an entry behind the others of its key; it may be admitted at once. Raises `RateRefused`."""
        self._refuse_if_full(tier, key)
        self._entered += 1
        entry = QueueEntry(self._entered, tier, key, max(tokens, 1.0), on_change)
        if key not in self._waiting[tier]:
            self._served[tier].join(key, self._waiting[tier])
            self._waiting[tier][key] = deque()
        self._waiting[tier][key].append(entry)
        self._waiting_count += 1
        self._advance()
        return entry

    def leave(self, entry: QueueEntry, tokens: float | None = None) -> None:
        """Free the entry's place or slot, once. `tokens`: what the turn really used, if that is known."""
        if entry.state == "waiting":
            self._remove(entry)
        elif entry.state == "running":
            self._running[entry.tier] -= 1
            if tokens != 0:  # what never began does not tell how long a turn takes
                self._learn(self._clock() - entry.began_at)
            if tokens is not None:
                self._served[entry.tier].charge(entry.key, tokens - entry.tokens)
        else:
            return
        entry.state = "left"
        entry.on_change()
        self._advance()
        if not any(self._running.values()):
            for served in self._served.values():
                served.clear()

    def order(self) -> list[QueueEntry]:
        """Return who waits, in the order of admission if nobody else comes."""
        realtime, background = (self._fair_order(tier) for tier in ("realtime", "background"))
        order, share = list[QueueEntry](), self._share.copy()
        while realtime and background:
            is_background = share.is_other_due
            order.append((background if is_background else realtime).popleft())
            share.count(is_realtime=not is_background, is_other_waiting=True)
        return [*order, *realtime, *background]

    def _fair_order(self, tier: Tier) -> deque[QueueEntry]:
        """Return the entries of a tier as if the key served least were chosen again and again."""
        heap = [
            (self._served[tier][key], entries[0].number, 0, entries)
            for key, entries in self._waiting[tier].items()
        ]
        heapify(heap)
        order = deque[QueueEntry]()
        while heap:
            served, _, taken, entries = heap[0]
            order.append(entries[taken])
            if taken + 1 == len(entries):
                heappop(heap)
            else:
                following = entries[taken + 1]
                heapreplace(heap, (served + entries[taken].tokens, following.number, taken + 1, entries))
        return order

    def _advance(self) -> None:
        """Admit as many as possible, then notify those whose position has changed."""
        while entry := self._next():
            self._admit(entry)
        for position, entry in enumerate(self.order() if self._waiting_count else [], 1):
            if entry.position != position:
                entry.position = position
                entry.on_change()

    def _next(self) -> QueueEntry | None:
        if not self._waiting_count or not self._slots_left("realtime"):
            return None
        realtime, background = self._first("realtime"), self._first("background")
        if not self._slots_left("background"):
            return realtime
        return (background or realtime) if self._share.is_other_due else (realtime or background)

    def _slots_left(self, tier: Tier) -> int:
        left = self._max_running - sum(self._running.values())
        kept = self._max_running // KEPT if tier == "background" else 0
        return min(left, self._max_running - kept - self._running[tier])

    def _first(self, tier: Tier) -> QueueEntry | None:
        heads = (entries[0] for entries in self._waiting[tier].values())
        served = self._served[tier]
        return min(heads, key=lambda entry: (served[entry.key], entry.number), default=None)

    def _admit(self, entry: QueueEntry) -> None:
        self._served[entry.tier].pick(entry.key, entry.tokens)
        self._remove(entry)
        self._share.count(
            is_realtime=entry.tier == "realtime", is_other_waiting=bool(self._waiting["background"])
        )
        self._running[entry.tier] += 1
        entry.state, entry.began_at = "running", self._clock()
        entry.on_change()

    def _remove(self, entry: QueueEntry) -> None:
        tier, key = entry.tier, entry.key
        entries = self._waiting[tier][key]
        entries.remove(entry)
        self._waiting_count -= 1
        entry.position = 0
        if not entries:
            del self._waiting[tier][key]
            self._served[tier].forget(self._waiting[tier])

    def _refuse_if_full(self, tier: Tier, key: str) -> None:
        places = self._max_waiting - self._waiting_count
        is_first = tier == "realtime" and key not in self._waiting[tier]
        kept = 0 if is_first else self._max_waiting // KEPT
        if places > kept or self._slots_left(tier):  # where a slot is left nobody of its tier waits
            return
        raise RateRefused(
            f"{self._waiting_count} requests wait already, and no more may.",
            limit="queue",
            retry_after_s=max(LEAST_RETRY_S, self.estimate_s(1)),
            headers={},
        )

    def _learn(self, duration_s: float) -> None:
        mean_s = duration_s if self._mean_s is None else self._mean_s
        self._mean_s = mean_s + (duration_s - mean_s) * NEWEST_WEIGHT


class QueueTicket:
    """A turn's place: wait until it is its turn, and leave however that ends.

    with queue.enter("realtime", key) as ticket:
        async for place in ticket.wait():
            ...  # tell the client
        if ticket.is_running:
            ...  # begin
    """

    def __init__(self, queue: AdmissionQueue, entry: QueueEntry, changed: asyncio.Event) -> None:
        self._queue = queue
        self._entry = entry
        self._changed = changed

    @property
    def is_running(self) -> bool:
        return self._entry.state == "running"

    @property
    def place(self) -> Queued | None:
        """Return the current place, or None if it does not wait."""
        position = self._entry.position
        return Queued(position, self._queue.estimate_s(position)) if position else None

    async def wait(self) -> AsyncIterator[Queued]:
        """Give the place now and whenever it changes. End when the turn may run or has left."""
        last = 0
        while place := self.place:
            self._changed.clear()
            if last != place.position:
                last = place.position
                yield place
            else:
                await self._changed.wait()

    def leave(self, tokens: float | None = None) -> None:
        """Free the place or the slot at once. Only the first call counts."""
        self._queue.leave(self._entry, tokens)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.leave()


class TurnQueue:
    def __init__(
        self,
        max_running: int = MAX_RUNNING,
        max_waiting: int = MAX_WAITING,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._queue = AdmissionQueue(max_running, max_waiting, clock)

    def enter(self, tier: Tier, key: str, tokens: float = 1.0) -> QueueTicket:
        """Join the queue, or raise `RateRefused` if it is full. `tokens`: about what the turn will use."""
        changed = asyncio.Event()
        return QueueTicket(self._queue, self._queue.enter(tier, key, tokens, changed.set), changed)

    def running(self, tier: Tier) -> int:
        return self._queue.running(tier)

    def waiting(self, tier: Tier) -> int:
        return self._queue.waiting(tier)
