"""What is told of turns to those who watch the server: metrics, the log line and the span of each.

Owns that each of the three hears of a turn once, and that a mistake in telling never harms the turn. Does not
own what they say of it: `metrics`, `turn_meter`, `logs`, `tracing`.
"""

import logging

from vivace.errors import VivaceError
from vivace.protocol.shapes.outcomes import Broken, Terminal
from vivace.protocol.shapes.status import EngineStatus
from vivace.server.backends.base import Turn
from vivace.server.turns.limits import RateRefused
from vivace.server.watch.logs import log_turn
from vivace.server.watch.metrics import MAX_NAME_CHARS, Metrics
from vivace.server.watch.tracing import Tracing, TurnSpan
from vivace.server.watch.turn_meter import TurnMeter

log = logging.getLogger(__name__)


class Watch:
    def __init__(self, metrics: Metrics | None = None, tracing: Tracing | None = None) -> None:
        self.metrics = metrics or Metrics()
        self._tracing = tracing
        self._turns: dict[str, TurnWatch] = {}  # by response id, until they are over

    def began(self, turn: Turn, *, traceparent: str = "", provider: str = "vivace") -> "TurnWatch":
        """A request was accepted, and may have to wait. `traceparent`: the header of that name, if any."""
        meter = self.metrics.turn_began(turn.model, turn.request.tier)
        watch = self._turns[turn.id] = TurnWatch(turn, meter, self._span(turn, traceparent, provider))
        return watch

    def refused(self, error: VivaceError, tier: str) -> None:
        """A request was not accepted; only what limits and the queue refuse is counted."""
        if isinstance(error, RateRefused):
            self.metrics.refused(error.limit, tier)

    def gone(self, turn: Turn, why: str = "client_gone") -> None:
        """It is about to be interrupted, and this is why: see `turn_meter.ABORTS`."""
        if watch := self._turns.get(turn.id):
            watch.aborting(why)

    def ended(self, turn: Turn, outcome: Terminal) -> None:
        if watch := self._turns.pop(turn.id, None):
            watch.ended(outcome)

    def text(self, *engines: EngineStatus) -> bytes:
        """`GET /metrics`."""
        return self.metrics.render(engines)

    def _span(self, turn: Turn, traceparent: str, provider: str) -> TurnSpan | None:
        if self._tracing is None:
            return None
        try:
            return self._tracing.turn_began(
                turn.request,
                response_id=turn.id,
                model=turn.model[:MAX_NAME_CHARS],
                traceparent=traceparent,
                provider=provider,
            )
        except Exception:
            log.exception("no span for %s", turn.id)
            return None


class TurnWatch:
    """`started`, `tokens` and `aborting` are the meter's own: `tokens` is called for every pass."""

    def __init__(self, turn: Turn, meter: TurnMeter, span: TurnSpan | None) -> None:
        self._turn = turn
        self._meter = meter
        self._span = span
        self.started, self.tokens, self.aborting = meter.started, meter.tokens, meter.aborting

    @property
    def headers(self) -> dict[str, str]:
        """To be sent on to an upstream, so that its spans stand below ours."""
        return self._span.headers if self._span else {}

    def ended(self, outcome: Terminal) -> None:
        """Only the first time counts."""
        if self._meter.is_over:
            return
        self._meter.ended(outcome)
        turn, request = self._turn, self._turn.request
        if isinstance(outcome, Broken) or not request.is_provisional:  # those come with every key typed
            log_turn(
                outcome,
                self._meter,
                response_id=turn.id,
                model=turn.model[:MAX_NAME_CHARS],
                tier=request.tier,
                key=turn.caller.key,
            )
        if self._span:
            try:
                self._span.ended(outcome, self._meter)
            except Exception:
                log.exception("the span of %s is lost", turn.id)
