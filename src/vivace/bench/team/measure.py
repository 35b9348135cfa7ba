"""Several users at once, as their clients see it: what arrives on all sockets, and what the engine said.

All begin at the same moment, each with a prompt and a seed of its own. The speed is that of the time in which
all of them have text and none has ended. Text is counted in characters and told in tokens by each turn's own
mean. Owns what is asked and how it is counted. Does not own the server or the limits (`run`).
"""

import selectors
import time
from collections.abc import Sequence
from contextlib import ExitStack

from vivace.bench.engine.context import Section
from vivace.bench.figures import median, percentile
from vivace.bench.served.clients import SocketClient
from vivace.bench.served.own_server import BenchServer
from vivace.bench.served.turns import MeasuredTurn
from vivace.errors import RequestRefused

OUTPUT_TOKENS = 300
SILENCE_S = 120.0
TEMPERATURE = 0.5


def measure_team(server: BenchServer, users: int, *, tokens: int = OUTPUT_TOKENS) -> Section:
    """Let so many users ask at once. Return the speed of all, and of one among them."""
    with ExitStack() as stack:
        clients = [stack.enter_context(SocketClient(server.address)) for _ in range(users)]
        asked = [_request(user, tokens) for user in range(users)]
        return figures(_read_all(clients, asked))


def _request(user: int, tokens: int) -> dict[str, object]:
    """Ask for a text that is longer than `tokens`, another one of every user."""
    first = 117 + 17 * user
    text = f"Count from {first} to {first + 900}: write each number in words on a line of its own."
    sampled = {"temperature": TEMPERATURE, "seed": user}
    return {"input": text, "store": False, "max_output_tokens": tokens, **sampled}


def _read_all(clients: list[SocketClient], requests: Sequence[dict[str, object]]) -> list[MeasuredTurn]:
    """Begin a turn on every socket and read all of them to their ends."""
    measured = [MeasuredTurn(0) for _ in clients]
    with selectors.DefaultSelector() as selector:
        for client, request, turn in zip(clients, requests, measured, strict=True):
            selector.register(client.link, selectors.EVENT_READ, (client, turn))
            turn.begun_ns = time.monotonic_ns()
            client.send(request)
        while waiting := selector.get_map():
            ready = selector.select(SILENCE_S)
            if not ready:
                raise RequestRefused(f"{len(waiting)} of {len(clients)} turns say nothing any more.")
            for key, _ in ready:
                client, turn = key.data
                for event in client.read():
                    turn.receive(event)
                if turn.answer:
                    selector.unregister(client.link)
    return measured


def figures(turns: Sequence[MeasuredTurn]) -> Section:
    """Return what all turns had together while all of them wrote, and the engine's speed in them."""
    lasting = [turn for turn in turns if turn.answer and turn.answer.status == "incomplete"]
    if not lasting:
        raise RequestRefused("Every turn ended by itself after a few tokens: this model counts badly.")
    begun, ended = max(t.arrived_ns[0] for t in lasting), min(t.arrived_ns[-1] for t in lasting)
    arrived = sum(_tokens_between(turn, begun, ended) for turn in turns)
    seconds = (ended - begun) / 1e9
    arrived_per_s = arrived / seconds if seconds > 0 else 0.0
    engine_per_s = sum(turn.times.output_tokens / turn.times.decode_ms for turn in turns) * 1e3
    return {
        "tokens_per_s": arrived_per_s,
        "tokens_per_s_each": arrived_per_s / len(turns),
        "engine_tokens_per_s": engine_per_s,
        "delivered_share": arrived_per_s / engine_per_s,
        "first_token_ms": median([turn.first_token_ms for turn in turns]),
        "first_token_ms_p95": percentile([turn.first_token_ms for turn in turns], 0.95),
        "tokens_per_event": sum(t.times.output_tokens for t in turns) / sum(t.deltas for t in turns),
        "tokens": sum(turn.times.output_tokens for turn in turns),
        "ended_early": len(turns) - len(lasting),
    }


def _tokens_between(turn: MeasuredTurn, begun_ns: int, ended_ns: int) -> float:
    characters = sum(begun_ns < at <= ended_ns for at in turn.arrived_ns)
    return characters * turn.times.output_tokens / len(turn.arrived_ns)
