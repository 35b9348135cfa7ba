"""One turn as a client sees it: what came, and when.

Owns the clock: `time.monotonic_ns`, which all processes of a machine share. An event is in the client's hands
when its JSON is decoded; only what a measure needs of it is.
"""

import time
from dataclasses import dataclass, field
from typing import Any

import msgspec

from vivace.bench.wire.clients import Client, HttpClient, SocketClient
from vivace.client.warm import ServerAddress
from vivace.errors import RequestRefused
from vivace.protocol.shapes.events import Waterfall

ENDS = frozenset({"response.completed", "response.incomplete", "response.failed"})


class Told(msgspec.Struct, frozen=True):
    """What of an event is read at once; the rest stays bytes."""

    type: str
    delta: str = ""
    response: msgspec.Raw = msgspec.Raw()


class Extension(msgspec.Struct, frozen=True):
    waterfall: Waterfall


class Answer(msgspec.Struct, frozen=True):
    """A response when it is over."""

    id: str
    status: str
    vivace: Extension
    output: list[dict[str, Any]] = []


_told = msgspec.json.Decoder(Told).decode
_answer = msgspec.json.Decoder(Answer).decode


@dataclass
class Heard:
    """A turn. `arrived_ns` has one entry for each character that was said."""

    begun_ns: int
    arrived_ns: list[int] = field(default_factory=list)
    deltas: int = 0
    ended_ns: int = 0
    answer: Answer | None = None

    def hear(self, event: bytes) -> None:
        told = _told(event)
        if told.type.endswith(".delta"):
            self.arrived_ns += [time.monotonic_ns()] * len(told.delta)
            self.deltas += 1
        elif told.type in ENDS:
            self.ended_ns = time.monotonic_ns()
            self.answer = _answer(told.response)
        elif told.type == "error":
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
        """An answer without a character has an end, which is a token too."""
        return ((self.arrived_ns or [self.ended_ns])[0] - self.begun_ns) / 1e6

    @property
    def overhead_ms(self) -> float:
        """All that is not the model's: its passes over the prompt, and from its first token to its last."""
        return self.whole_ms - self.times.prefill_ms - self.times.decode_ms


def ask_socket(socket: SocketClient, message: dict[str, Any]) -> Heard:
    """A turn on a connection that is open."""
    begun = time.monotonic_ns()
    socket.send(message)
    return _listen(socket, begun)


def ask_http(address: ServerAddress, body: dict[str, Any]) -> Heard:
    """A turn on a connection of its own."""
    begun = time.monotonic_ns()
    with HttpClient(address, body) as client:
        return _listen(client, begun)


def _listen(client: Client, begun_ns: int) -> Heard:
    """A turn to its end. `begun_ns`: before anything was done for it."""
    heard = Heard(begun_ns)
    while not heard.answer:
        for event in client.read():
            heard.hear(event)
    if heard.answer.status not in ("completed", "incomplete"):
        raise RequestRefused(f"The server could not answer: {heard.answer}.")
    return heard
