"""The first passes of a loaded model: they bring its weights into memory, and say what passes cost.

Owns no state. What it measures is refined by every later pass (`speculation/costs`).
"""

import time

from vivace.engine.runners.base import Runner, Span
from vivace.engine.speculation.costs import SIZES

ENOUGH_MS = (
    400.0  # larger passes than the first one that takes this long are not tried: nobody waits for them
)


def measure_costs(runner: Runner) -> dict[int, float]:
    """Milliseconds of a pass by its size, each size once, after one pass to warm up."""
    costs: dict[int, float] = {}
    _pass(runner, 1)
    for size in SIZES:
        costs[size] = _pass(runner, size)
        if costs[size] > ENOUGH_MS:
            break
    return costs


def _pass(runner: Runner, tokens: int) -> float:
    begun = time.perf_counter()
    runner.forward([Span(0, 0, [0] * tokens, want=1)])
    spent = time.perf_counter() - begun
    runner.trim(0, 0)
    return spent * 1e3
