"""A line with a clock of its own, for tests of the queue."""

from collections.abc import Callable

from hypothesis import strategies as st

from vivace.engine.wire.frames import Tier
from vivace.server.turns.queue import AdmissionQueue, QueueEntry

TIERS: st.SearchStrategy[Tier] = st.sampled_from(["realtime", "background"])
MOST_TOKENS = 5


def account_of(entry: QueueEntry) -> tuple[Tier, str]:
    return entry.tier, entry.key


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Desk:
    """A line, and the names of those admitted in the order in which that happened."""

    def __init__(self, max_running: int, max_waiting: int) -> None:
        self.clock = Clock()
        self.line = AdmissionQueue(max_running, max_waiting, self.clock)
        self.entries: dict[str, QueueEntry] = {}
        self.admitted: list[str] = []
        self.told: dict[str, tuple[str, int]] = {}  # state and place, as of the last word about it

    def enter(self, name: str, key: str = "ann", tier: Tier = "realtime", tokens: float = 1) -> QueueEntry:
        entry = self.entries[name] = self.line.enter(tier, key, tokens, self._noticing(name))
        self._notice(name)
        return entry

    def leave(self, name: str, tokens: float | None = None) -> None:
        self.line.leave(self.entries[name], tokens)

    def end_one(self) -> None:
        """End the turn that has run for longest."""
        self.leave(next(name for name in self.admitted if self.entries[name].state == "running"))

    @property
    def waiting(self) -> list[str]:
        """In the order in which they are told to stand."""
        names = [name for name, entry in self.entries.items() if entry.state == "waiting"]
        return sorted(names, key=lambda name: self.entries[name].position)

    def _noticing(self, name: str) -> Callable[[], None]:
        return lambda: self._notice(name) if name in self.entries else None

    def _notice(self, name: str) -> None:
        entry = self.entries[name]
        self.told[name] = (entry.state, entry.position)
        if entry.state == "running":
            self.admitted.append(name)


def busy_desk(max_running: int = 1, max_waiting: int = 100) -> Desk:
    """All slots are taken, by a key that asks for nothing else."""
    desk = Desk(max_running, max_waiting)
    for number in range(max_running):
        desk.enter(f"first{number}", "someone")
    desk.admitted.clear()
    return desk


def ended_in_order(desk: Desk) -> list[str]:
    """Let turns end until nobody waits: who was admitted, in order."""
    for entry in desk.entries.values():
        if entry.state == "running":
            desk.line.leave(entry)
            break
    while desk.waiting:
        desk.end_one()
    return desk.admitted
