"""One WebSocket as a machine without I/O: messages and outcomes in, actions out.

Owns the order of turns on a connection and every frame that is sent on it. Does not own sockets or
engines: the shell (`server.socket`) performs the actions and reports what came of them.

A lane is first in, first out: one turn runs, the rest wait. There is one lane so far, the default one.
A refused request is answered in its lane's order; a message that is no request is answered at once.
"""

from collections import deque
from collections.abc import Callable

import msgspec

from vivace.errors import VivaceError
from vivace.protocol.events import AnyEvent
from vivace.protocol.refusal import ErrorFrame, Refusal, frame_of
from vivace.protocol.requests import (
    MAX_BODY_BYTES,
    ResponseCreate,
    parse_cancel,
    parse_create,
    parse_type,
)
from vivace.protocol.writer import Outcome, ResponseWriter, new_response_id

MAX_WAITING = 64


class Start(msgspec.Struct, frozen=True):
    """Begin this turn; then report `begun` or `refused`, then each outcome."""

    response_id: str
    request: ResponseCreate


class Cancel(msgspec.Struct, frozen=True):
    """Interrupt this turn; its end is reported as an outcome like any other."""

    response_id: str


class Send(msgspec.Struct, frozen=True):
    message: AnyEvent | ErrorFrame


Action = Start | Cancel | Send


class Running:
    def __init__(self, response_id: str, request: ResponseCreate) -> None:
        self.response_id = response_id
        self.request = request
        self.writer: ResponseWriter | None = None  # None: not begun yet


class Lane:
    def __init__(self) -> None:
        self.running: Running | None = None
        self.waiting: deque[ResponseCreate | ErrorFrame] = deque()
        self.last_ended = ""


class Connection:
    def __init__(self, new_id: Callable[[], str] = new_response_id) -> None:
        self._new_id = new_id
        self._lane = Lane()

    def receive(self, text: str) -> list[Action]:
        """A message from the client."""
        try:
            if len(text) > MAX_BODY_BYTES:
                raise Refusal("The message is too large.", code="request_too_large", status=413)
            match parse_type(text):
                case "response.create":
                    return self._enqueue(self._parsed(text))
                case "response.cancel":
                    return self._cancel(parse_cancel(text).response_id)
                case other:
                    raise Refusal(f"Unknown message type {other!r}.", code="unknown_type", param="type")
        except Refusal as error:
            return [Send(frame_of(error))]

    def receive_bytes(self) -> list[Action]:
        error = Refusal("Messages are JSON in text frames, not binary ones.", code="invalid_frame")
        return [Send(frame_of(error))]

    def begun(self, response_id: str, model: str) -> list[Action]:
        """The turn was accepted."""
        running = self._of(response_id)
        running.writer = ResponseWriter(running.request, response_id, model)
        return [Send(event) for event in running.writer.begin()]

    def refused(self, response_id: str, error: VivaceError) -> list[Action]:
        """The turn was not accepted: an error frame, and no response."""
        self._of(response_id)
        return [Send(frame_of(error)), *self._advance()]

    def outcome(self, response_id: str, outcome: Outcome) -> list[Action]:
        """Something came of the turn."""
        writer = self._of(response_id).writer
        assert writer is not None, "begun comes before outcomes"
        actions: list[Action] = [Send(event) for event in writer.take(outcome)]
        return actions + self._advance() if writer.is_over else actions

    def closed(self) -> list[Action]:
        """The client is gone: what runs is cancelled, what waits is forgotten."""
        self._lane.waiting.clear()
        return [Cancel(self._lane.running.response_id)] if self._lane.running else []

    def _parsed(self, text: str) -> ResponseCreate | ErrorFrame:
        try:
            return parse_create(text)
        except Refusal as error:
            return frame_of(error)

    def _enqueue(self, entry: ResponseCreate | ErrorFrame) -> list[Action]:
        if len(self._lane.waiting) >= MAX_WAITING:
            raise Refusal(
                f"{MAX_WAITING} requests wait on this connection already.",
                code="rate_limit_exceeded",
                status=429,
            )
        self._lane.waiting.append(entry)
        return [] if self._lane.running else self._advance()

    def _advance(self) -> list[Action]:
        """Let the next in the lane run."""
        lane, actions = self._lane, list[Action]()
        if lane.running:
            lane.last_ended, lane.running = lane.running.response_id, None
        while lane.waiting and not lane.running:
            entry = lane.waiting.popleft()
            if isinstance(entry, ErrorFrame):
                actions.append(Send(entry))
            else:
                lane.running = Running(self._new_id(), entry)
                actions.append(Start(lane.running.response_id, entry))
        return actions

    def _cancel(self, response_id: str) -> list[Action]:
        if self._lane.running and self._lane.running.response_id == response_id:
            return [Cancel(response_id)]
        if response_id == self._lane.last_ended:
            return []  # it ended while the cancel was on its way: its terminal event is the answer
        raise Refusal(
            f"No response {response_id} runs here.",
            code="response_not_found",
            status=404,
            param="response_id",
        )

    def _of(self, response_id: str) -> Running:
        running = self._lane.running
        assert running is not None, "nothing runs"
        assert running.response_id == response_id, f"{response_id} does not run"
        return running
