"""Both ways through a prefill on the same weights: milliseconds by size, and which kernels they go to.

Owns the comparison for docs/gpu-notes.md. Runs through the runner's seam, logits of the last token included.
"""

import statistics
import time
from pathlib import Path
from typing import Any

from vivace.bench.gpu_material import Material
from vivace.engine.runners.base import Span
from vivace.engine.runners.cuda.load import open_runner
from vivace.engine.runners.cuda.prefill import PREFILLS

SIZES = (64, 256, 512, 1024, 2048, 4096, 8192)
BEHIND = 8192  # tokens that are there already, for one more measurement
ROUNDS = 5
TOP = 12


def compare_prefills(model: Path, gpu_folder: Path, material: Material) -> dict[str, Any]:
    return {way: _measure(way, model, gpu_folder, material) for way in PREFILLS}


def _measure(way: str, model: Path, gpu_folder: Path, material: Material) -> dict[str, Any]:
    runner = open_runner(model, context_tokens=16384, bits=8, folder=gpu_folder, prefill=way)
    found: dict[str, Any] = {str(size): _median_ms(runner, material.code[:size], 0) for size in SIZES}
    runner.forward([Span(0, 0, material.code[:BEHIND])])
    found[f"1024 behind {BEHIND}"] = _median_ms(runner, material.code[BEHIND : BEHIND + 1024], BEHIND)
    runner.trim(0, 0)
    found["kernels_us_at_4096"] = _profile(runner, material.code[:4096])
    runner.close()
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


def _profile(runner: Any, tokens: list[int]) -> dict[str, float]:
    """Microseconds by kernel, the longest first."""
    import torch  # type: ignore[import-not-found,unused-ignore]

    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        runner.forward([Span(0, 0, tokens, want=1)])
    runner.trim(0, 0)
    events = sorted(profile.key_averages(), key=lambda event: -event.device_time_total)
    return {f"{event.key[:60]} x{event.count}": round(event.device_time_total, 1) for event in events[:TOP]}
