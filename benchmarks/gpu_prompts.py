"""Prompts of a mixture of experts on a GPU: read whole, and a layer's experts with other cuts of the work.

Owns how prompts are timed for `gpu_experts.py` and `gpu_gptoss.py`, which make the model. Does not compare
what comes out.
"""

import itertools
import time
from collections.abc import Callable

import torch  # type: ignore[import-not-found,unused-ignore]
from torch.cuda import Event  # type: ignore[import-not-found,unused-ignore]

from gpu_attempt import attempt
from vivace.engine.runners.cuda.decode.launches import Model
from vivace.engine.runners.cuda.prefill import grouped
from vivace.engine.runners.cuda.prefill.experts import ExpertPrefill
from vivace.engine.runners.cuda.prefill.grouped import Cut, Groups

# Of a prompt's experts: rows that share an expert, rows of the weights, warps, blocks of columns at once.
CUTS = (
    *(Cut(16, 64, 4, 3), Cut(16, 128, 4, 4), Cut(32, 64, 4, 3), Cut(32, 128, 4, 3), Cut(32, 128, 4, 4)),
    *(Cut(64, 64, 4, 4), Cut(64, 128, 4, 3), Cut(64, 128, 4, 4), Cut(128, 64, 4, 3), Cut(128, 128, 4, 3)),
    *(Cut(128, 128, 4, 4), Cut(128, 256, 8, 4)),
)
PROMPTS = (64, 256, 1024, 4096)
SHOWN = 1024  # tokens of the prompt whose kernels are listed
ROUNDS = 20


def read_prompts(reader: ExpertPrefill, vocab: int) -> str:
    """Read prompts of several lengths. Times are those of a second reading, graphs captured."""
    found = f"{torch.cuda.memory_allocated() >> 20} MiB"
    for size in PROMPTS:
        tokens = [(7 * i + size) % vocab for i in range(size)]
        reader._write([], 0)
        reader._prepare(size)
        times: list[float] = []

        def stamp(times: list[float] = times) -> bool:
            times.append(time.perf_counter())
            return False

        reader.run(tokens, 0, 1, None)
        torch.cuda.synchronize()
        begun = time.perf_counter()
        reader.run(tokens, 0, 1, None)
        torch.cuda.synchronize()
        whole = (time.perf_counter() - begun) * 1e3
        reader.run(tokens, 0, 1, stamp)
        torch.cuda.synchronize()
        times.append(time.perf_counter())
        longest = max(b - a for a, b in itertools.pairwise(times)) * 1e3
        found += f"\n    {size:5} tokens {whole:7.1f} ms, stopped within {longest:5.1f} ms"
    return found + profiled(lambda: reader.run(list(range(SHOWN)), 0, 1, None))


def profiled(work: Callable[[], object]) -> str:
    """Return the kernels that took longest, and the mean time of each."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA]) as seen:
        work()
        torch.cuda.synchronize()
    events = sorted(seen.key_averages(), key=lambda e: -e.device_time_total)[:14]
    return "".join(f"\n    {e.key[:40]:40} {e.count:6} x {e.device_time:7.2f} µs" for e in events)


def time_cuts(model: Model, until: float) -> None:
    """Time a layer's experts for prompts, each cut with all prompts; the cuts that are taken first."""
    groups = Groups(model, max(PROMPTS), torch.device("cuda"))
    attempt("the cuts that are taken", lambda: _prompts_us(model, groups), until)
    before = grouped.CUTS
    for cut in CUTS:
        grouped.CUTS = {1 << 20: cut}
        attempt(str(cut), lambda: _prompts_us(model, groups), until)
    grouped.CUTS = before


def _prompts_us(model: Model, groups: Groups) -> str:
    layer, shape = model.layers[0], model.shape
    found = []
    for tokens in PROMPTS:
        x = torch.randn(tokens, shape.hidden, device="cuda")
        scores = torch.randn(tokens, shape.experts, device="cuda")
        delta = torch.zeros(tokens, shape.hidden, dtype=torch.bfloat16, device="cuda")
        groups.run(layer, x, scores, delta)
        begin, end = Event(enable_timing=True), Event(enable_timing=True)  # type: ignore[no-untyped-call,unused-ignore]
        begin.record()
        for _ in range(ROUNDS):
            groups.run(layer, x, scores, delta)
        end.record()
        end.synchronize()
        found.append(f"{tokens} tokens {begin.elapsed_time(end) * 1e3 / ROUNDS:.0f}")
    return f"µs: {', '.join(found)}"
