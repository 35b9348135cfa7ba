"""The first passes of a loaded model: they bring its weights into memory, and say what passes cost.

Owns no state. What it measures is refined by every later pass (`speculation/costs`).
"""

import time

from vivace.engine.runners.base import Runner, Span
from vivace.engine.speculation.costs import SIZES

ROUNDS = 2  # the quicker one counts: a busy machine makes passes slower, never faster
ENOUGH_S = 1.5  # a slow model is measured once: somebody waits for it


def measure_costs(runner: Runner) -> dict[int, float]:
    """Milliseconds of a pass that gives every row, by its size."""
    costs: dict[int, float] = {}
    _pass(runner, 1)
    begun = time.perf_counter()
    for _ in range(ROUNDS):
        for size in (size for size in SIZES if size <= runner.info.context_tokens):
            if size not in costs or time.perf_counter() - begun < ENOUGH_S:
                costs[size] = min(_pass(runner, size), costs.get(size, float("inf")))
    return costs


def _pass(runner: Runner, tokens: int) -> float:
    begun = time.perf_counter()
    runner.forward([Span(0, 0, [0] * tokens, want=tokens)])
    spent = time.perf_counter() - begun
    runner.trim(0, 0)
    return spent * 1e3
