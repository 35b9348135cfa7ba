"""The limits of `vivace bench tempos`, and its report for people. The figures are those of the JSON."""

from typing import Any

from vivace.bench.engine.report import BUSY_LOAD, measured
from vivace.bench.limits import Limit, figure
from vivace.bench.report_table import report_text

LIMITS = {
    "tempos.token_ratio": Limit("≤", 1.1),
    "tempos.first_token_ratio": Limit("≤", 1.1),
}
HEAD = ("", "beside", "alone", "ratio", "limit", "met")
LINES = (
    ("tempos.token_ratio", "time per token", "token_ms"),
    ("tempos.first_token_ratio", "time to the first token", "first_token_ms"),
    ("", "longest time between two tokens", "longest_gap_ms"),
)


def judge(report: dict[str, Any]) -> dict[str, bool]:
    return {key: limit.is_met_by(figure(report, key)) for key, limit in LIMITS.items()}


def table(report: dict[str, Any]) -> str:
    """Return the whole report as text."""
    rows = [HEAD, *(_cells(report, *line) for line in LINES)]
    return report_text(heading(report), rows, judge(report), left=(0, 5))


def heading(report: dict[str, Any]) -> str:
    """Return the lines that say what was measured, on which machine."""
    machine, tempos = report["machine"], report["tempos"]
    lines = [
        f"{report['model']} ({report['weights']}) on {report['device']}: {machine['cpu']}, "
        f"{machine['threads']} threads",
        f"A realtime turn beside {tempos['background_turns']} background turns and alone; medians of "
        f"{tempos['rounds']} rounds; the others "
        f"said {tempos['background_tokens_meanwhile']:g} tokens meanwhile",
    ]
    if machine["load_at_start"] > BUSY_LOAD:
        lines.append(
            f"Other programs were busy (load {machine['load_at_start']:.1f}): run it again when they are not."
        )
    return "\n".join(lines)


def _cells(report: dict[str, Any], key: str, what: str, name: str) -> tuple[str, ...]:
    shown = [measured(report, f"tempos.{side}.{name}", "ms") for side in ("beside", "alone")]
    if not key:
        return what, *shown, "", "", ""
    value, limit = figure(report, key), LIMITS[key]
    return what, *shown, f"{value:.2f}", str(limit), "yes" if limit.is_met_by(value) else "NO"
