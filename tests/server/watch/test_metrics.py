"""`/metrics`: which series there are, and what the rest of the server counts."""

import asyncio
import time

import pytest

from tests.server.watch.metrics_page import Clock, ended, parsed, value
from vivace.protocol.shapes.outcomes import Broken
from vivace.protocol.shapes.status import EngineStatus
from vivace.server.watch.loop_lag import measure_loop_lag
from vivace.server.watch.metrics import MAX_MODELS, Metrics
from vivace.server.watch.turn_meter import MAX_CODES


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def metrics(clock: Clock) -> Metrics:
    return Metrics(clock)


# ---- labels that clients choose ---------------------------------------------------------------------


def series(metrics: Metrics) -> int:
    return metrics.render().count(b"\n")


def test_names_of_models_make_no_series_without_bound(metrics: Metrics) -> None:
    """A thousand names more make no line more; they are counted together."""
    for number in range(MAX_MODELS):
        metrics.turn_began(f"model-{number}", "realtime").ended(ended())
    metrics.turn_began("one more", "realtime").ended(ended())
    lines = series(metrics)
    for number in range(1000):
        metrics.turn_began(f"another-{number}", "realtime").ended(ended())
    assert series(metrics) == lines
    assert value(metrics, "request_success_total", model_name="other") == 1001


def test_a_model_that_is_served_keeps_its_name(metrics: Metrics) -> None:
    """However many others are asked for first; and its series are there before its first turn."""
    metrics.announce_models(["ours", "second"])
    assert value(metrics, "request_success_total", model_name="ours", finished_reason="stop") == 0
    assert b'vivace:num_requests_running{model_name="ours",tier="realtime"} 0\n' in metrics.render()
    for number in range(1000):
        metrics.turn_began(f"another-{number}", "realtime").ended(ended())
    metrics.turn_began("second", "realtime").ended(ended())
    assert value(metrics, "request_success_total", model_name="second") == 1


@pytest.mark.parametrize("name", ["", "a\nb", "\x1b[31m", "x" * 101, "\u202egnp"])
def test_a_name_that_is_none_is_other(metrics: Metrics, name: str) -> None:
    """Empty, overlong or unprintable."""
    metrics.turn_began(name, "realtime").ended(ended())
    assert value(metrics, "request_success_total", model_name="other") == 1


def test_codes_of_failures_are_words_and_few(metrics: Metrics) -> None:
    """An upstream may put anything into a code: a sentence, or a new word each time."""
    metrics.turn_began("m", "realtime").ended(Broken("you said hello", ""))
    for number in range(2 * MAX_CODES):
        metrics.turn_began("m", "realtime").ended(Broken(f"code_{number}", ""))
    page = metrics.render()
    assert b"hello" not in page
    assert value(metrics, "request_failures_total", code="other") == 1 + MAX_CODES
    assert value(metrics, "request_failures_total", code="code_0") == 1


# ---- the rest of the server -------------------------------------------------------------------------


def engine(**changes: object) -> EngineStatus:
    fields: dict[str, object] = {
        "model": "m",
        "is_ready": True,
        "pid": 1,
        "threads": 1,
        "load_ms": 1.0,
        "turns": 0,
        "sessions": 2,
        "kv_tokens": 250,
        "kv_cells": 1000,
        "session_tokens": 1000,
        "trained_tokens": 1000,
        "parked_bytes": 77,
        "parked_memory_bytes": 88,
        "tokens_prefilled": 5,
        "tokens_generated": 6,
    }
    return EngineStatus(**(fields | changes))  # type: ignore[arg-type]


