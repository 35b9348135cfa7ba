"""What is counted of a turn, and when."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.server.watch.metrics_page import Clock, ended, value
from vivace.protocol.shapes.events import InputTokensDetails, Usage, Waterfall
from vivace.protocol.shapes.outcomes import Broken, Terminal
from vivace.server.watch.metrics import Metrics
from vivace.server.watch.turn_meter import ABORTS, TurnMeter


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def metrics(clock: Clock) -> Metrics:
    return Metrics(clock)


def test_a_turn_waits_then_runs_then_is_neither(metrics: Metrics) -> None:
    """The gauges follow a turn; that it is started twice, on two engines, counts once."""
    labels = {"model_name": "m", "tier": "background"}
    meter = metrics.turn_began("m", "background")
    assert value(metrics, "num_requests_waiting", **labels) == 1
    meter.started()
    meter.started()
    assert value(metrics, "num_requests_waiting", **labels) == 0
    assert value(metrics, "num_requests_running", **labels) == 1
    meter.ended(ended())
    assert value(metrics, "num_requests_running", **labels) == 0


def test_the_first_token_is_timed_from_the_request(metrics: Metrics, clock: Clock) -> None:
    """Waiting is part of it."""
    meter = metrics.turn_began("m", "realtime")
    clock.now = 1.5
    meter.started()
    clock.now = 2.0
    meter.tokens(1)
    assert value(metrics, "time_to_first_token_seconds_sum") == 2.0
    assert value(metrics, "inter_token_latency_seconds_count") == 0


def test_a_burst_of_drafted_tokens_is_one_interval(metrics: Metrics, clock: Clock) -> None:
    """Between frames, not between the tokens of one: those come together."""
    meter = metrics.turn_began("m", "realtime")
    for now, count in ((1.0, 1), (1.5, 8), (1.75, 1)):
        clock.now = now
        meter.tokens(count)
    assert value(metrics, "inter_token_latency_seconds_count") == 2
    assert value(metrics, "inter_token_latency_seconds_sum") == 0.75
    assert value(metrics, "generation_tokens_total") == 10


def test_tokens_that_were_not_counted_are_taken_from_the_usage(metrics: Metrics) -> None:
    """An upstream's frames do not say how many tokens they hold; its usage does, and none counts twice."""
    meter = metrics.turn_began("m", "realtime")
    meter.tokens(0)
    meter.tokens(3)
    meter.ended(ended(usage=Usage(10, 7, 17)))
    assert value(metrics, "generation_tokens_total") == 7


def test_an_ended_turn_is_accounted_for(metrics: Metrics, clock: Clock) -> None:
    """Usage and waterfall go into counters and histograms, in seconds."""
    meter = metrics.turn_began("m", "realtime")
    meter.started()
    clock.now = 1.0
    meter.tokens(2)
    clock.now = 4.0
    meter.tokens(2)
    clock.now = 5.0
    usage = Usage(100, 4, 104, InputTokensDetails(cached_tokens=60))
    times = Waterfall(
        queue_ms=250, prefill_ms=500, steps=3, restored_tokens=20, draft_accepted=2, draft_rejected=5
    )
    meter.ended(ended("length", usage=usage, waterfall=times))
    assert {
        name: value(metrics, name, model_name="m", tier="realtime")
        for name in (
            *("prompt_tokens_total", "prefix_cache_queries_total", "prefix_cache_hits_total"),
            *("kv_restored_tokens_total", "forward_passes_total", "generation_tokens_total"),
            *("spec_decode_num_draft_tokens_total", "spec_decode_num_accepted_tokens_total"),
            *("spec_decode_num_rejected_tokens_total", "request_queue_time_seconds_sum"),
            *("request_prefill_time_seconds_sum", "request_decode_time_seconds_sum"),
            *("request_time_per_output_token_seconds_sum", "e2e_request_latency_seconds_sum"),
            *("request_prompt_tokens_sum", "request_generation_tokens_sum"),
        )
    } == {
        "prompt_tokens_total": 100,
        "prefix_cache_queries_total": 100,
        "prefix_cache_hits_total": 60,
        "kv_restored_tokens_total": 20,
        "forward_passes_total": 3,
        "generation_tokens_total": 4,
        "spec_decode_num_draft_tokens_total": 7,
        "spec_decode_num_accepted_tokens_total": 2,
        "spec_decode_num_rejected_tokens_total": 5,
        "request_queue_time_seconds_sum": 0.25,
        "request_prefill_time_seconds_sum": 0.5,
        "request_decode_time_seconds_sum": 3.0,
        "request_time_per_output_token_seconds_sum": 1.0,
        "e2e_request_latency_seconds_sum": 5.0,
        "request_prompt_tokens_sum": 100,
        "request_generation_tokens_sum": 4,
    }


