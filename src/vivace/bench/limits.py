"""What each figure must reach, and whether it does.

Owns the limits. Two of them are figures of the same run: nothing may be prefilled but what is new. A first
token can only come sooner than plain llama.cpp's where other weights suit the CPU better than the file as
downloaded; where none were chosen it must not come later.
"""

from dataclasses import dataclass
from typing import Any

STEER_SPARE_TOKENS = 2
WORDS = {"≥": "at least", "≤": "at most", "=": "exactly"}
SAME_WEIGHTS_SPARE = 1.05  # two runs of the same thing differ by this much


@dataclass(frozen=True)
class Limit:
    sign: str  # ≥ ≤ =
    value: float

    def is_met_by(self, figure: float) -> bool:
        match self.sign:
            case "≥":
                return figure >= self.value
            case "≤":
                return figure <= self.value
            case _:
                return figure == self.value

    @property
    def words(self) -> str:
        return f"{WORDS[self.sign]} {self.value:g}"

    def __str__(self) -> str:
        return f"{self.sign} {self.value:g}"


def limits_of(report: dict[str, Any]) -> dict[str, Limit]:
    """Return the limit of each figure by its dotted key. Some depend on other figures of the report."""
    is_same_file = report["weights"]["chosen"] == report["weights"]["downloaded"]
    return {
        "peer.decode_ratio": Limit("≥", 0.97),
        "peer.first_token_ratio": Limit("≤", SAME_WEIGHTS_SPARE if is_same_file else 1.0),
        "edits.speedup": Limit("≥", 2.0),
        "edits.tokens_per_pass": Limit("≥", 5.0),
        "edits.identical": Limit("≥", 0.9),
        "edits.differences_near_ties": Limit("=", 1.0),
        "peer.edit_ratio": Limit("≥", 1.5),
        "warm_turn.prefilled_tokens": Limit("=", figure(report, "warm_turn.new_tokens")),
        "steer.prefilled_tokens": Limit("≤", figure(report, "steer.new_tokens") + STEER_SPARE_TOKENS),
        "steer.latency_steps": Limit("≤", 1.5),
        "interrupt.latency_ms_p95": Limit("≤", 100.0),
        "typing.first_token_ratio": Limit("≤", 0.25),
        "park.restore_ratio": Limit("≤", 0.2),
        "park.left_restored_share": Limit("≥", 0.95),
        "background.realtime_slowdown": Limit("≤", 1.1),
    }


def figure(report: dict[str, Any], key: str) -> float:
    """Return the figure of a dotted key."""
    found: Any = report
    for name in key.split("."):
        found = found[name]
    return float(found)


def judge(report: dict[str, Any]) -> dict[str, bool]:
    return {key: limit.is_met_by(figure(report, key)) for key, limit in limits_of(report).items()}
