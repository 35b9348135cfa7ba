"""From the engine's having a token to the client's having it, at a thousand tokens a second.

The token is a scripted engine's: nothing is computed, and one comes each millisecond. The time runs from
before its frame is made to when the client has decoded the event that brings it. WebSocket and SSE take
turns. Beside it, the same through a whole engine (scheduler, sampling, sessions), from the end of each pass.
"""

from dataclasses import dataclass

from vivace.bench.figures import median, percentile, ratio
from vivace.bench.rig import Section
from vivace.bench.wire.clients import SocketClient
from vivace.bench.wire.house import House
from vivace.bench.wire.stamps import made_ns, noise
from vivace.bench.wire.turns import Heard, ask_http, ask_socket

STEP_MS = 1.0
SEED = 7


@dataclass(frozen=True)
class Delays:
    """Of one turn's tokens."""

    median_us: float
    p99_us: float
    tokens_per_delta: float


def measure_per_token(house: House, rounds: int, tokens: int) -> Section:
    alone = _measure(house, rounds, tokens, is_engineless=True)
    whole = _measure(house, rounds, tokens, is_engineless=False)
    socket, sse = alone["socket"], alone["sse"]
    return {
        "overhead_us": median([each.median_us for each in socket]),
        "overhead_us_p99": median([each.p99_us for each in socket]),
        "sse_us": median([each.median_us for each in sse]),
        "sse_us_p99": median([each.p99_us for each in sse]),
        "ratio_to_sse": ratio(
            median([each.median_us for each in socket]), median([each.median_us for each in sse])
        ),
        "with_engine_us": median([each.median_us for each in whole["socket"]]),
        "with_engine_sse_us": median([each.median_us for each in whole["sse"]]),
        "tokens_per_delta": median([each.tokens_per_delta for each in socket]),
        "tokens_per_s": 1e3 / STEP_MS,
        "tokens": tokens,
        "rounds": rounds,
    }


def _measure(house: House, rounds: int, tokens: int, *, is_engineless: bool) -> dict[str, list[Delays]]:
    stamps, reply = house.file("stamps"), noise(tokens, SEED)
    model = house.script(
        replies={"": reply},
        step_ms=STEP_MS,
        is_paced=True,
        draft_tokens=0,
        context_tokens=1 << 20,
        stamps=str(stamps),
        is_engineless=is_engineless,
    )
    body = {"model": model, "input": "Go.", "store": False}
    found: dict[str, list[Delays]] = {"socket": [], "sse": []}
    with SocketClient(house.address) as socket:
        for number in range(rounds + 1):
            for kind in found:
                heard = ask_socket(socket, body) if kind == "socket" else ask_http(house.address, body)
                if number:  # the first one of each warms up
                    found[kind].append(_delays(heard, made_ns(stamps, 0, tokens)))
    return found


def _delays(heard: Heard, made: list[int]) -> Delays:
    assert len(heard.arrived_ns) == len(made), "every token is heard"
    delays = [(arrived - was_made) / 1e3 for arrived, was_made in zip(heard.arrived_ns, made, strict=True)]
    return Delays(median(delays), percentile(delays, 0.99), len(made) / heard.deltas)
