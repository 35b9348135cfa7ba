"""Milliseconds of a forward pass over n tokens of one sequence: estimated at first, measured, then refined.

Owns the table, the estimate, and how both are updated. Does not measure: the caller reports how long a pass
took.
"""

import bisect
from collections.abc import Iterable, Sequence
from itertools import accumulate

# What a pass costs by its tokens, in passes of one token, until it is measured: the geometric mean of three
# CPUs with a 1.5B model (x86 with AMX and ARM N1 in Q8_0, x86 with AVX-512 in Q4_K_M). They differ by a
# factor of 2.3 at 64 tokens; `benchmarks/engine/drafts.py` shows what it costs to go by this mean.
SHAPE = {1: 1.0, 2: 1.7, 4: 1.9, 8: 3.5, 16: 4.3, 32: 8.0, 64: 15.0}
SIZES = tuple(SHAPE)  # tokens in a pass that are estimated, then measured
_RATE = 0.05  # how far one pass moves its point
_TRUST = 0.25  # a pass that is off by more than this share counts as off by this share
_NEAREST = 1.25  # a pass says nothing about a size that is larger or smaller by more than this factor


def estimate_costs(one_token_ms: float, sizes: Iterable[int] = SIZES) -> "StepCosts":
    """Return costs that are not measured yet: SHAPE, times a pass of one token."""
    points = {size: one_token_ms * SHAPE[size] for size in sizes}
    return StepCosts(points, estimated=points)


class StepCosts:
    def __init__(self, points: dict[int, float], estimated: Iterable[int] = ()) -> None:
        assert points, "at least one size must be measured"
        assert all(size > 0 and ms > 0 for size, ms in points.items())
        self._sizes = sorted(points)
        self._seen = [points[size] for size in self._sizes]
        self._ms = _rising(self._seen)
        self._has_sizes = self._sizes[: len(SIZES)] == list(SIZES)
        self._estimated = set(estimated)

    def ms(self, tokens: int) -> float:
        """Return the cost of a pass, interpolated between measured sizes and extrapolated beyond the last."""
        return _on_line(self._sizes, self._ms, tokens)

    @property
    def of_sizes(self) -> list[float]:
        """Return the cost of a pass of each of SIZES, and maybe more. Not to be changed by the caller."""
        if self._has_sizes:
            return self._ms
        return [self.ms(size) for size in SIZES]

    @property
    def estimated(self) -> list[int]:
        """Return the sizes that no pass has shown yet, the smallest first."""
        return sorted(self._estimated)

    def measure(self, size: int, ms: float) -> None:
        """Set what a pass of this size costs; estimate those not measured yet from the nearest that is."""
        self._seen[self._sizes.index(size)] = ms
        self._estimated.discard(size)
        measured = [at for at, each in enumerate(self._sizes) if each not in self._estimated]
        for at in map(self._sizes.index, self._estimated):
            nearest = min(measured, key=lambda i: self._factor(i, self._sizes[at]))
            self._seen[at] = self._seen[nearest] * SHAPE[self._sizes[at]] / SHAPE[self._sizes[nearest]]
        self._ms = _rising(self._seen)

    def observe(self, tokens: int, ms: float) -> None:
        """Move the nearest size a little towards a pass over `tokens` that took `ms`; at first all the way.

        A busy machine doubles a pass now and then, so an error counts for at most `_TRUST`; a lasting change
        by a factor of 2 is followed within about 60 passes. Costs may have steps between the sizes (16 rows
        of a matrix unit), so ignore a pass whose size is far from all of them.
        """
        nearest = min(range(len(self._sizes)), key=lambda i: self._factor(i, tokens))
        if self._factor(nearest, tokens) > _NEAREST:
            return
        seen, size = self._seen[nearest], self._sizes[nearest]
        if size in self._estimated:
            self.measure(size, ms * self.ms(size) / self.ms(tokens))
        else:
            error = ms / seen * self.ms(size) / self.ms(tokens) - 1.0
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
