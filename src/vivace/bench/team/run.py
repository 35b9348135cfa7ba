"""One run of `vivace bench team`: a server of its own, each number of users in turn, the report.

    python -m vivace.bench.team.run --model FOLDER [--users 1,2,4] [--json]

is the same without the command line's packages. Owns the server's life, the limits and the report.
"""

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from vivace.bench.engine.report import BUSY_LOAD
from vivace.bench.engine.run import describe_machine
from vivace.bench.figures import rounded
from vivace.bench.gpu.users import MUST, USERS, parse_users
from vivace.bench.limits import Limit
from vivace.bench.report_table import verdict
from vivace.bench.served.own_server import BenchServer, open_server
from vivace.bench.team.measure import OUTPUT_TOKENS, measure_team
from vivace.config import Settings, load_settings
from vivace.models.store import model_path
from vivace.models.tokenizer import SCRIPTED

DELIVERED = Limit("≥", 0.95)  # of the engine's rate, at DELIVERED_USERS
DELIVERED_USERS = 16


def run_team_bench(
    settings: Settings, users: Sequence[int], *, tokens: int = OUTPUT_TOKENS
) -> dict[str, Any]:
    """Measure each number of users on a server with the settings' model."""
    load = os.getloadavg()[0]
    is_scripted = settings.model.startswith(SCRIPTED)
    model = settings.model if is_scripted else str(model_path(settings, settings.model).absolute())
    with open_server(settings, model) as server:
        measure_team(server, 1, tokens=8)  # warms up
        measure_team(server, min(2, max(users)), tokens=8)
        found = {}
        for count in users:
            print(f"{count} users", file=sys.stderr, flush=True)
            found[str(count)] = measure_team(server, count, tokens=tokens)
        device = _device(server)
    report: dict[str, Any] = {
        "model": Path(settings.model).name,
        "device": device,
        "machine": describe_machine(settings.threads, load),
        "tokens_each": tokens,
        "users": rounded(found),
    }
    report["passed"] = judge(report)
    return report


def judge(report: dict[str, Any]) -> dict[str, bool]:
    """Return which limits are met. Speeds are those of the 1.5B on a GPU; elsewhere only the share counts."""
    passed = {}
    for count, each in report["users"].items():
        if report["device"] == "cuda" and int(count) in MUST:
            passed[f"users.{count}.tokens_per_s"] = each["tokens_per_s"] >= MUST[int(count)]
        if int(count) == DELIVERED_USERS:
            passed[f"users.{count}.delivered_share"] = DELIVERED.is_met_by(each["delivered_share"])
    return passed


def table(report: dict[str, Any]) -> str:
    """Return the report as text."""
    machine = report["machine"]
    lines = [
        f"{report['model']} on {report['device']}: {machine['cpu']}",
        f"{report['tokens_each']} tokens each, sampled, on a WebSocket each; all at once",
    ]
    if machine["load_at_start"] > BUSY_LOAD:
        lines.append(f"Other programs were busy (load {machine['load_at_start']:.1f}): run it again later.")
    lines += ["", f"{'users':>5}{'tok/s':>9}{'each':>8}{'arrived':>9}{'first token':>13}{'p95':>9}"]
    for count, each in report["users"].items():
        lines.append(
            f"{count:>5}{each['tokens_per_s']:>9.0f}{each['tokens_per_s_each']:>8.0f}"
            f"{each['delivered_share']:>9.0%}{each['first_token_ms']:>10.1f} ms"
            f"{each['first_token_ms_p95']:>6.0f} ms"
        )
    return "\n".join([*lines, "", verdict(report["passed"])])


def _device(server: BenchServer) -> str:
    from vivace.client.warm import read_status

    status = read_status(server.settings)
    return status.engine.device if status else "cpu"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m vivace.bench.team.run")
    parser.add_argument("--model", required=True, help="a name, a GGUF file or a folder")
    parser.add_argument("--users", type=parse_users, default=list(USERS))
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    report = run_team_bench(load_settings().having(model=options.model), options.users)
    print(json.dumps(report, indent=2, ensure_ascii=False) if options.json else table(report))
    return 0


if __name__ == "__main__":
    sys.exit(main())
