"""The lanes of a connection: what runs, what waits, and what is next.

Owns order and its limits. A lane is first in, first out, and has one turn at a time. Lanes run side by
side, up to `MAX_IN_FLIGHT` turns; beyond that they stand in line, and who has had a turn goes to its end. A
lane that was named once keeps its name as long as the connection lasts. Does not own what is sent.
"""

from collections import deque
from collections.abc import Callable

import msgspec

from vivace.protocol.connection.steering import PendingSteer
from vivace.protocol.shapes.refusal import ErrorFrame, Refusal
from vivace.protocol.shapes.requests import MAX_BODY_BYTES, ResponseCreate
from vivace.protocol.writing.writer import ResponseWriter

MAX_IN_FLIGHT = 16
MAX_NAMED_LANES = 32
MAX_WAITING = 64
MAX_WAITING_BYTES = 4 * MAX_BODY_BYTES


class RunningTurn:
    """A turn from its start to its end."""

    def __init__(
        self,
        response_id: str,
        request: ResponseCreate,
        lane: "Lane",
        carried: list[PendingSteer],
        *,
        is_successor: bool = False,
    ) -> None:
        self.response_id = response_id
        self.request = request
        self.lane = lane
        self.writer: ResponseWriter | None = None  # None: not begun yet
        self.model = ""
        self.carried = carried  # steers in its input; they are committed when it is begun
        self.steers: list[PendingSteer] = []  # accepted for it, to be carried by what follows
        self.ending = ""  # interrupted or steered, from when its end was asked for
        self.is_successor = is_successor  # nobody asked for it but by steering


class LatestResponse(msgspec.Struct, frozen=True):
    """The latest response of a lane, which the next one may continue."""

    response_id: str
    is_stored: bool


class WaitingRequest(msgspec.Struct, frozen=True):
    asked: ResponseCreate | ErrorFrame  # an answer, if it was refused: it is told when it would have run
    size: int


class Lane:
    def __init__(self, stream_id: str | None) -> None:
        self.stream_id = stream_id
        self.running: RunningTurn | None = None
        self.waiting: deque[WaitingRequest] = deque()
        self.latest: LatestResponse | None = None
        self.held: dict[str, list[PendingSteer]] = {}  # by the response whose calls must be answered first
        self.is_in_line = False

    @property
    def is_idle(self) -> bool:
        return self.running is None and not self.waiting

    def awaits(self, response_id: str) -> bool:
        """Return whether a waiting request continues this response."""
        return any(continues(waiting.asked, response_id) for waiting in self.waiting)


def continues(asked: ResponseCreate | ErrorFrame, response_id: str) -> bool:
    """Return whether this is the next request of the conversation. Provisional text is no part of it."""
    if isinstance(asked, ErrorFrame) or asked.is_provisional:
        return False
    return asked.previous_response_id == response_id


class Lanes:
    def __init__(self) -> None:
        self._lanes: dict[str | None, Lane] = {None: Lane(None)}
        self._line: deque[Lane] = deque()  # each has a request at its head, and nothing that runs
        self._waiting_count = 0
        self._waiting_bytes = 0
        self.running: dict[str, RunningTurn] = {}

    def find(self, stream_id: str | None) -> Lane | None:
        return self._lanes.get(stream_id)

    def check(self, stream_id: str | None, size: int) -> None:
        """Raise a `Refusal` if there is no place for another request of this size in this lane."""
        lane = self.find(stream_id)
        if lane is None and len(self._lanes) > MAX_NAMED_LANES:
            raise Refusal(
                f"This connection has used {MAX_NAMED_LANES} stream ids, and can use no other.",
                "Use one of them again, or open another connection.",
                code="websocket_stream_limit_reached",
                param="stream_id",
            )
        can_start = (lane is None or lane.is_idle) and len(self.running) < MAX_IN_FLIGHT
        if not can_start and not self.has_room(size):
            raise Refusal(
                f"{self._waiting_count} requests wait on this connection already.",
                "Wait for one of them to end.",
                code="rate_limit_exceeded",
                status=429,
            )

    def has_room(self, size: int) -> bool:
        return self._waiting_count < MAX_WAITING and self._waiting_bytes + size <= MAX_WAITING_BYTES

    def put(self, stream_id: str | None, asked: ResponseCreate | ErrorFrame, size: int) -> Lane:
        lane = self._lanes.setdefault(stream_id, Lane(stream_id))
        lane.waiting.append(WaitingRequest(asked, size))
        self._waiting_count += 1
        self._waiting_bytes += size
        return lane

    def settle(self, lane: Lane) -> list[ErrorFrame]:
        """Return the answers that are due now. If a request is then at the lane's head, queue the lane."""
        answers = []
        while not lane.running and lane.waiting:
            asked = lane.waiting[0].asked
            if isinstance(asked, ResponseCreate):
                if not lane.is_in_line:
                    lane.is_in_line = True
                    self._line.append(lane)
                break
            self._pop(lane)
            answers.append(asked)
        return answers

    def next(self) -> tuple[Lane, ResponseCreate] | None:
        """Remove what may run now from its lane and return it; None if there is nothing, or no place."""
        if not self._line or len(self.running) >= MAX_IN_FLIGHT:
            return None
        lane = self._line.popleft()
        lane.is_in_line = False
        asked = self._pop(lane)
        assert isinstance(asked, ResponseCreate), "who stands in line wants to run"
        return lane, asked

    def begin(self, running: RunningTurn) -> None:
        assert running.lane.running is None, "one at a time"
        self.running[running.response_id] = running.lane.running = running

    def end(self, running: RunningTurn) -> None:
        del self.running[running.response_id]
        running.lane.running = None

    def refuse_waiting(self, answer: Callable[[Lane], ErrorFrame]) -> list[ResponseCreate]:
        """Replace all waiting requests by answers, and return them. Settle each lane afterwards."""
        refused = []
        for lane in self._lanes.values():
            for index, waiting in enumerate(lane.waiting):
                if isinstance(waiting.asked, ResponseCreate):
                    refused.append(waiting.asked)
                    lane.waiting[index] = WaitingRequest(answer(lane), waiting.size)
            lane.is_in_line = False
        self._line.clear()
        return refused

    def all(self) -> list[Lane]:
        return list(self._lanes.values())

    def _pop(self, lane: Lane) -> ResponseCreate | ErrorFrame:
        waiting = lane.waiting.popleft()
        self._waiting_count -= 1
        self._waiting_bytes -= waiting.size
        return waiting.asked
