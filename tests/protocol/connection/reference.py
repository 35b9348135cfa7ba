"""A simple reference of a connection: what runs or is answered next, and what is known of turns and steers.

The laws that hold whatever is done are in `test_races`.
"""

from collections import defaultdict, deque
from typing import Any

from vivace.protocol.connection.lanes import MAX_IN_FLIGHT, MAX_WAITING
from vivace.protocol.shapes.outcomes import Outcome

Seen = tuple[str, str | None, Any]  # what was done, in which lane, and with what


class Reference:
    """What runs next: queues, one for each lane, and a line of lanes."""

    def __init__(self) -> None:
        self.queues: dict[str | None, deque[Any]] = defaultdict(deque)  # tickets; None: an error
        self.busy: set[str | None] = set()
        self.line: list[str | None] = []
        self.is_ending = False

    @property
    def waiting(self) -> int:
        return sum(map(len, self.queues.values()))

    def create(self, lane: str | None, ticket: str, *, is_good: bool) -> list[Seen]:
        is_idle = lane not in self.busy and not self.queues[lane]
        is_full = self.waiting >= MAX_WAITING
        if not self.is_ending and is_full and not (is_idle and len(self.busy) < MAX_IN_FLIGHT):
            return [("error", lane, None)]
        if (not is_good or self.is_ending) and (is_idle or is_full):
            return [("error", lane, None)]
        self.queues[lane].append(ticket if is_good and not self.is_ending else None)
        return self.advance(lane)

    def advance(self, lane: str | None) -> list[Seen]:
        """This lane has changed."""
        seen = self.settle(lane)
        while self.line and len(self.busy) < MAX_IN_FLIGHT:
            first = self.line.pop(0)
            self.busy.add(first)
            seen.append(("start", first, self.queues[first].popleft()))
        return seen

    def settle(self, lane: str | None) -> list[Seen]:
        seen: list[Seen] = []
        queue = self.queues[lane]
        while lane not in self.busy and queue and queue[0] is None:
            queue.popleft()
            seen.append(("error", lane, None))
        if lane not in self.busy and queue and lane not in self.line:
            self.line.append(lane)
        return seen

    def wind_down(self, order: list[str | None]) -> list[Seen]:
        self.is_ending, self.line = True, []
        for queue in self.queues.values():
            for index in range(len(queue)):
                queue[index] = None
        return [each for lane in order for each in self.settle(lane)]


class Turn:
    def __init__(self, request: Any, *, ticket: str) -> None:
        self.lane: str | None = request.stream_id
        self.request = request
        self.ticket = ticket  # of the request; a successor has none
        self.is_begun = False
        self.has_calls = False
        self.end: Outcome | None = None
        self.numbers: list[int] = []
        self.terminals = 0


class Steered:
    def __init__(self, parent: str, text: str) -> None:
        self.parent = parent
        self.text = text
        self.carrier = ""  # the response whose input it is in
        self.fate = ""  # committed or failed
        self.notices = 0
