"""The first token of a real model: in a session that is warm on its socket, and by HTTP with nothing cached.

Both ask the same at the end of a conversation of the same length. On the socket it was prefilled before, as
in any session that goes on; the HTTP request opens a connection and sends it whole, and no cache has anything
of it. Beside them: by HTTP when the engine still has the conversation, as when a client comes back.
"""

import random
import time
from dataclasses import dataclass, field
from typing import Any

from vivace.bench.engine.context import Section
from vivace.bench.engine.prompts import WORDS
from vivace.bench.figures import median
from vivace.bench.served.clients import SocketClient
from vivace.bench.served.own_server import BenchServer
from vivace.bench.served.turns import MeasuredTurn, ask_http, ask_socket
from vivace.bench.wire import conversation

NEWS_WORDS = 60
OUTPUT_TOKENS = 4


@dataclass
class Sides:
    warm: list[MeasuredTurn] = field(default_factory=list)
    cold: list[MeasuredTurn] = field(default_factory=list)
    matched: list[MeasuredTurn] = field(default_factory=list)


def measure_first_token(server: BenchServer, model: str, rounds: int, chars: int) -> Section:
    sides, chance = Sides(), random.Random(time.monotonic_ns())
    body = {"model": model, "store": False, "max_output_tokens": OUTPUT_TOKENS, "temperature": 0}
    for _ in range(rounds):
        _round(server, body, chars, chance, sides)
    warm, cold = (_median_ms(each) for each in (sides.warm, sides.cold))
    return {
        "reduction": 1.0 - warm / cold,
        "socket_ms": warm,
        "http_ms": cold,
        "http_matched_ms": _median_ms(sides.matched),
        "socket_new_tokens": round(median([each.times.new_tokens for each in sides.warm])),
        "http_new_tokens": round(median([each.times.new_tokens for each in sides.cold])),
        "http_cached_tokens": round(median([each.times.cached_tokens for each in sides.cold])),
        "rounds": rounds,
    }


def _round(
    server: BenchServer, body: dict[str, Any], chars: int, chance: random.Random, sides: Sides
) -> None:
    with SocketClient(
        server.address
    ) as socket:  # closed before the rest, while nobody would answer its pings
        session = conversation.opening(str(chance.random()), chars)
        prefilled = ask_socket(socket, body | {"input": session, "generate": False}).answer
        assert prefilled
        news = {"input": [_question(chance)], "previous_response_id": prefilled.id}
        sides.warm.append(ask_socket(socket, body | news))
    history = [*conversation.opening(str(chance.random()), chars), _question(chance)]
    for side in (sides.cold, sides.matched):
        side.append(measured := ask_http(server.address, body | {"input": history}))
        assert measured.answer
        history += [*measured.answer.output, _question(chance)]


def _question(chance: random.Random) -> conversation.Item:
    text = " ".join(chance.choices(WORDS, k=NEWS_WORDS))
    return {"type": "message", "role": "user", "content": [conversation.part(text)]}


def _median_ms(measured: list[MeasuredTurn]) -> float:
    return median([each.first_token_ms for each in measured])
