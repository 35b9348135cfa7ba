"""How much each turn drafts in a pass that several turns share: what gives the most tokens a second.

Owns this choice, by what passes cost and how likely drafted tokens are right. Does not own drafts (`drafter`)
or passes.
"""

import heapq
import math
from collections.abc import Sequence
from itertools import accumulate

from vivace.engine.speculation.costs import SIZES, StepCosts

MOST_PASSES = 2.0  # what a pass may cost, in passes without drafts, if one of its turns has no draft

Chances = Sequence[float]  # of each drafted token of one turn: how likely all up to it are right


def share_rows(
    drafts: Sequence[Chances], row_costs: StepCosts, costs: StepCosts, most: int
) -> list[int] | None:
    """Return how many tokens each turn drafts in a pass of up to `most` rows, or None if in no such pass.

    Each turn has a row for its next token. The others go to the likeliest tokens, whose ever they are. A pass
    is padded to a size that was measured, so rows up to that are free. None: all turns have drafts, which say
    more a second if each is verified alone, pass after pass.
    """
    sizes = [size for size in row_costs.points() if size >= len(drafts)]
    if not sizes:
        return [0] * len(drafts)
    most_ms = math.inf if all(drafts) else MOST_PASSES * row_costs.ms(sizes[0])
    shares, expected = [0] * len(drafts), float(len(drafts))
    best, best_rate = list(shares), 0.0
    waiting = [(-chances[0], 0, turn) for turn, chances in enumerate(drafts) if chances]
    heapq.heapify(waiting)
    for size in sizes:
        ms = row_costs.ms(size)
        if ms > most_ms:
            break
        for _ in range(min(size, most) - len(drafts) - sum(shares)):
            if not waiting:
                break
            chance, _, turn = heapq.heappop(waiting)
            expected -= chance
            shares[turn] += 1
            if shares[turn] < len(drafts[turn]):
                heapq.heappush(waiting, (-drafts[turn][shares[turn]], shares[turn], turn))
        if expected / ms > best_rate:
            best, best_rate = list(shares), expected / ms
        if not waiting:
            break
    return None if all(drafts) and best_rate < _rate_in_turns(drafts, costs) else best


def _rate_in_turns(drafts: Sequence[Chances], costs: StepCosts) -> float:
    """Return tokens a millisecond if each draft has a pass of its own."""
    passes = [_best_alone(chances, costs) for chances in drafts]
    return sum(tokens for tokens, _ in passes) / sum(ms for _, ms in passes)


def _best_alone(chances: Chances, costs: StepCosts) -> tuple[float, float]:
    """Return the tokens and milliseconds of the pass alone that says the most a second."""
    expected = list(accumulate(chances, initial=1.0))
    lengths = {min(size, len(expected)) for size in SIZES}
    best = max(lengths, key=lambda tokens: expected[tokens - 1] / costs.ms(tokens))
    return expected[best - 1], costs.ms(best)
