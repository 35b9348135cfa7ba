"""A tool loop twice: on one WebSocket with what is new; with a new connection and everything each turn.

Both loops say the same, against the same engine, turn about. What is compared is the time of a turn that is
not the model's: all that passes between the client's wish to ask and the last event in its hands, without the
model's passes over the prompt and without its time from the first token to the last. The model is scripted,
as fast as a GPU's, and speaks a real vocabulary, so that tokenizing costs what it costs. Nothing is stored.
"""

import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from msgspec.json import encode

from vivace.bench.engine.context import Section
from vivace.bench.figures import median
from vivace.bench.served.clients import SocketClient
from vivace.bench.served.own_server import BenchServer
from vivace.bench.served.turns import FinishedResponse, MeasuredTurn, ask_http, ask_socket
from vivace.bench.wire import conversation

SCRIPT: dict[str, Any] = {
    "replies": {"": conversation.CALL_TEXT},
    "step_ms": 1.0,
    "prefill_token_ms": 0.02,
    "pass_tokens": 2048,
    "draft_tokens": 0,
    "context_tokens": 1 << 17,
}


@dataclass
class Loop:
    """The turns of one side."""

    overhead_ms: list[float] = field(default_factory=list)
    measured: list[MeasuredTurn] = field(default_factory=list)
    sent_bytes: int = 0  # by what would be the next turn

    def add(self, measured: MeasuredTurn) -> FinishedResponse:
        """Keep a turn and return its response, which ends with a call."""
        self.measured.append(measured)
        self.overhead_ms.append(measured.overhead_ms)
        assert measured.answer
        assert measured.answer.output[0]["type"] == "function_call", measured.answer.output
        return measured.answer


def measure_roundtrip(server: BenchServer, vocabulary: Path, loops: int, turns: int) -> Section:
    model = server.script(**SCRIPT, vocabulary=str(vocabulary))
    with SocketClient(server.address) as socket:
        _loops(server, socket, model, number=0, turns=2)  # the engine starts, code is loaded
        pairs = [_loops(server, socket, model, number, turns) for number in range(1, loops + 1)]
    ours, theirs = _side([one for one, _ in pairs]), _side([other for _, other in pairs])
    return {
        "overhead_reduction": 1.0 - ours["overhead_ms"] / theirs["overhead_ms"],
        "socket": ours,
        "http": theirs,
        "turns": turns,
        "loops": loops,
    }


def _side(loops: list[Loop]) -> Section:
    """Return the time outside of the model, and its largest parts as the server measured them."""
    measured = [turn for loop in loops for turn in loop.measured]
    return {
        "overhead_ms": median([median(loop.overhead_ms) for loop in loops]),
        "overhead_ms_last_turn": median([loop.overhead_ms[-1] for loop in loops]),
        "tokenize_ms": median([turn.times.tokenize_ms for turn in measured]),
        "outside_server_ms": median([turn.whole_ms - turn.times.total_ms for turn in measured]),
        "model_ms": median([turn.times.prefill_ms + turn.times.decode_ms for turn in measured]),
        "sent_kb_last_turn": median([loop.sent_bytes / 1e3 for loop in loops]),
    }


def _loops(
    server: BenchServer, socket: SocketClient, model: str, number: int, turns: int
) -> tuple[Loop, Loop]:
    chance = random.Random(number)
    one, other = Loop(), Loop()
    request = {"model": model, "tools": conversation.tools(), "store": False}
    news, history = conversation.opening(f"{number} one"), conversation.opening(f"{number} other")
    previous = None
    for _ in range(turns):
        measured = one.add(ask_socket(socket, request | {"input": news, "previous_response_id": previous}))
        previous = measured.id
        said = conversation.output(measured.output[0]["call_id"], chance)
        news = [said]
        measured = other.add(ask_http(server.address, request | {"input": history}))
        history = [*history, *measured.output, said | {"call_id": measured.output[0]["call_id"]}]
    one.sent_bytes, other.sent_bytes = (len(encode(request | {"input": each})) for each in (news, history))
    return one, other
