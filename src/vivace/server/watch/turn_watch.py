"""Who watches turns: metrics, the log line and the span of each.

Owns that each of the three learns of a turn once, and that a fault in one of them never harms the turn. Does
not own what they record: `metrics`, `turn_meter`, `logs`, `tracing`.
"""

import logging

from vivace.errors import VivaceError
from vivace.protocol.shapes.outcomes import Broken, Terminal
from vivace.protocol.shapes.requests import ResponseCreate
from vivace.protocol.shapes.status import EngineStatus
from vivace.server.caller import Caller
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

    def began(
        self, response_id: str, request: ResponseCreate, caller: Caller, *, provider: str = "vivace"
    ) -> "TurnWatch":
        """Begin to watch a turn that is about to begin, and may have to wait first."""
        model = request.model or ""
        meter = self.metrics.turn_began(model, request.tier, caller.tenant)
        span = self._span(response_id, request, model, caller.traceparent, provider)
        return TurnWatch(response_id, request, caller, meter, span)

    def refused(self, error: VivaceError, tier: str) -> None:
        """Count a request that was not accepted, if limits or the queue refused it."""
        if isinstance(error, RateRefused):
            self.metrics.refused(error.limit, tier)

    def text(self, caller: Caller, *engines: EngineStatus) -> bytes:
        """`GET /metrics`: of everything to the owner, of its own turns to a tenant."""
        if caller.is_owner:
            return self.metrics.render(engines)
        return self.metrics.of(caller.tenant).page.render()

    def _span(
        self, response_id: str, request: ResponseCreate, model: str, traceparent: str, provider: str
    ) -> TurnSpan | None:
        if self._tracing is None:
            return None
        try:
            return self._tracing.turn_began(
                request,
                response_id=response_id,
                model=model[:MAX_NAME_CHARS],
                traceparent=traceparent,
                provider=provider,
            )
        except Exception:
            log.exception("no span for %s", response_id)
            return None


class TurnWatch:
    """Watches one turn. `started`, `tokens` and `aborting` are the meter's own: every pass calls `tokens`."""

    def __init__(
        self,
        response_id: str,
        request: ResponseCreate,
        caller: Caller,
        meter: TurnMeter,
        span: TurnSpan | None,
    ) -> None:
        self._response_id = response_id
        self._request = request
        self._caller = caller
        self._meter = meter
        self._span = span
        self.started, self.tokens, self.aborting = meter.started, meter.tokens, meter.aborting

    @property
    def headers(self) -> dict[str, str]:
        """Headers to send to an upstream, so that its spans stand below ours."""
        return self._span.headers if self._span else {}

    def withdraw(self) -> None:
        """Forget the turn: its backend refused to begin it."""
        self._meter.withdraw()

    def ended(self, outcome: Terminal) -> None:
        """Record the end of the turn. Only the first call counts."""
        if self._meter.is_over:
            return
        self._meter.ended(outcome)
        request = self._request
        if isinstance(outcome, Broken) or not request.is_provisional:  # those come with every key typed
            log_turn(
                outcome,
                self._meter,
                response_id=self._response_id,
                model=(request.model or "")[:MAX_NAME_CHARS],
                tier=request.tier,
                key=self._caller.key,
            )
        if self._span:
            try:
                self._span.ended(outcome, self._meter)
            except Exception:
                log.exception("the span of %s is lost", self._response_id)
