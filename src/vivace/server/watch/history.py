"""How fast the server was over the last hour: a sample every few seconds in which there was work.

Owns the samples, made from the metrics' sums. Kept in memory only. Does not own what is counted (`metrics`).
"""

import asyncio
import time
from collections import deque

from vivace.protocol.shapes.status import HistorySample, ServerHistory
from vivace.server.watch.metrics import Metrics, Totals

EVERY_S = 5.0
KEPT = 720  # an hour of work


class History:
    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._before = Totals()
        self._samples: deque[HistorySample] = deque(maxlen=KEPT)

    def read(self) -> ServerHistory:
        """Return the samples so far, with what happened since the last one."""
        self.sample()
        return ServerHistory(EVERY_S, list(self._samples))

    def sample(self) -> None:
        """Add a sample if anything happened since the last one."""
        now = self._metrics.totals()
        if now != self._before:
            self._samples.append(difference(self._before, now, time.time()))
            self._before = now

    async def run(self) -> None:
        """Sample until cancelled."""
        while True:
            await asyncio.sleep(EVERY_S)
            self.sample()


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