@pytest.mark.parametrize(
    ("outcome", "finished"),
    [
        (ended("stop"), "stop"),
        (ended("length"), "length"),
        (ended("interrupted"), "abort"),
        (ended("steered"), "abort"),
        (ended("something new"), "abort"),
        (ended("appended"), "prefill"),
        (ended("scored"), "score"),
        (Broken("engine_died", "Twice."), "error"),
    ],
)
def test_every_end_has_its_reason(metrics: Metrics, outcome: Terminal, finished: str) -> None:
    """One turn is one in `request_success_total`, under vLLM's name for how it ended."""
    metrics.turn_began("m", "realtime").ended(outcome)
    assert value(metrics, "request_success_total", finished_reason=finished) == 1
    assert value(metrics, "request_success_total") == 1


@pytest.mark.parametrize("outcome", [ended("interrupted"), ended("appended"), Broken("x", "y")])
def test_what_was_cut_short_does_not_pull_the_latency_down(metrics: Metrics, outcome: Terminal) -> None:
    """The time of whole requests is that of requests which were answered."""
    metrics.turn_began("m", "realtime").ended(outcome)
    assert value(metrics, "e2e_request_latency_seconds_count") == 0


@pytest.mark.parametrize("reason", ABORTS)
def test_an_abort_is_counted_with_its_reason_and_its_time(
    metrics: Metrics, clock: Clock, reason: str
) -> None:
    """From when someone asked for it to when the turn is over."""
    meter = metrics.turn_began("m", "realtime")
    clock.now = 1.0
    meter.aborting(reason)
    clock.now = 1.25
    meter.ended(ended("interrupted"))
    assert value(metrics, "request_aborts_total", reason=reason) == 1
    assert value(metrics, "request_aborts_total") == 1
    assert value(metrics, "abort_to_free_seconds_sum") == 0.25


def test_an_interrupt_takes_the_reason_that_comes_with_it(metrics: Metrics, clock: Clock) -> None:
    """`interrupted` gives way to why; another reason does not; the time is that of the first."""
    meter = metrics.turn_began("m", "realtime")
    for now, reason in ((1.0, "interrupted"), (2.0, "client_gone"), (3.0, "shutdown")):
        clock.now = now
        meter.aborting(reason)
    clock.now = 4.0
    meter.ended(ended("interrupted"))
    assert value(metrics, "request_aborts_total", reason="client_gone") == 1
    assert value(metrics, "request_aborts_total") == 1
    assert value(metrics, "abort_to_free_seconds_sum") == 3.0


def test_an_abort_that_came_too_late_is_none(metrics: Metrics) -> None:
    """The turn had said its last token: it stopped by itself."""
    meter = metrics.turn_began("m", "realtime")
    meter.aborting("client_gone")
    meter.ended(ended("stop"))
    assert value(metrics, "request_aborts_total") == 0
    assert value(metrics, "abort_to_free_seconds_count") == 0


def test_nothing_counts_after_the_end(metrics: Metrics) -> None:
    """A late token, a second interrupt, a second end: the numbers stay."""
    meter = metrics.turn_began("m", "realtime")
    meter.ended(ended("stop"))
    before = metrics.render()
    meter.started()
    meter.tokens(5)
    meter.aborting("shutdown")
    meter.ended(ended("length"))
    assert metrics.render() == before


CALLS: list[Callable[[TurnMeter], None]] = [
    lambda meter: meter.started(),
    lambda meter: meter.tokens(3),
    lambda meter: meter.aborting("client_gone"),
    lambda meter: meter.ended(ended("stop")),
    lambda meter: meter.ended(ended("interrupted")),
    lambda meter: meter.ended(Broken("code", "message")),
]


@given(st.lists(st.tuples(st.integers(0, 2), st.sampled_from(CALLS))))
def test_whatever_happens_to_turns_the_gauges_come_back_to_zero(
    calls: list[tuple[int, Callable[[TurnMeter], None]]],
) -> None:
    """In any order of calls on three turns: at most three are here, and none when all are over."""
    metrics = Metrics(Clock())
    turns = [metrics.turn_began("m", "realtime") for _ in range(3)]
    for index, call in calls:
        call(turns[index])
        here = value(metrics, "num_requests_running"), value(metrics, "num_requests_waiting")
        assert min(here) >= 0
        assert sum(here) == sum(not turn.is_over for turn in turns)
    for turn in turns:
        turn.ended(ended())
    assert value(metrics, "num_requests_running") == value(metrics, "num_requests_waiting") == 0
    assert value(metrics, "request_success_total") == 3
