"""How late the event loop is: the time that a ready socket, a token or an interrupt may have to wait.

Owns the measuring. Ten wakings a second, as many as uvicorn's own loop has.
"""

import asyncio
import time

from vivace.server.watch.metrics import Metrics

INTERVAL_S = 0.1


async def measure_loop_lag(metrics: Metrics, interval_s: float = INTERVAL_S) -> None:
    """Measure until cancelled. uvloop's own clock stands still within a step, so it is not used."""
    while True:
        due = time.perf_counter() + interval_s
        await asyncio.sleep(interval_s)
        metrics.loop_lagged(max(0.0, time.perf_counter() - due))
