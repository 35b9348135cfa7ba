"""How llama.cpp's threads behave: prefill by chunk size, and decode beside other work by barrier spinning.

    .venv/bin/python benchmarks/engine/threads.py [--model NAME] [--rounds N]

The engine feeds prompts in chunks of 64 tokens and lets its threads sleep soon at barriers. This shows what
both cost on an idle machine, and what the second is worth while every core is busy with something else.
Each row is a process of its own, rows interleaved, medians.
"""

import argparse
import json
import multiprocessing
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from vivace.config import load_settings
from vivace.engine.tuning.cpu import SPIN_COUNT, choose_threads
from vivace.models.download import ensure
from vivace.models.progress import Silent

CHUNKS = (8, 16, 32, 64, 128, 512)
DECODED = 24


def child(path: str, threads: int) -> None:
    """Print prefill tokens a second by chunk size, and decode tokens a second."""
    from vivace.engine.runners.base import Span
    from vivace.engine.runners.llamacpp import LlamaRunner

    runner = LlamaRunner(Path(path), context_tokens=2048, threads=threads)
    tokens = [100 + i * 7 % 5000 for i in range(512)]
    result: dict[str, float] = {}
    for chunk in CHUNKS:
        runner.trim(0, 0)
        began = time.perf_counter()
        for start in range(0, 512 if chunk > 128 else 128, chunk):
            runner.forward([Span(0, start, tokens[start : start + chunk], 0)])
        fed = 512 if chunk > 128 else 128
        result[str(chunk)] = fed / (time.perf_counter() - began)
    runner.trim(0, 64)
    began = time.perf_counter()
    for step in range(DECODED):
        runner.forward([Span(0, 64 + step, [tokens[step]], 1)])
    result["decode"] = DECODED / (time.perf_counter() - began)
    print(json.dumps(result))


def busy() -> None:
    while True:
        pass


@contextmanager
def busy_cores(count: int) -> Iterator[None]:
    workers = [multiprocessing.Process(target=busy, daemon=True) for _ in range(count)]
    for worker in workers:
        worker.start()
    try:
        yield
    finally:
        for worker in workers:
            worker.kill()
            worker.join()


def run(path: Path, threads: int, spin: str) -> dict[str, float]:
    env = {k: v for k, v in os.environ.items() if k != "GOMP_SPINCOUNT"}
    if spin:
        env["GOMP_SPINCOUNT"] = spin
    command = [sys.executable, __file__, "--child", str(path), str(threads)]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
    result: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return result


def main() -> None:
    if sys.argv[1:2] == ["--child"]:
        return child(sys.argv[2], int(sys.argv[3]))
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model")
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    settings = load_settings().having(model=args.model)
    path, threads = ensure(settings, settings.model, Silent()), choose_threads(settings.threads)
    print(f"{settings.model}, {threads} threads, {os.cpu_count()} CPUs; tokens a second")
    print(f"{'':<28}" + "".join(f"{'chunk ' + str(c):>10}" for c in CHUNKS) + f"{'decode':>10}")
    for label, load in (("idle machine", 0), ("every core busy", os.cpu_count() or 1)):
        with busy_cores(load):
            seen: dict[str, list[dict[str, float]]] = {"": [], SPIN_COUNT: []}
            for _ in range(args.rounds):
                for spin, results in seen.items():
                    results.append(run(path, threads, spin))
        for spin, results in seen.items():
            row = f"{label}, {'our spin' if spin else 'default spin'}"
            cells = [statistics.median(r[key] for r in results) for key in (*map(str, CHUNKS), "decode")]
            print(f"{row:<28}" + "".join(f"{cell:>10.1f}" for cell in cells))
    return None


if __name__ == "__main__":
    main()
