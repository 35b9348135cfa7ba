"""The report for people: one table, every figure beside what it is compared with and its limit.

Owns the words and the columns. The figures are those of the JSON, which has more of them.
"""

from dataclasses import dataclass
from typing import Any

from vivace.bench.limits import figure, judge, limits_of
from vivace.bench.report_table import report_text

BUSY_LOAD = 0.7  # programs that want a CPU when a run begins: the figures are not to be trusted then
HEAD = ("", "ours", "against", "ratio", "limit", "met")


@dataclass(frozen=True)
class Line:
    """One row of the table: a figure's key, and those of the two measurements behind it, if there are two."""

    key: str
    what: str
    ours: str = ""
    against: str = ""
    against_what: str = ""
    unit: str = ""


LINES = (
    Line(
        "peer.decode_ratio",
        "decode without drafts, same weights",
        "peer.decode.ours_tokens_per_s",
        "peer.decode.peer_tokens_per_s",
        "plain llama.cpp",
        "tok/s",
    ),
    Line(
        "peer.first_token_ratio",
        "first token, cold prompt",
        "peer.first_token.ours_ms",
        "peer.first_token.peer_ms",
        "plain llama.cpp",
        "ms",
    ),
    Line(
        "edits.speedup",
        "edits, drafts on",
        "edits.with_drafts_tokens_per_s",
        "edits.without_drafts_tokens_per_s",
        "drafts off",
        "tok/s",
    ),
    Line(
        "peer.edit_ratio",
        "edits, drafts on",
        "peer.edit.ours_tokens_per_s",
        "peer.edit.peer_tokens_per_s",
        "llama.cpp's prompt lookup",
        "tok/s",
    ),
    Line("edits.tokens_per_pass", "tokens said in one pass of an edit"),
    Line("edits.identical", "edits with the same text, drafts on and off"),
    Line("edits.differences_near_ties", "the other ones part at a near-tie"),
    Line("warm_turn.prefilled_tokens", "prefilled by a second turn", unit="tokens"),
    Line("steer.prefilled_tokens", "prefilled by a steer", unit="tokens"),
    Line("steer.latency_steps", "steer to first new token, in steps"),
    Line("interrupt.latency_ms_p95", "interrupt to end, 95% within", unit="ms"),
    Line(
        "typing.first_token_ratio",
        "first token, message typed ahead",
        "typing.with_typing_ms",
        "typing.without_typing_ms",
        "not typed ahead",
        "ms",
    ),
    Line(
        "park.restore_ratio",
        "session back from disk",
        "park.restore_ms",
        "park.prefill_ms",
        "prefilled again",
        "ms",
    ),
    Line("park.left_restored_share", "of a chat back from disk after its server left"),
    Line(
        "background.realtime_slowdown",
        "a token beside background work",
        "background.beside_decode_token_ms",
        "background.alone_token_ms",
        "alone",
        "ms",
    ),
)


def table(report: dict[str, Any]) -> str:
    """Return the whole report as text."""
    rows = [HEAD, *(_cells(report, line) for line in LINES)]
    return report_text(heading(report), rows, judge(report))


def heading(report: dict[str, Any]) -> str:
    """Return the line that says what was measured, on which machine."""
    machine, versions, weights = report["machine"], report["versions"], report["weights"]
    lines = [
        f"{report['model']} on {machine['cpu']}, {machine['threads']} threads, {machine['memory_gb']:g} GB, "
        f"llama-cpp-python {versions['llama-cpp-python']}",
        f"Weights: {weights['chosen']}; plain llama.cpp: {weights['downloaded']}",
        f"Edits: {report['edits']['rows']} of {report['data']}",
    ]
    if machine["load_at_start"] > BUSY_LOAD:
        lines.append(
            f"Other programs were busy (load {machine['load_at_start']:.1f}): run it again when they are not."
        )
    return "\n".join(lines)


def measured(report: dict[str, Any], key: str, unit: str) -> str:
    """Return a measurement with its unit. Show long milliseconds as seconds."""
    value = figure(report, key)
    if unit == "ms" and value >= 1000:
        return f"{value / 1e3:.2f} s"
    digits = 0 if unit == "tokens" or value >= 100 else 1 if value >= 10 else 2
    return f"{value:.{digits}f} {unit}".rstrip()


def _cells(report: dict[str, Any], line: Line) -> tuple[str, ...]:
    limit = limits_of(report)[line.key]
    is_met = limit.is_met_by(figure(report, line.key))
    ours, against, ratio = measured(report, line.key, line.unit), "", ""
    if line.ours:
        ours = measured(report, line.ours, line.unit)
        against = f"{measured(report, line.against, line.unit)} {line.against_what}"
        ratio = f"{figure(report, line.key):.2f}"
    return line.what, ours, against, ratio, str(limit), "yes" if is_met else "NO"
