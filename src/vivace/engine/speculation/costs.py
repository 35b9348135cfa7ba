"""Milliseconds of a forward pass over n tokens of one sequence: measured at start-up, then refined.

Owns the table and how it is updated. Does not measure: the caller reports how long a pass took.
"""

import bisect
from collections.abc import Sequence
from itertools import accumulate

SIZES = (1, 2, 4, 8, 16, 32, 64)  # tokens in a pass that start-up measures
_RATE = 0.05  # how far one pass moves its point
_TRUST = 0.25  # a pass that is off by more than this share counts as off by this share
_NEAREST = 1.25  # a pass says nothing about a size that is larger or smaller by more than this factor


class StepCosts:
    def __init__(self, points: dict[int, float]) -> None:
        assert points, "at least one size must be measured"
        assert all(size > 0 and ms > 0 for size, ms in points.items())
        self._sizes = sorted(points)
        self._seen = [points[size] for size in self._sizes]
        self._ms = _rising(self._seen)

    def ms(self, tokens: int) -> float:
        """Return the cost of a pass, interpolated between measured sizes and extrapolated beyond the last."""
        return _on_line(self._sizes, self._ms, tokens)

    def observe(self, tokens: int, ms: float) -> None:
        """Move the nearest measured size a little towards a pass over `tokens` that took `ms`.

        A busy machine doubles a pass now and then, so an error counts for at most `_TRUST`; a lasting change
        by a factor of 2 is followed within about 60 passes. Costs may have steps between the sizes (16 rows
        of a matrix unit), so ignore a pass whose size is far from all of them.
        """
        nearest = min(range(len(self._sizes)), key=lambda i: self._factor(i, tokens))
        if self._factor(nearest, tokens) <= _NEAREST:
            seen = self._seen[nearest]
            error = ms / seen * self.ms(self._sizes[nearest]) / self.ms(tokens) - 1.0
            self._seen[nearest] = seen * (1.0 + _RATE * min(max(error, -_TRUST), _TRUST))
            self._ms = _rising(self._seen)

    def _factor(self, index: int, tokens: int) -> float:
        return max(tokens / self._sizes[index], self._sizes[index] / tokens)

    def points(self) -> dict[int, float]:
        """Return milliseconds by size, to be saved for the next start."""
        return dict(zip(self._sizes, self._seen, strict=True))


def _rising(ms: Sequence[float]) -> list[float]:
    """Make costs rise with size, so that one bad measurement cannot rule drafts out for good."""
    return list(accumulate(reversed(ms), min))[::-1]


def _on_line(sizes: Sequence[int], ms: Sequence[float], tokens: int) -> float:
    if len(sizes) == 1:
        return ms[0] * max(1.0, tokens / sizes[0])
    if tokens <= sizes[0]:
        return ms[0]
    right = min(bisect.bisect_left(sizes, tokens), len(sizes) - 1)
    left = right - 1
    return ms[left] + (tokens - sizes[left]) / (sizes[right] - sizes[left]) * (ms[right] - ms[left])
