"""Both ways through a prefill, same weights: milliseconds by size, the kernels they go to, what differs.

Owns the comparison for docs/gpu-notes.md. Runs through the runner's seam, logits of the last token included.
"""

import statistics
import time
from pathlib import Path
from typing import Any

import numpy as np

from vivace.bench.gpu.material import Material
from vivace.engine.runners.base import Logits, Span
from vivace.engine.runners.cuda.load import GpuOptions, open_runner
from vivace.engine.runners.cuda.runner import PREFILLS

SIZES = (64, 256, 512, 1024, 2048, 4096, 8192)
BEHIND = 8192  # tokens that are there already, for some more measurements
MORE = (64, 256, 1024)
ENDS = range(500, 12_500, 60)  # where the likeliest next token is asked for
ROUNDS = 5
TOP = 12


def compare_prefills(model: Path, gpu_folder: Path, material: Material) -> dict[str, Any]:
    found, said = {}, {}
    for way in PREFILLS:
        runner = open_runner(model, GpuOptions(16384, folder=gpu_folder, prefill=way))
        found[way] = _measure(runner, material)
        said[way] = _next_tokens(runner, material, passes=False)
        if way == "bf16":
            said["8-bit weights"] = _next_tokens(runner, material, passes=True)
        runner.close()
    exact = said.pop("bf16")
    for way, rows in said.items():
        found.setdefault(way, {})["against bf16"] = _difference(exact, rows)
    return found


def _measure(runner: Any, material: Material) -> dict[str, Any]:
    found: dict[str, Any] = {str(size): _median_ms(runner, material.code[:size], 0) for size in SIZES}
    runner.forward([Span(0, 0, material.code[:BEHIND])])
    for size in MORE:
        new = material.code[BEHIND : BEHIND + size]
        found[f"{size} behind {BEHIND}"] = _median_ms(runner, new, BEHIND)
    runner.trim(0, 0)
    found["kernels_us_at_4096"] = _profile(runner, material.code[:4096])
    return found


def _median_ms(runner: Any, tokens: list[int], start: int) -> float:
    spent = []
    for _ in range(ROUNDS + 1):
        runner.trim(0, start)
        begun = time.perf_counter()
        runner.forward([Span(0, start, tokens, want=1)])
        spent.append((time.perf_counter() - begun) * 1e3)
    runner.trim(0, start)
    return round(statistics.median(spent[1:]), 2)


def _next_tokens(runner: Any, material: Material, *, passes: bool) -> list[Logits]:
    """Return the logits at each of ENDS. With `passes`, decode the last token in a pass of its own."""
    rows, at = [], 0
    for end in ENDS:
        if passes:
            runner.forward([Span(0, at, material.code[at : end - 1])])
            at = end - 1
        rows.append(runner.forward([Span(0, at, material.code[at:end], want=1)])[0].copy())
        at = end
    runner.trim(0, 0)
    return rows


def _difference(exact: list[Logits], other: list[Logits]) -> dict[str, float]:
    """Return how often the top token is the same, and the mean KL divergence in nats."""
    same, apart = [], []
    for a, b in zip(exact, other, strict=True):
        p, q = (row - np.logaddexp.reduce(row.astype(np.float64)) for row in (a, b))
        same.append(int(a.argmax()) == int(b.argmax()))
        apart.append(float((np.exp(p) * (p - q)).sum()))
    return {"same": round(statistics.mean(same), 4), "kl": round(statistics.mean(apart), 5)}


def _profile(runner: Any, tokens: list[int]) -> dict[str, float]:
    """Return microseconds by kernel, the longest first."""
    import torch  # type: ignore[import-not-found,unused-ignore]

    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        runner.forward([Span(0, 0, tokens, want=1)])
    runner.trim(0, 0)
    events = sorted(profile.key_averages(), key=lambda event: -event.device_time_total)
    return {f"{event.key[:60]} x{event.count}": round(event.device_time_total, 1) for event in events[:TOP]}
