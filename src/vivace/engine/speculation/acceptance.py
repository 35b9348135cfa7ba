"""Estimate how likely a drafted token is accepted, by the draft's source and the length of its match.

Owns the prior acceptance rates and how a turn updates them. Does not find drafts or choose their length.
"""

import math
from collections.abc import Sequence
from enum import IntEnum
from functools import lru_cache
from itertools import accumulate
from operator import mul

# A match counts as the longest of these lengths that it reaches.
MATCH_LENGTHS = (0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64)
PROVEN_MATCH = 8  # a match of this length in the prediction is taken for certain


class DraftSource(IntEnum):
    """Where a draft comes from."""

    START = 0  # the prediction, followed from its first token on
    NEAR = 1  # the prediction, picked up again close to where it was left
    FAR = 2  # the prediction, picked up elsewhere
    FOLLOW = 3  # the prediction, picked up again with a match of PROVEN_MATCH or more
    SUFFIX = 4  # the log


# Acceptance rate of the next token by match length, as MATCH_LENGTHS: counted by `benchmarks/engine/drafts.py
# --acceptance` on half of its rows, then lowered where that was faster. NEAR and FAR continue as FOLLOW. A
# match in the log with different continuations counts as a match of length 0.
PRIORS: dict[DraftSource, tuple[float, ...]] = {
    DraftSource.START: (0.9, 0.96, 0.97, 0.97, 0.97, 0.98, 0.98, 0.985, 0.985, 0.99, 0.993, 0.997),
    DraftSource.NEAR: (0.2, 0.5, 0.8, 0.9, 0.93, 0.94),
    DraftSource.FAR: (0.05, 0.19, 0.45, 0.65, 0.75, 0.87),
    DraftSource.FOLLOW: (0.87, 0.87, 0.87, 0.87, 0.87, 0.87, 0.94, 0.95, 0.975, 0.985, 0.991, 0.997),
    DraftSource.SUFFIX: (0.1, 0.24, 0.45, 0.6, 0.7, 0.75, 0.85, 0.88, 0.95, 0.96, 0.98, 0.98),
}

# Groups whose rates move together: finding a place in the prediction, following it, matches in the log.
_FINDING, _FOLLOWING, _REMEMBERING = range(3)
_STEP = 0.7  # how far one fully unexpected token moves a group's log-odds
_ROUNDED = 8  # parts of log-odds, to which they are rounded where drafts are chosen by them
_LOWEST = -4.0
_HIGHEST = (1.0, 0.0, 0.0)  # by group: raising the rates of long matches costs more than it gains


def _group(source: DraftSource, match_length: int) -> int:
    if source is DraftSource.SUFFIX:
        return _REMEMBERING
    return _FOLLOWING if match_length >= PROVEN_MATCH else _FINDING


def _prior(source: DraftSource, match_length: int) -> float:
    bucket = sum(least <= match_length for least in MATCH_LENGTHS) - 1
    table = PRIORS[source] if bucket < len(PRIORS[source]) else PRIORS[DraftSource.FOLLOW]
    return table[bucket]


_LONGEST = 2 * MATCH_LENGTHS[-1]  # the longest match, and a whole draft behind it
# Odds of the next token and its group, by source and match length. A list: numpy is slower for short drafts.
_TABLE = [
    [
        (p / (1 - p), _group(source, match_length))
        for match_length in range(_LONGEST)
        for p in (_prior(source, match_length),)
    ]
    for source in DraftSource
]


def _rates(source: DraftSource, start: int, count: int, factors: Sequence[float]) -> list[float]:
    odds = [prior * factors[group] for prior, group in _TABLE[source][start : start + count]]
    return [each / (1.0 + each) for each in odds]


@lru_cache(maxsize=2048)
def _yields(source: DraftSource, start: int, most: int, *shifts: int) -> tuple[float, list[float]]:
    """See `AcceptanceRates.yields`. Shifts are in parts of `_ROUNDED`."""
    first, *later = _rates(source, start, most + 1, [math.exp(shift / _ROUNDED) for shift in shifts])
    return first, list(accumulate(accumulate(later, mul), initial=1.0))


class AcceptanceRates:
    """The priors, with the log-odds of each group shifted by what this turn has observed."""

    def __init__(self) -> None:
        self._shifts = [0.0, 0.0, 0.0]
        self._factors = [1.0, 1.0, 1.0]  # exp of the shifts

    def copy(self) -> "AcceptanceRates":
        rates = AcceptanceRates()
        rates._shifts, rates._factors = list(self._shifts), list(self._factors)
        return rates

    def estimate(self, source: DraftSource, match_length: int, count: int) -> list[float]:
        """Return the acceptance rate of each of the next `count` tokens, if all before it are accepted."""
        return _rates(source, min(match_length, MATCH_LENGTHS[-1]), count, self._factors)

    def yields(self, source: DraftSource, match_length: int, most: int) -> tuple[float, list[float]]:
        """Return the acceptance rate of the next token, and what passes yield once it is known to be right.

        That is: the tokens to expect of a pass with n drafts behind it, for n up to `most`. Not to be changed
        by the caller.
        """
        rounded = [round(shift * _ROUNDED) for shift in self._shifts]  # so that they were often asked before
        return _yields(source, min(match_length, MATCH_LENGTHS[-1]), most, *rounded)

    def update(self, source: DraftSource, match_length: int, right: int, *, was_wrong: bool) -> None:
        """Learn that `right` tokens were right after a match, and whether a wrong one followed."""
        start, factors = min(match_length, MATCH_LENGTHS[-1]), self._factors
        moves, group = [0.0, 0.0, 0.0], 0
        for prior, group in _TABLE[source][start : start + right + was_wrong]:
            moves[group] += 1.0 / (1.0 + prior * factors[group])  # how unexpected it was
        if was_wrong:
            moves[group] -= 1.0
        for group, move in enumerate(moves):
            if move:
                shift = self._shifts[group] + _STEP * move
                self._shifts[group] = shift = min(max(shift, _LOWEST), _HIGHEST[group])
                factors[group] = math.exp(shift)
