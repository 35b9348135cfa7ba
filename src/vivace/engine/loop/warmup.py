"""What passes cost: the first passes of a loaded model, and those that an idle engine makes to find out.

Owns which sizes are measured when. Nobody waits for it: a start measures what START_MS allows and estimates
the rest, an idle engine measures that, and later passes refine it all (`speculation/costs`).
"""

import time

from vivace.engine.runners.base import (
    BatchDecodingRunner,
    KVFull,
    OutOfMemory,
    Runner,
    ShouldStop,
    Span,
    Stopped,
)
from vivace.engine.speculation.costs import SIZES, StepCosts, estimate_costs

START_MS = 100.0  # of measuring at the start, beside the pass that reads the weights
QUICK_MS = (
    100.0  # a pass that is shorter is made twice; one that cannot be stopped is only made if it is shorter
)


def start_costs(runner: Runner) -> StepCosts:
    """Make the first pass, which reads the weights, and return what passes cost as far as that is known."""
    info = runner.info
    first_ms = _pass(runner, 1)
    if not info.can_stop:  # a GPU, whose first pass prepares it
        first_ms = _pass(runner, 1)
    costs = estimate_costs(first_ms, (size for size in SIZES if size <= info.context_tokens))
    spent_ms = 0.0
    while costs.estimated and spent_ms + costs.ms(costs.estimated[0]) <= START_MS:
        size = costs.estimated[0]
        costs.measure(size, ms := _pass(runner, size))
        spent_ms += ms
    return costs


def measure_next(runner: Runner, costs: StepCosts, seq: int, should_stop: ShouldStop) -> bool:
    """Measure the next size that is only estimated, on an empty sequence. Return whether there was one.

    The engine is idle: a pass ends as soon as somebody asks for something, and is made again later.
    """
    for size in costs.estimated:
        if runner.info.can_stop or costs.ms(size) <= QUICK_MS:
            try:
                ms = _pass(runner, size, seq, should_stop)
                if ms <= QUICK_MS:  # the quicker one counts: a busy machine makes passes slower, never faster
                    ms = min(ms, _pass(runner, size, seq, should_stop))
            except Stopped:
                return True
            except (KVFull, OutOfMemory):
                return False
            costs.measure(size, ms)
            return True
    return False


def _pass(runner: Runner, tokens: int, seq: int = 0, should_stop: ShouldStop | None = None) -> float:
    """Return the milliseconds of a pass that returns every row."""
    begun = time.perf_counter()
    runner.forward([Span(seq, 0, [0] * tokens, want=tokens)], should_stop)
    spent = time.perf_counter() - begun
    runner.trim(seq, 0)
    return spent * 1e3


def row_costs(runner: Runner) -> StepCosts | None:
    """Return what passes cost that several turns share, or None if there are none."""
    known = runner.known_row_costs() if isinstance(runner, BatchDecodingRunner) else {}
    return StepCosts(known) if known else None
