"""One turn as a client sees it: which events came, and when.

Owns the clock: `time.monotonic_ns`, which all processes of a machine share. An event has arrived when its
JSON is decoded, as far as a measure needs it.
"""

import time
from dataclasses import dataclass, field
from typing import Any

import msgspec

from vivace.bench.served.clients import Client, HttpClient, SocketClient
from vivace.client.warm import ServerAddress
from vivace.errors import RequestRefused
from vivace.protocol.shapes.events import Waterfall

ENDS = frozenset({"response.completed", "response.incomplete", "response.failed"})


class EventHead(msgspec.Struct, frozen=True):
    """The fields of an event that are decoded at once; the response stays bytes."""

    type: str
    delta: str = ""
    response: msgspec.Raw = msgspec.Raw()


class Extension(msgspec.Struct, frozen=True):
    waterfall: Waterfall


class FinishedResponse(msgspec.Struct, frozen=True):
    """The response in a terminal event."""

    id: str
    status: str
    vivace: Extension
    output: list[dict[str, Any]] = []


_decode_head = msgspec.json.Decoder(EventHead).decode
_decode_response = msgspec.json.Decoder(FinishedResponse).decode


@dataclass
class MeasuredTurn:
    """A turn and its times. `arrived_ns` has one entry for each character of its text."""

    begun_ns: int
    arrived_ns: list[int] = field(default_factory=list)
    deltas: int = 0
    ended_ns: int = 0
    answer: FinishedResponse | None = None

    def receive(self, event: bytes) -> None:
        head = _decode_head(event)
        if head.type.endswith(".delta"):
            self.arrived_ns += [time.monotonic_ns()] * len(head.delta)
            self.deltas += 1
        elif head.type in ENDS:
            self.ended_ns = time.monotonic_ns()
            self.answer = _decode_response(head.response)
        elif head.type == "error":
            raise RequestRefused(f"The server refused: {event.decode()}.")

    @property
    def times(self) -> Waterfall:
        assert self.answer, "it is not over"
        return self.answer.vivace.waterfall

    @property
    def whole_ms(self) -> float:
        return (self.ended_ns - self.begun_ns) / 1e6

    @property
    def first_token_ms(self) -> float:
        """Return the time to the first token; the end token where there is no text."""
        return ((self.arrived_ns or [self.ended_ns])[0] - self.begun_ns) / 1e6

    @property
    def overhead_ms(self) -> float:
        """Return the time that is neither prefill nor decode."""
        return self.whole_ms - self.times.prefill_ms - self.times.decode_ms


def ask_socket(socket: SocketClient, message: dict[str, Any]) -> MeasuredTurn:
    """Run a turn on an open connection."""
    begun = time.monotonic_ns()
    socket.send(message)
    return _listen(socket, begun)


def ask_http(address: ServerAddress, body: dict[str, Any]) -> MeasuredTurn:
    """Run a turn on a new connection."""
    begun = time.monotonic_ns()
    with HttpClient(address, body) as client:
        return _listen(client, begun)


def _listen(client: Client, begun_ns: int) -> MeasuredTurn:
    """Read a turn to its end."""
    measured = MeasuredTurn(begun_ns)
    while not measured.answer:
        for event in client.read():
            measured.receive(event)
    if measured.answer.status not in ("completed", "incomplete"):
        raise RequestRefused(f"The server could not answer: {measured.answer}.")
    return measured
