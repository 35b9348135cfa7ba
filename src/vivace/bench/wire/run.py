"""One run from beginning to end: a server of our own, part after part, the report.

Owns the order. Whatever happens, Ctrl-C included, the server is gone when this returns. Does not print.
"""

import os
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

from vivace.bench.engine.context import Section
from vivace.bench.engine.run import describe_machine, versions
from vivace.bench.figures import rounded
from vivace.bench.progress import Progress
from vivace.bench.served.own_server import BenchServer, open_server
from vivace.bench.wire.effort import PARTS, Effort
from vivace.bench.wire.limits import LIMITS, judge
from vivace.bench.wire.measures.fanout import measure_fanout
from vivace.bench.wire.measures.first_token import measure_first_token
from vivace.bench.wire.measures.idle import measure_idle
from vivace.bench.wire.measures.per_token import measure_per_token
from vivace.bench.wire.measures.roundtrip import measure_roundtrip
from vivace.config import Settings
from vivace.engine.tuning.cpu import choose_threads
from vivace.models.store import model_path

SMALL_MODEL = "smollm2-135m"
PACKAGES = ("uvicorn", "uvloop", "websockets", "starlette", "msgspec")


def run_wire_bench(settings: Settings, effort: Effort) -> dict[str, Any]:
    """Measure everything with a model that is here; the report is a dictionary with a key for each figure."""
    load = os.getloadavg()[0]
    model = model_path(settings, settings.model).absolute()
    with open_server(settings, str(model)) as server:
        sections = measure(server, model, effort, Progress(effort, parts=PARTS))
    report = rounded(
        {
            "model": settings.model,
            "machine": describe_machine(choose_threads(settings.threads), load)
            | {"load_at_end": os.getloadavg()[0]},
            "versions": versions() | {name: version(name) for name in PACKAGES},
            **sections,
        }
    )
    assert isinstance(report, dict)
    report["thresholds"] = {key: str(limit) for key, limit in LIMITS.items()}
    report["passed"] = judge(report)
    return report


def measure(server: BenchServer, model: Path, effort: Effort, progress: Progress) -> dict[str, Section]:
    """Measure all parts in the order of `effort.PARTS`."""
    parts: dict[str, tuple[str, Callable[[], Section]]] = {
        "round trip": ("roundtrip", lambda: measure_roundtrip(server, model, effort.loops, effort.turns)),
        "per token": ("per_token", lambda: measure_per_token(server, effort.token_rounds, effort.tokens)),
        "fan-out": ("fanout", lambda: measure_fanout(server, effort.fanout_sockets, effort.fanout_tokens)),
        "idle sockets": ("idle", lambda: measure_idle(server, effort.idle_sockets)),
        "first token": (
            "first_token",
            lambda: measure_first_token(
                server, str(model), effort.first_token_rounds, effort.first_token_chars
            ),
        ),
    }
    sections = {}
    for title, (key, part) in parts.items():
        progress.begin(title)
        sections[key] = part()
    progress.end()
    return sections
