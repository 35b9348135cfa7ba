"""How likely the next token of a draft is right: by its source, and by how long it has been right.

Owns the prior chances and what this turn has taught about them. Does not find drafts or choose their length.
"""

import math
from enum import IntEnum

RUNS = (0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64)  # a run counts as the longest of these that it reaches
PROVEN = 8  # right tokens after which a place in the prediction is taken for certain


class Kind(IntEnum):
    """Where a draft comes from."""

    START = 0  # the prediction, followed from its first token on
    NEAR = 1  # the prediction, picked up again close to where it was left
    FAR = 2  # the prediction, picked up elsewhere
    FOLLOW = 3  # the prediction, picked up again and PROVEN
    SUFFIX = 4  # the log


# Chance of the next token by the run before it, as RUNS: counted by `benchmarks/drafts.py --chances` on half
# of its rows, then lowered where that was faster there. NEAR and FAR go on as FOLLOW. A match in the log with
# different continuations counts as a run of 0.
PRIORS: dict[Kind, tuple[float, ...]] = {
    Kind.START: (0.9, 0.96, 0.97, 0.97, 0.97, 0.98, 0.98, 0.985, 0.985, 0.99, 0.993, 0.997),
    Kind.NEAR: (0.2, 0.5, 0.8, 0.9, 0.93, 0.94),
    Kind.FAR: (0.05, 0.19, 0.45, 0.65, 0.75, 0.87),
    Kind.FOLLOW: (0.87, 0.87, 0.87, 0.87, 0.87, 0.87, 0.94, 0.95, 0.975, 0.985, 0.991, 0.997),
    Kind.SUFFIX: (0.1, 0.24, 0.45, 0.6, 0.7, 0.75, 0.85, 0.88, 0.95, 0.96, 0.98, 0.98),
}

# What rises and falls together: finding a place in the prediction, following it, remembering the log.
_FINDING, _FOLLOWING, _REMEMBERING = range(3)
_STEP = 0.7  # how far one wholly unexpected token moves a group's log-odds
_LOWEST = -4.0
_HIGHEST = (1.0, 0.0, 0.0)  # by group; long runs make bold, and boldness costs more there than it gains


def _group(kind: Kind, run: int) -> int:
    if kind is Kind.SUFFIX:
        return _REMEMBERING
    return _FOLLOWING if run >= PROVEN else _FINDING


def _prior(kind: Kind, run: int) -> float:
    bucket = sum(least <= run for least in RUNS) - 1
    table = PRIORS[kind] if bucket < len(PRIORS[kind]) else PRIORS[Kind.FOLLOW]
    return table[bucket]


_LONGEST = 2 * RUNS[-1]  # a run of RUNS[-1], and a whole draft behind it
# Odds of the next token and its group, by kind and run. Not in numpy: a draft is short, its calls are not.
_TABLE = [
    [(p / (1 - p), _group(kind, run)) for run in range(_LONGEST) for p in (_prior(kind, run),)]
    for kind in Kind
]


class Chances:
    """The priors, with the log-odds of each group shifted by what this turn has shown."""

    def __init__(self) -> None:
        self._shifts = [0.0, 0.0, 0.0]
        self._factors = [1.0, 1.0, 1.0]  # exp of the shifts

    def ahead(self, kind: Kind, run: int, count: int) -> list[float]:
        """Chance of each of the next `count` tokens after `run` right ones, if those before it are right."""
        start, factors = min(run, RUNS[-1]), self._factors
        odds = [prior * factors[group] for prior, group in _TABLE[kind][start : start + count]]
        return [each / (1.0 + each) for each in odds]

    def learn(self, kind: Kind, run: int, right: int, *, was_wrong: bool) -> None:
        """Learn that after `run` tokens `right` more were right, and whether a wrong one followed."""
        start, factors = min(run, RUNS[-1]), self._factors
        moves, group = [0.0, 0.0, 0.0], 0
        for prior, group in _TABLE[kind][start : start + right + was_wrong]:
            moves[group] += 1.0 / (1.0 + prior * factors[group])  # how unexpected it was
        if was_wrong:
            moves[group] -= 1.0
        for group, move in enumerate(moves):
            if move:
                shift = self._shifts[group] + _STEP * move
                self._shifts[group] = shift = min(max(shift, _LOWEST), _HIGHEST[group])
                factors[group] = math.exp(shift)
