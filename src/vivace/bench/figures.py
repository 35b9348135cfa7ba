"""The arithmetic of the report: medians, percentiles, rates, ratios. No measuring here."""

import math
import statistics
from collections.abc import Sequence
from typing import Any

DIGITS = 4  # significant ones in the report


def median(values: Sequence[float]) -> float:
    return float(statistics.median(values))


def percentile(values: Sequence[float], share: float) -> float:
    """Return the smallest value that at least `share` of all values do not exceed (nearest rank)."""
    ranked = sorted(values)
    return ranked[max(0, math.ceil(share * len(ranked)) - 1)]


def ratio(one: float, other: float) -> float:
    """Return `one / other`, or infinity where `other` is 0."""
    return one / other if other else math.inf


def rounded(value: Any) -> Any:
    """Return the value with floats rounded to `DIGITS` significant digits and infinity as None (JSON)."""
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}") if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: rounded(each) for key, each in value.items()}
    if isinstance(value, list):
        return [rounded(each) for each in value]
    return value
