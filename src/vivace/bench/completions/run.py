"""One run of `vivace bench completions`: a server of its own, lines cut out of real files, the report.

A cold request is the first one in a file. A warm one comes next in the same place, with three more letters
typed, as an editor sends it. Owns what is measured and the limits. A suggestion is the rest of the line.
"""

import json
import os
import time
import urllib.request
from collections.abc import Sequence
from typing import Any, NamedTuple

from vivace.bench.completions.cuts import Cut, cuts
from vivace.bench.engine.report import BUSY_LOAD
from vivace.bench.engine.run import SEED, describe_machine
from vivace.bench.figures import median, percentile, rounded
from vivace.bench.limits import Limit, figure
from vivace.bench.served.own_server import BenchServer, open_server
from vivace.config import Settings
from vivace.models.store import model_path
from vivace.models.tokenizer import SCRIPTED

TYPED_LETTERS = 3
LINE_TOKENS = 32
TIMEOUT_S = 120.0
WARM_MS = {"cpu": 1200.0, "cuda": 150.0}  # the most for half of the warm suggestions


class Suggestion(NamedTuple):
    text: str
    milliseconds: float  # until all of it was there
    cached_tokens: int
    new_tokens: int


def run_completions_bench(settings: Settings, files: int) -> dict[str, Any]:
    """Measure cold and warm suggestions in `files` files; the report has a key for each figure."""
    load = os.getloadavg()[0]
    cold: list[Suggestion] = []
    warm: list[Suggestion] = []
    exact: list[bool] = []
    is_scripted = settings.model.startswith(SCRIPTED)
    model = settings.model if is_scripted else str(model_path(settings, settings.model).absolute())
    with open_server(settings, model) as server:
        device = _device(server)
        for cut in cuts(files, SEED):
            cold.append(_ask(server, cut))
            typed = cut.typed(TYPED_LETTERS)
            warm.append(_ask(server, typed))
            exact.append(cold[-1].text.rstrip() == cut.rest.rstrip())
    figures = {"cold": _figures(cold), "warm": _figures(warm), "exact": sum(exact), "asked": len(exact)}
    report: dict[str, Any] = {
        "model": settings.model,
        "device": device,
        "machine": describe_machine(settings.threads, load),
        "seed": SEED,
        "completions": rounded(figures),
    }
    limit = Limit("≤", WARM_MS.get(device, WARM_MS["cpu"]))
    report["thresholds"] = {"completions.warm.ms_p50": str(limit)}
    report["passed"] = {"completions.warm.ms_p50": limit.is_met_by(figure(report, "completions.warm.ms_p50"))}
    return report


def _ask(server: BenchServer, cut: Cut) -> Suggestion:
    body = {"prompt": cut.prefix, "suffix": cut.suffix, "max_tokens": LINE_TOKENS, "stop": ["\n"]}
    begun = time.perf_counter()
    answer = _post(server, "/v1/completions", body | {"temperature": 0})
    took_ms = (time.perf_counter() - begun) * 1e3
    times = answer["vivace"]["waterfall"]
    return Suggestion(answer["choices"][0]["text"], took_ms, times["cached_tokens"], times["new_tokens"])


def _post(server: BenchServer, path: str, body: dict[str, Any]) -> Any:
    request = urllib.request.Request(
        f"http://127.0.0.1:{server.address.port}{path}",
        data=json.dumps(body).encode(),
        headers={"Authorization": f"Bearer {server.address.token}", "Content-Type": "application/json"},
    )
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(
        request, timeout=TIMEOUT_S
    ) as answer:
        return json.load(answer)


def _device(server: BenchServer) -> str:
    from vivace.client.warm import read_status

    status = read_status(server.settings)
    return status.engine.device if status else "cpu"


def _figures(asked: Sequence[Suggestion]) -> dict[str, float]:
    times = [each.milliseconds for each in asked]
    return {
        "ms_p50": median(times),
        "ms_p95": percentile(times, 0.95),
        "cached_tokens": median([float(each.cached_tokens) for each in asked]),
        "new_tokens": median([float(each.new_tokens) for each in asked]),
    }


def table(report: dict[str, Any]) -> str:
    """Return the report as text."""
    found, machine = report["completions"], report["machine"]
    lines = [f"{report['model']} on {report['device']}: {machine['cpu']}"]
    if machine["load_at_start"] > BUSY_LOAD:
        lines.append(f"Other programs were busy (load {machine['load_at_start']:.1f}): run it again later.")
    lines += ["", f"{'':<22}{'p50':>9}{'p95':>9}{'cached':>9}{'read':>7}"]
    for name, what in (("cold", "first in a file"), ("warm", "three letters later")):
        each = found[name]
        lines.append(
            f"{what:<22}{each['ms_p50']:>6.0f} ms{each['ms_p95']:>6.0f} ms"
            f"{each['cached_tokens']:>9.0f}{each['new_tokens']:>7.0f}"
        )
    limit = report["thresholds"]["completions.warm.ms_p50"]
    is_met = report["passed"]["completions.warm.ms_p50"]
    lines += [
        "",
        f"{found['exact']} of {found['asked']} lines came back exactly.",
        f"The warm median must be {limit} ms: {'met' if is_met else 'MISSED'}.",
    ]
    return "\n".join(lines)
