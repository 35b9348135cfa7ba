"""How fast the server was over the last hour: a sample every few seconds in which there was work.

Owns the samples, made from the metrics' sums. Kept in memory only. Does not own what is counted (`metrics`).
"""

import asyncio
import time
from collections import deque

from vivace.protocol.shapes.status import HistorySample, ServerHistory
from vivace.server.caller import Caller
from vivace.server.watch.metrics import Metrics, Totals, TurnMetrics

EVERY_S = 5.0
KEPT = 720  # an hour of work


class History:
    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._all = _Samples(metrics)
        self._tenants: dict[str, _Samples] = {}

    def read(self, caller: Caller) -> ServerHistory:
        """Return the samples so far and what happened since: of all turns, or of a tenant's own."""
        self.sample()
        samples = self._all if caller.is_owner else self._tenants.get(caller.tenant)
        return ServerHistory(EVERY_S, list(samples.kept) if samples else [])

    def sample(self) -> None:
        """Add a sample of each for whom anything happened since the last one."""
        self._all.add()
        for tenant, metrics in self._metrics.tenants.items():
            self._tenants.setdefault(tenant, _Samples(metrics)).add()

    async def run(self) -> None:
        """Sample until cancelled."""
        while True:
            await asyncio.sleep(EVERY_S)
            self.sample()


class _Samples:
    def __init__(self, metrics: TurnMetrics) -> None:
        self._metrics = metrics
        self._before = Totals()
        self.kept: deque[HistorySample] = deque(maxlen=KEPT)

    def add(self) -> None:
        now = self._metrics.totals()
        if now != self._before:
            self.kept.append(difference(self._before, now, time.time()))
            self._before = now


def difference(before: Totals, now: Totals, at_s: float) -> HistorySample:
    """Return what happened between two sums."""
    writing_s, begun = now.writing_s - before.writing_s, now.begun - before.begun
    queried = now.queried - before.queried
    written = now.generated - before.generated - begun  # the first token of a turn ends its wait
    return HistorySample(
        at_s=at_s,
        tokens_per_s=max(0.0, written) / writing_s if writing_s > 0 else 0.0,
        first_token_ms=1000 * (now.first_token_s - before.first_token_s) / begun if begun else 0.0,
        cached_share=(now.hits - before.hits) / queried if queried > 0 else 0.0,
        turns=int(now.ended - before.ended),
    )