def test_the_engine_tells_how_full_it_is(metrics: Metrics) -> None:
    """The share of its KV cells, its sessions and what is parked, under its model's name."""
    families = parsed(metrics.render([engine()]))
    of_model = frozenset({("model_name", "m")})
    found = {name: family.samples.get((name, of_model)) for name, family in families.items()}
    assert found["vivace:kv_cache_usage_perc"] == 0.25
    assert found["vivace:engine_up"] == 1
    assert found["vivace:engine_sessions"] == 2
    assert found["vivace:kv_parked_bytes"] == 77
    assert found["vivace:kv_parked_memory_bytes"] == 88
    assert found["vivace:engine_prefilled_tokens_total"] == 5


def test_an_engine_that_does_not_answer_is_not_shown_as_empty(metrics: Metrics) -> None:
    """Counters that fell to zero and came back would look like a million tokens at once."""
    metrics.render([engine()])
    page = metrics.render([engine(is_ready=False, kv_cells=0, kv_tokens=0, tokens_generated=0)])
    assert b'vivace:engine_up{model_name="m"} 0\n' in page
    assert b"vivace:engine_generated_tokens_total{" not in page


def test_a_model_that_was_swapped_out_is_not_shown(metrics: Metrics) -> None:
    """Gauges of the engine are those of now."""
    metrics.render([engine(model="old")])
    assert b'engine_up{model_name="old"}' not in metrics.render([engine(model="new")])


def test_refusals_are_told_apart(metrics: Metrics) -> None:
    """A full queue is the server's, a limit the key's."""
    metrics.refused("queue", "background")
    metrics.refused("tokens", "realtime")
    metrics.refused("requests", "realtime")
    assert value(metrics, "queue_refusals_total", tier="background") == 1
    assert value(metrics, "rate_refusals_total", tier="realtime", limit="tokens") == 1
    assert value(metrics, "rate_refusals_total") == 2


def test_a_write_that_failed_is_not_timed(metrics: Metrics, clock: Clock) -> None:
    """What the store could not do says nothing of how long it takes."""
    with metrics.store_write():
        clock.now = 0.5
    with pytest.raises(OSError, match="full"), metrics.store_write():
        raise OSError("full")
    assert value(metrics, "store_write_seconds_count") == 1
    assert value(metrics, "store_write_seconds_sum") == 0.5


def test_everything_else_counts(metrics: Metrics) -> None:
    """Sockets, restarts and requests to upstreams."""
    metrics.sockets(3)
    metrics.engine_restarted()
    metrics.upstream_answered("far", "timeout")
    metrics.upstream_answered("far", "whatever")
    assert value(metrics, "sockets_open") == 3
    assert value(metrics, "engine_restarts_total") == 1
    assert value(metrics, "upstream_requests_total", upstream="far", outcome="timeout") == 1
    assert value(metrics, "upstream_requests_total", outcome="other") == 1


def test_the_worst_lag_is_that_of_the_last_seconds(metrics: Metrics, clock: Clock) -> None:
    """It is seen by whoever looks within ten seconds, and gone after twenty."""
    metrics.loop_lagged(0.5)
    clock.now = 9.0
    metrics.loop_lagged(0.001)
    assert value(metrics, "loop_lag_max_seconds") == 0.5
    clock.now = 12.0
    metrics.loop_lagged(0.002)
    assert value(metrics, "loop_lag_max_seconds") == 0.5
    clock.now = 23.0
    metrics.loop_lagged(0.001)
    assert value(metrics, "loop_lag_max_seconds") == 0.002
    clock.now = 99.0
    assert value(metrics, "loop_lag_max_seconds") == 0.0


async def test_a_loop_that_was_held_up_is_noticed() -> None:
    """Something blocks the loop for a fifth of a second: a lag of at least half of that is measured."""
    metrics = Metrics()
    task = asyncio.create_task(measure_loop_lag(metrics, interval_s=0.01))
    await asyncio.sleep(0)  # it has begun to wait
    time.sleep(0.2)  # noqa: ASYNC251
    while value(metrics, "loop_lag_seconds_count") == 0:  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    task.cancel()
    assert value(metrics, "loop_lag_max_seconds") > 0.1
