"""The first passes of a loaded model: they read its weights into memory and measure the cost of a pass.

Owns no state. Later passes refine the costs (`speculation/costs`).
"""

import time

from vivace.engine.runners.base import BatchDecodingRunner, Runner, Span
from vivace.engine.speculation.costs import SIZES, StepCosts

ROUNDS = 2  # the quicker one counts: a busy machine makes passes slower, never faster
ENOUGH_S = 1.5  # a slow model is measured once: somebody waits for it


def measure_costs(runner: Runner) -> dict[int, float]:
    """Return milliseconds of a pass that returns every row, by its tokens."""
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


def row_costs(runner: Runner) -> StepCosts | None:
    """Return what passes cost that several turns share, or None if there are none."""
    known = runner.known_row_costs() if isinstance(runner, BatchDecodingRunner) else {}
    return StepCosts(known) if known else None
