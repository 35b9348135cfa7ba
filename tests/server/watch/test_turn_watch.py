"""What is told of turns: once to each who listens, and never to the turn's harm."""

import gc
import logging
import weakref
from typing import Any

import pytest

from tests.server.watch.metrics_page import ended, value
from vivace.protocol.shapes.outcomes import Broken
from vivace.protocol.shapes.parsing import parse_create
from vivace.protocol.shapes.requests import ResponseCreate
from vivace.server.caller import Caller
from vivace.server.turns.limits import RateRefused
from vivace.server.watch.metrics import MAX_NAME_CHARS
from vivace.server.watch.tracing import Tracing
from vivace.server.watch.turn_watch import TurnWatch, Watch


def began(watch: Watch, model: str = "m") -> TurnWatch:
    return watch.began("resp_1", ResponseCreate(input="hi", model=model), Caller())


def test_nothing_is_kept_of_a_turn_that_is_over() -> None:
    """Or a server that runs for weeks would hold every turn it ever had."""
    watch = Watch()
    turn = began(watch)
    turn.started()
    turn.ended(ended())
    memory = weakref.ref(turn)
    del turn
    gc.collect()
    assert memory() is None


def test_a_turn_that_is_withdrawn_counts_nowhere() -> None:
    """Its backend refused to begin it: it neither waits nor ended."""
    watch = Watch()
    turn = began(watch)
    turn.withdraw()
    turn.withdraw()
    turn.ended(ended())
    assert value(watch.metrics, "num_requests_waiting") == 0
    assert value(watch.metrics, "request_success_total") == 0


def test_it_is_known_why_a_client_s_turn_was_interrupted() -> None:
    """The client went away: that is the reason, although the turn itself only says `interrupted`."""
    watch = Watch()
    turn = began(watch)
    turn.aborting("client_gone")
    turn.aborting("interrupted")
    turn.ended(ended("interrupted"))
    turn.aborting("client_gone")
    assert value(watch.metrics, "request_aborts_total", reason="client_gone") == 1


def test_what_a_limit_refused_is_counted() -> None:
    """By the limit that did; other refusals are the client's own."""
    watch = Watch()
    watch.refused(RateRefused("", limit="queue", retry_after_s=1.0, headers={}), "realtime")
    watch.refused(RateRefused("", limit="tokens", retry_after_s=1.0, headers={}), "background")
    with pytest.raises(Exception, match="JSON") as refusal:
        parse_create(b"{")
    watch.refused(refusal.value, "realtime")  # type: ignore[arg-type]
    assert value(watch.metrics, "queue_refusals_total", tier="realtime") == 1
    assert value(watch.metrics, "rate_refusals_total", tier="background", limit="tokens") == 1
    assert value(watch.metrics, "rate_refusals_total") == 1


def test_a_name_of_a_megabyte_makes_no_such_line(caplog: pytest.LogCaptureFixture) -> None:
    """Names of models come from clients where an upstream takes any."""
    turn = began(Watch(), "x" * 1_000_000)
    with caplog.at_level(logging.INFO, "vivace.turns"):
        turn.ended(ended())
    assert caplog.records[0].fields["model"] == "x" * MAX_NAME_CHARS  # type: ignore[attr-defined]


class Faulty:
    """A tracer provider whose spans fail: when they begin, or when they end."""

    def __init__(self, *, is_beginning: bool) -> None:
        self._is_beginning = is_beginning

    def get_tracer(self, *_: object) -> "Faulty":
        return self

    def start_span(self, *_: object, **__: object) -> "Faulty":
        if not self._is_beginning:
            raise RuntimeError("no span")
        return self

    def is_recording(self) -> bool:
        raise RuntimeError("no end")


@pytest.mark.parametrize("is_beginning", [False, True])
def test_a_trace_that_fails_does_the_turn_no_harm(
    is_beginning: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """It is logged; the turn goes on and is counted."""
    pytest.importorskip("opentelemetry.trace", reason="the packages of vivace[otel] are not installed")
    provider: Any = Faulty(is_beginning=is_beginning)
    watch = Watch(tracing=Tracing(provider))
    turn = began(watch)
    turn.started()
    turn.ended(Broken("engine_died", ""))
    assert value(watch.metrics, "request_failures_total", code="engine_died") == 1
    assert "span" in caplog.text
