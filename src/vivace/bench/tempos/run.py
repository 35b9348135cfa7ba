"""One run of `vivace bench tempos` from beginning to end: one engine, the rounds, the report.

    python -m vivace.bench.tempos.run --checkpoint FILE --material FILE --gpu-folder FOLDER [--json]

is the same on a GPU machine that has no tokenizer. Owns the engine's life: it is gone when this returns,
Ctrl-C included.
"""

import argparse
import json
import os
import sys
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import msgspec

from vivace.bench.engine.engine_process import EngineProcess
from vivace.bench.engine.prompts import LONG_ANSWER, Prompts
from vivace.bench.engine.run import SEED, describe_machine, versions
from vivace.bench.figures import rounded
from vivace.bench.progress import Progress
from vivace.bench.tempos.measure import FULL, PARTS, QUICK, Effort, TempoBench, Texts
from vivace.bench.tempos.report import LIMITS, judge, table
from vivace.config import Settings
from vivace.engine.wire.job import Job, make_job
from vivace.models.store import model_path

ASKED_WORDS = 120  # random ones before the question: a first token that has something to read


def run_tempos_bench(settings: Settings, effort: Effort) -> dict[str, Any]:
    """Measure on the engine that the settings choose; the report has a key for each figure."""
    path = model_path(settings, settings.model)
    job = msgspec.structs.replace(make_job(settings, settings.model, path), kv_folder="", kv_disk_bytes=0)
    return run_job(job, make_texts(settings.model, path), effort)


def make_texts(model: str, path: Path) -> Texts:
    from vivace.models.families.choose import family_for
    from vivace.models.tokenizer import load_tokenizer

    tokenizer = load_tokenizer(model, path)
    prompts = Prompts(tokenizer, family_for(tokenizer, model), SEED)
    return Texts(
        ask=lambda: prompts.message(f"{prompts.text(ASKED_WORDS)}\n\n{LONG_ANSWER}"), read=prompts.fresh
    )


def run_job(job: Job, texts: Texts, effort: Effort) -> dict[str, Any]:
    load = os.getloadavg()[0]
    with EngineProcess(job) as engine:
        tempos = TempoBench(engine, texts, effort).run(Progress(effort, parts=PARTS))
        device, threads = engine.device, engine.threads
    report = rounded(
        {
            "model": job.model,
            "device": device,
            "weights": Path(job.path).name,
            "machine": describe_machine(threads, load),
            "versions": versions(),
            "seed": SEED,
            "tempos": tempos,
        }
    )
    assert isinstance(report, dict)
    report["thresholds"] = {key: str(limit) for key, limit in LIMITS.items()}
    report["passed"] = judge(report)
    return report


def sliced_texts(code: list[int]) -> Texts:
    """Return prompts that are pieces of one long text, each from another place."""
    places = count(0, 97)

    def take(tokens: int) -> list[int]:
        begin = next(places) % max(1, len(code) - tokens)
        return code[begin : begin + tokens]

    return Texts(partial(take, ASKED_WORDS), take)


def main() -> int:
    from vivace.bench.gpu.material import load_material
    from vivace.bench.gpu.run import make_job as make_gpu_job

    parser = argparse.ArgumentParser(prog="python -m vivace.bench.tempos.run")
    parser.add_argument("--checkpoint", type=Path, required=True, help="a GGUF file")
    parser.add_argument("--material", type=Path, required=True, help="tokens of benchmarks/gpu_lease.py")
    parser.add_argument("--gpu-folder", type=Path, required=True, help="where compiled kernels are kept")
    parser.add_argument("--bits", type=int, default=8)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    job = make_gpu_job(options.checkpoint, options.gpu_folder, options.bits)
    report = run_job(
        job, sliced_texts(load_material(options.material).code), QUICK if options.quick else FULL
    )
    print(json.dumps(report, indent=2, ensure_ascii=False) if options.json else table(report))
    return 0


if __name__ == "__main__":
    sys.exit(main())
