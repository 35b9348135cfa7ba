"""How much each turn drafts in a pass that several turns share: what gives the most tokens a second.

Owns this choice, by what passes cost and how likely drafted tokens are right. Does not own drafts (`drafter`)
or passes.
"""

import heapq
import math
from collections import Counter
from collections.abc import Sequence
from itertools import accumulate

from vivace.engine.speculation.costs import SIZES, StepCosts

MOST_PASSES = 2.5  # what a pass may cost, in passes without drafts, if one of its turns has no draft

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
    likeliest = _likeliest(drafts, min(sizes[-1], most) - len(drafts))
    expected = list(
        accumulate((drafts[turn][place] for turn, place in likeliest), initial=float(len(drafts)))
    )
    best, best_rate = 0, 0.0
    for size in sizes:
        ms, drafted = row_costs.ms(size), min(size - len(drafts), len(likeliest))
        if ms <= most_ms and expected[drafted] > best_rate * ms:
            best, best_rate = drafted, expected[drafted] / ms
    if all(drafts) and best_rate < _rate_in_turns(drafts, costs):
        return None
    taken = Counter(turn for turn, _ in likeliest[:best])
    return [taken[turn] for turn in range(len(drafts))]


def _likeliest(drafts: Sequence[Chances], count: int) -> list[tuple[int, int]]:
    """Return turn and place of the likeliest tokens; of equal ones first those of turns that have fewer."""
    waiting = [(-chances[0], 0, turn) for turn, chances in enumerate(drafts) if chances]
    heapq.heapify(waiting)
    found: list[tuple[int, int]] = []
    while waiting and len(found) < count:
        _, place, turn = waiting[0]
        found.append((turn, place))
        if place + 1 < len(drafts[turn]):
            heapq.heapreplace(waiting, (-drafts[turn][place + 1], place + 1, turn))
        else:
            heapq.heappop(waiting)
    return found


def _rate_in_turns(drafts: Sequence[Chances], costs: StepCosts) -> float:
    """Return tokens a millisecond if each draft has a pass of its own, of the length that says the most."""
    sizes = [(size, costs.ms(size)) for size in SIZES]
    tokens = spent_ms = 0.0
    for chances in drafts:
        expected = list(accumulate(chances, initial=1.0))
        fitting = [(size, ms) for size, ms in sizes if size <= len(expected)]
        said, ms = max(((expected[size - 1], ms) for size, ms in fitting), key=lambda each: each[0] / each[1])
        tokens, spent_ms = tokens + said, spent_ms + ms
    return tokens / spent_ms
