"""Fair shares: who goes next within a tier, and when work that is not realtime is due.

Owns the two counters that the server's queue and the engine's scheduler share. `FairCounters` are virtual
token counters, one set for each tier: the key or tenant that was served least goes first, and one that comes
anew starts level with the others, so that a pause earns no credit. `RealtimeShare` lets realtime work go
first, but for one in twenty picks while other work waits. Does not own who waits, and does not run anything.
"""

from collections.abc import Collection
from heapq import nlargest

REALTIME_IN_A_ROW = 19  # picks at most, while other work waits: the rest gets 5%
SPARE_NAMES = 64  # remembered although nothing of theirs waits


class FairCounters:
    """What each key or tenant was served in one tier, in tokens."""

    def __init__(self) -> None:
        self._served: dict[str, float] = {}
        self._level = 0.0  # where the one that was picked last stood

    def __len__(self) -> int:
        return len(self._served)

    def __getitem__(self, name: str) -> float:
        return self._served[name]

    def join(self, name: str, present: Collection[str]) -> None:
        """Let a name compete. It starts level with the least served of those present."""
        lowest = min((self._served[each] for each in present), default=self._level)
        self._served[name] = max(self._served.get(name, 0.0), lowest)

    def pick(self, name: str, tokens: float) -> None:
        """Serve a name that has joined, and charge it for about as many tokens as that takes."""
        self._level = max(self._level, self._served[name])
        self.charge(name, tokens)

    def charge(self, name: str, tokens: float) -> None:
        """Count tokens as served. A negative number gives back what was charged too much."""
        served = self._served.get(name, self._level) + tokens
        self._served[name] = served if served > 0.0 else 0.0  # `max` is slower, and a step has microseconds

    def clear(self) -> None:
        """Forget all counts: nobody waits or runs."""
        self._served.clear()
        self._level = 0.0

    def forget(self, present: Collection[str]) -> None:
        """Forget keys that are not present, except the few that were served most. Others equal newcomers."""
        if len(self._served) > len(present) + 2 * SPARE_NAMES:
            absent = [name for name in self._served if name not in present]
            most = nlargest(SPARE_NAMES, absent, self._served.__getitem__)
            self._served = {name: self._served[name] for name in (*present, *most)}


class RealtimeShare:
    """Counts realtime picks while other work waits."""

    def __init__(self, in_a_row: int = 0) -> None:
        self._in_a_row = in_a_row

    def copy(self) -> "RealtimeShare":
        return RealtimeShare(self._in_a_row)

    @property
    def is_other_due(self) -> bool:
        """Return whether the next pick belongs to work that is not realtime."""
        return self._in_a_row >= REALTIME_IN_A_ROW

    @property
    def realtime_left(self) -> int:
        """Return how many realtime picks come before other work is due."""
        return max(0, REALTIME_IN_A_ROW - self._in_a_row)

    def count(self, *, is_realtime: bool, is_other_waiting: bool) -> None:
        """Count one pick."""
        self._in_a_row = self._in_a_row + 1 if is_realtime and is_other_waiting else 0
