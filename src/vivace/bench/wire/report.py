"""The wire's report for people: one table, every figure beside what it is compared with and its limit.

Owns the words. The figures are those of the JSON, which has more of them.
"""

from typing import Any

from vivace.bench.engine.report import BUSY_LOAD, Line, measured
from vivace.bench.limits import figure
from vivace.bench.report_table import report_text
from vivace.bench.wire.limits import LIMITS, judge

HEAD = ("", "ours", "against", "", "limit", "met")
LINES = (
    Line(
        "roundtrip.overhead_reduction",
        "a turn of a tool loop, without the model's time",
        "roundtrip.socket.overhead_ms",
        "roundtrip.http.overhead_ms",
        "by HTTP, whole history",
        "ms",
    ),
    Line(
        "first_token.reduction",
        "first token, warm session",
        "first_token.socket_ms",
        "first_token.http_ms",
        "cold by HTTP",
        "ms",
    ),
    Line(
        "per_token.overhead_us",
        "a token from the engine to the client",
        "per_token.overhead_us",
        "per_token.sse_us",
        "by SSE",
        "µs",
    ),
    Line("per_token.overhead_us_p99", "the same, 99% within", unit="µs"),
    Line("per_token.floor_us", "the same, with nothing done on the way", unit="µs"),
    Line("per_token.with_engine_us", "the same, with the engine's own work", unit="µs"),
    Line("fanout.delivered_share", "tokens of all sockets delivered in time"),
    Line("fanout.tok_s", "tokens delivered to all sockets", unit="tok/s"),
    Line("idle.kib_per_socket", "memory for an idle socket", unit="KiB"),
)


def table(report: dict[str, Any]) -> str:
    """Return the whole report as text."""
    rows = [HEAD, *(_cells(report, line) for line in LINES)]
    return report_text(heading(report), rows, judge(report))


def heading(report: dict[str, Any]) -> str:
    """Return the line that says what was measured, on which machine."""
    machine, versions, fanout = report["machine"], report["versions"], report["fanout"]
    lines = [
        f"{machine['cpu']}, {machine['cpus']} CPUs, {machine['memory_gb']:g} GB, "
        f"Python {versions['python']}, uvicorn {versions['uvicorn']}, websockets {versions['websockets']}",
        f"{report['roundtrip']['turns']} turns a loop, {report['roundtrip']['loops']} loops; "
        f"{report['model']} for the first token; {fanout['sockets']} sockets on {fanout['cores']} cores",
    ]
    load = max(machine["load_at_start"], machine["load_at_end"] - 1.0)  # the bench itself is about one
    if load > BUSY_LOAD:
        lines.append(f"Other programs were busy (load {load:.1f}): run it again when they are not.")
    return "\n".join(lines)


def shown(report: dict[str, Any], key: str, unit: str) -> str:
    """Return a measurement with its unit. Show long microseconds as milliseconds."""
    if unit == "µs" and (value := figure(report, key)) >= 1000:
        return f"{value / 1e3:.1f} ms"
    return measured(report, key, unit)


def _cells(report: dict[str, Any], line: Line) -> tuple[str, ...]:
    limit = LIMITS.get(line.key)
    value = figure(report, line.key)
    ours, against, ratio = shown(report, line.key, line.unit), "", ""
    if line.ours:
        ours = shown(report, line.ours, line.unit)
        against = f"{shown(report, line.against, line.unit)} {line.against_what}"
        ratio = f"{value:.2f} less" if line.key.endswith("reduction") else ""
    met = "" if limit is None else "yes" if limit.is_met_by(value) else "NO"
    return line.what, ours, against, ratio, str(limit or ""), met
