"""One run from beginning to end: start who is needed, measure part after part, put the report together.

Owns the order and the life of the processes: at any time one engine of ours, at most one peer, nothing else.
Whatever happens, Ctrl-C included, both are gone when this returns. Does not print the report.
"""

import os
import platform
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from importlib.metadata import version
from pathlib import Path
from typing import Any

from vivace import __version__
from vivace.bench.engine.context import BenchContext, Section
from vivace.bench.engine.effort import Effort
from vivace.bench.engine.engine_process import EngineProcess
from vivace.bench.engine.measures.background import measure_background
from vivace.bench.engine.measures.edits import measure_edits
from vivace.bench.engine.measures.interrupts import measure_interrupts
from vivace.bench.engine.measures.parking import measure_leaving, measure_park
from vivace.bench.engine.measures.plain import measure_decode, measure_first_token
from vivace.bench.engine.measures.turns import measure_steer, measure_warm_turn
from vivace.bench.engine.measures.typed_ahead import measure_typing
from vivace.bench.engine.peer import Peer, PeerJob
from vivace.bench.engine.prompts import Prompts
from vivace.bench.engine.weights import Loadable, as_chosen, as_downloaded
from vivace.bench.figures import rounded
from vivace.bench.limits import judge, limits_of
from vivace.bench.progress import Progress
from vivace.bench.rows import RowSet, choose_cases, quickest, read_rows
from vivace.config import Settings
from vivace.engine.tuning.cpu import cpu_features, memory_bytes
from vivace.errors import FileProblem
from vivace.models.families.qwen25 import Qwen25
from vivace.models.tokenizer import load_tokenizer

SEED = 7
CHOICE = 30  # rows that a run chooses from: a quick one takes the quickest of them
PEER_TOKENS = 4096  # context: a prompt of an edit and its answer are at most half of that


def run_engine_bench(settings: Settings, effort: Effort, folder: Path | None) -> dict[str, Any]:
    """Measure everything; the report is a dictionary with a key for each figure."""
    load = os.getloadavg()[0]
    settings.cache_dir.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="bench-kv-", dir=settings.cache_dir) as kv_folder:
        downloaded = as_downloaded(settings, Path(kv_folder))
        chosen = as_chosen(settings, downloaded)
        rows = read_rows(folder)
        context = make_context(settings, effort, rows, downloaded)
        sections = measure(context, settings, downloaded, chosen)
    report = rounded(
        {
            "model": settings.model,
            "machine": describe_machine(downloaded.job.threads, load),
            "versions": versions(),
            "weights": {"downloaded": downloaded.label, "chosen": chosen.label},
            "data": rows.source,
            "seed": SEED,
            **sections,
        }
    )
    report["thresholds"] = {key: str(limit) for key, limit in limits_of(report).items()}
    report["passed"] = judge(report)
    assert isinstance(report, dict)
    return report


def make_context(settings: Settings, effort: Effort, rows: RowSet, downloaded: Loadable) -> BenchContext:
    tokenizer = load_tokenizer(settings.model, Path(downloaded.job.path))
    template = Qwen25(tokenizer)
    cases = choose_cases(rows.rows, tokenizer, template, max(CHOICE, effort.rows))
    if not cases:
        raise FileProblem(f"No edit can be taken from {rows.source}.", "Name another folder with --data.")
    return BenchContext(
        effort=effort,
        prompts=Prompts(tokenizer, template, SEED),
        cases=quickest(cases, effort.rows) if effort.rows < len(cases) else cases,
        end_tokens=sorted(tokenizer.end_tokens),
        progress=Progress(effort),
    )


def measure(
    context: BenchContext, settings: Settings, downloaded: Loadable, chosen: Loadable
) -> dict[str, Section]:
    """Measure all parts in the order of `effort.PARTS`."""
    sections: dict[str, Section] = {}
    with ExitStack() as ours:
        context.progress.begin("decode")
        with Peer(_peer_job(downloaded)) as peer:
            with EngineProcess(downloaded.job) as engine:
                sections["peer"] = measure_decode(context, engine, peer)
            context.progress.begin("first token")
            engine = ours.enter_context(EngineProcess(chosen.job))
            sections["peer"] |= measure_first_token(context, engine, peer)
        context.progress.begin("edits")
        with Peer(_peer_job(downloaded, has_lookup=True)) as peer:
            sections["edits"], compared = measure_edits(context, engine, peer)
            sections["peer"] |= compared
        sections |= _measure_alone(context, engine, Path(chosen.job.kv_folder))
    sections["park"] |= measure_leaving(context, settings, downloaded.job.path)
    context.progress.end()
    return sections


def _measure_alone(context: BenchContext, engine: EngineProcess, kv_folder: Path) -> dict[str, Section]:
    """Measure the parts that need no peer."""
    parts: dict[str, Callable[[], Section]] = {
        "warm turn": lambda: measure_warm_turn(context, engine),
        "steer": lambda: measure_steer(context, engine),
        "interrupt": lambda: measure_interrupts(context, engine),
        "typing": lambda: measure_typing(context, engine),
        "park": lambda: measure_park(context, engine, kv_folder),
        "background": lambda: measure_background(context, engine),
    }
    sections = {}
    for name, part in parts.items():
        context.progress.begin(name)
        sections[name.replace(" ", "_")] = part()
    return sections


def _peer_job(downloaded: Loadable, *, has_lookup: bool = False) -> PeerJob:
    return PeerJob(downloaded.job.path, PEER_TOKENS, downloaded.job.threads, has_lookup)


def describe_machine(threads: int, load: float) -> dict[str, Any]:
    total, _ = memory_bytes()
    return {
        "system": f"{platform.system()} {platform.machine()}",
        "cpu": _cpu_name(),
        "features": cpu_features(),
        "cpus": os.cpu_count() or 1,
        "threads": threads,
        "memory_gb": round(total / 1e9, 1),
        "load_at_start": load,
    }


def versions() -> dict[str, str]:
    return {
        "vivace": __version__,
        "llama-cpp-python": version("llama-cpp-python"),
        "python": platform.python_version(),
    }


def _cpu_name() -> str:
    """Return the CPU's name, or its architecture where the system gives no name."""
    file = Path("/proc/cpuinfo")
    lines = file.read_text().splitlines() if file.exists() else []
    named = (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    return next(named, platform.processor() or platform.machine())
