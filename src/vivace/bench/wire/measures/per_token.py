"""From the engine's having a token to the client's having it, at a thousand tokens a second.

The token is a scripted engine's: nothing is computed, and one comes each millisecond. The time runs from
before its frame is made to when the client has decoded the event that brings it. WebSocket and SSE take
turns. Beside it, the same through a whole engine (scheduler, sampling, sessions), from the end of each pass;
and the floor: the same way through three processes of which the one in the middle does nothing.
"""

import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from vivace.bench.child import Child
from vivace.bench.engine.context import Section
from vivace.bench.figures import median, percentile, ratio
from vivace.bench.served.clients import READ_BYTES, SocketClient, connected
from vivace.bench.served.own_server import BenchServer
from vivace.bench.served.turns import MeasuredTurn, ask_http, ask_socket
from vivace.bench.wire.stamps import made_ns, noise
from vivace.engine.wire.frames import Finished, Tokens, server_unpacker
from vivace.errors import ServerGone

STEP_MS = 1.0
SEED = 7
EXIT_S = 5.0


@dataclass(frozen=True)
class Delays:
    """The delays of one turn's tokens."""

    median_us: float
    p99_us: float
    tokens_per_delta: float


def measure_per_token(server: BenchServer, rounds: int, tokens: int) -> Section:
    stamps, relayed, stepped = (server.file("stamps") for _ in range(3))
    model = _model(server, stamps, tokens)
    with SocketClient(server.address) as client, _relay(_model(server, relayed, tokens)) as link:
        alone = _take_turns(
            {
                "socket": lambda: _delays(ask_socket(client, _body(model)), stamps, tokens),
                "sse": lambda: _delays(ask_http(server.address, _body(model)), stamps, tokens),
                "floor": lambda: _delays(_read_frames(link), relayed, tokens),
            },
            rounds,
        )
        whole_model = _model(server, stepped, tokens, is_engineless=False)
        whole = _take_turns(
            {
                "socket": lambda: _delays(ask_socket(client, _body(whole_model)), stepped, tokens),
                "sse": lambda: _delays(ask_http(server.address, _body(whole_model)), stepped, tokens),
            },
            rounds,
        )
    ours, sse = _middle(alone["socket"]), _middle(alone["sse"])
    return {
        "overhead_us": ours.median_us,
        "overhead_us_p99": ours.p99_us,
        "sse_us": sse.median_us,
        "sse_us_p99": sse.p99_us,
        "ratio_to_sse": ratio(ours.median_us, sse.median_us),
        "floor_us": _middle(alone["floor"]).median_us,
        "with_engine_us": _middle(whole["socket"]).median_us,
        "with_engine_sse_us": _middle(whole["sse"]).median_us,
        "tokens_per_delta": ours.tokens_per_delta,
        "tokens_per_s": 1e3 / STEP_MS,
        "tokens": tokens,
        "rounds": rounds,
    }


def _take_turns(asks: dict[str, Callable[[], Delays]], rounds: int) -> dict[str, list[Delays]]:
    found: dict[str, list[Delays]] = {kind: [] for kind in asks}
    for _ in range(rounds + 1):
        for kind, ask in asks.items():
            found[kind].append(ask())
    return {kind: delays[1:] for kind, delays in found.items()}  # the first one warms up


def _body(model: str) -> dict[str, Any]:
    return {"model": model, "input": "Go.", "store": False}


def _model(server: BenchServer, stamps: Path, tokens: int, *, is_engineless: bool = True) -> str:
    return server.script(
        replies={"": noise(tokens, SEED)},
        step_ms=STEP_MS,
        is_paced=True,
        draft_tokens=0,
        context_tokens=1 << 20,
        stamps=str(stamps),
        is_engineless=is_engineless,
    )


@contextmanager
def _relay(model: str) -> Iterator[socket.socket]:
    """Start the relay and connect to it."""
    child = Child("vivace.bench.wire.measures.relay", model, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    try:
        assert child.process.stdout
        with child.process.stdout as output:
            port = output.readline()
        if not port:
            raise child.why_it_ended("The relay")
        with connected(int(port)) as link:
            yield link
    finally:
        child.end(timeout_s=EXIT_S)


def _read_frames(link: socket.socket) -> MeasuredTurn:
    """Read one turn as the engine's own frames."""
    measured, unpacker = MeasuredTurn(time.monotonic_ns()), server_unpacker()
    link.sendall(b"?")
    while not measured.ended_ns:
        if not (data := link.recv(READ_BYTES)):
            raise ServerGone("The relay has ended.")
        for frame in unpacker.feed(data):
            if isinstance(frame, Tokens):
                measured.arrived_ns += [time.monotonic_ns()] * len(frame.tokens)
                measured.deltas += 1
            elif isinstance(frame, Finished):
                measured.ended_ns = time.monotonic_ns()
    measured.arrived_ns.pop()  # the token that ends the reply is no part of its text
    return measured


def _delays(measured: MeasuredTurn, stamps: Path, tokens: int) -> Delays:
    made = made_ns(stamps, 0, tokens)
    assert len(measured.arrived_ns) == tokens, "every token arrived"
    delays = [(arrived - was_made) / 1e3 for arrived, was_made in zip(measured.arrived_ns, made, strict=True)]
    return Delays(median(delays), percentile(delays, 0.99), tokens / measured.deltas)


def _middle(rounds: list[Delays]) -> Delays:
    medians = (median([getattr(each, field.name) for each in rounds]) for field in fields(Delays))
    return Delays(*medians)
