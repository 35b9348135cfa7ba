"""What each figure of the wire must reach. Owns the limits; `bench.limits` owns what a limit is."""

from typing import Any

from vivace.bench.limits import Limit, figure

LIMITS = {
    "roundtrip.overhead_reduction": Limit("≥", 0.8),
    "first_token.reduction": Limit("≥", 0.5),
    "per_token.overhead_us": Limit("≤", 150.0),
    "fanout.delivered_share": Limit("≥", 0.95),
}


def judge(report: dict[str, Any]) -> dict[str, bool]:
    return {key: limit.is_met_by(figure(report, key)) for key, limit in LIMITS.items()}
