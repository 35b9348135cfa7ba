"""Dense families on a GPU, random weights of the true shape: the same as transformers, and which cuts.

    gpu_dense.py same variants                      all of it, each stage in a process of its own
    gpu_dense.py --shape qwen3-8b kernels           another shape than Qwen2.5-Coder 7B

How fast they are is `vivace bench gpu --shape`'s.

same      two layers of true shapes: tokens of passes of 1, 8 and 16 to the bit; logits and greedy tokens
          against transformers in bf16, behind prompts that are read by each of the prefill's kernels and in
          each of its formats
kernels   where the time of a pass goes
slices    other cuts of the down projection's columns
variants  other rings and clusters

Needs torch, transformers and a GPU. A stage that fails costs the others nothing. Nothing new is begun after
`--limit-s`.
"""

import argparse
import contextlib
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent / "src"))

import torch  # type: ignore[import-not-found,unused-ignore]

from gpu_attempt import attempt
from vivace.bench.gpu.passes import CONTEXT, PassBench, Step, compile_all
from vivace.bench.gpu.peers.transformers import random_transformers
from vivace.bench.gpu.shapes import RandomWords
from vivace.engine.runners.base import Span
from vivace.engine.runners.cuda.decode import down_cut as cuts
from vivace.engine.runners.cuda.decode.plan import SHARED_BYTES, Plan, fitting_passes
from vivace.engine.runners.cuda.kernels.driver import Module, Modules
from vivace.engine.runners.cuda.model.shape import KNOWN_SHAPES, Shape
from vivace.engine.runners.cuda.runner import CudaRunner
from vivace.engine.runners.cuda.weights.build import build_model, random_weights

LAYERS = 2  # of what is compared
PROMPTS, SAID = (200, 700, 2500), 32  # tokens: below that of teams, in two of them, in three
# What is compared: shape, bits, prefill.
SAME = (
    ("qwen2.5-coder-7b", 8, "bf16"),
    ("qwen2.5-coder-7b", 8, "fp8"),
    ("qwen2.5-coder-7b", 4, "fp8"),
    ("qwen3-8b", 8, "fp8"),
    ("qwen2.5-coder-14b", 8, "fp8"),
    ("qwen2.5-coder-32b", 8, "fp8"),
    ("qwen2.5-coder-32b", 8, "packed"),
    ("qwen2.5-coder-32b", 4, "packed"),
    ("qwen3-4b", 8, "fp8"),
)
# Other cuts of passes: (bits, tokens), changes of the tuning.
CUTS: dict[tuple[int, int], list[dict[str, Any]]] = {
    (4, 1): [
        {},
        {"down_stages": 2},
        {"qkv_stages": 4, "o_stages": 4, "qkv_tiles": 4, "o_tiles": 4},
        {"down_stages": 2, "qkv_stages": 4, "o_stages": 4, "qkv_tiles": 4, "o_tiles": 4},
        {"up_stages": 6, "tiles_at_once": 2},
        {"head_stages": 4, "late_start": 0b11111},
    ],
    (8, 1): [
        {},
        {"down_stages": 3},
        {"qkv_stages": 4, "o_stages": 4, "qkv_tiles": 4, "o_tiles": 4},
        {"up_stages": 3, "tiles_at_once": 2},
    ],
    (4, 16): [{}, {"late_start": 0b01000}, {"keep_registers": 24}, {"attention_tiles": 2}],
    (8, 16): [{}, {"late_start": 0b01000}, {"keep_registers": 24}, {"attention_tiles": 2}],
}


def measure_cut(bench: PassBench, plan: Plan, image: bytes) -> float:
    step = Step(bench, plan, Module(plan, image=image), CONTEXT)
    return min(step.microseconds() for _ in range(3))


def variants(shape: Shape, until: float) -> None:
    for bits in (4, 8):
        bench = PassBench(shape, bits)
        for tokens in (1, 16):
            measure_cuts(bench, tokens, until)
        del bench
        torch.cuda.empty_cache()


def measure_cuts(bench: PassBench, tokens: int, until: float) -> None:
    base = bench.plan(tokens)
    cuts = [
        (cut, replace(base, tuning=replace(base.tuned, **cut)) if cut else base)
        for cut in CUTS[bench.bits, tokens]
    ]
    cuts = [(cut, plan) for cut, plan in cuts if plan.shared_bytes <= SHARED_BYTES]
    images = compile_all([plan for _, plan in cuts])
    for (cut, plan), image in zip(cuts, images, strict=True):
        words = " ".join(f"{name}={value}" for name, value in cut.items()) or "as it is"

        def one(plan: Plan = plan, image: bytes = image) -> str:
            us = measure_cut(bench, plan, image)
            return f"{us:7.0f} µs {tokens * 1e6 / us:6.0f} tok/s"

        attempt(f"{bench.bits} bits {tokens} tokens {words}", one, until)


def slices(shape: Shape, until: float) -> None:
    """Measure other slices of the down projection's columns: 8 parts of 4, 4 parts of 7."""

    def one(tokens: int) -> str:
        bench = PassBench(shape, 8)
        base = bench.plan(tokens)
        (image,) = compile_all([base])
        found = f"{base.down_slices} of {base.down_columns}, split {base.down[0]}"
        return f"{found}: {measure_cut(bench, base, image):7.0f} µs"

    for cost, wide_columns in ((1.02, 18_432), (9.0, 18_432), (1.02, 1 << 20)):
        cuts.SLICE_COSTS[24], cuts.WIDE_COLUMNS = cost, wide_columns
        cuts.down_cut.cache_clear()
        for tokens in (1, 8, 16):
            if Plan(shape, 8, tokens).shared_bytes <= SHARED_BYTES:
                attempt(f"slices: 8 bits, {tokens} tokens", lambda tokens=tokens: one(tokens), until)  # type: ignore[misc]
                torch.cuda.empty_cache()


def kernels(shape: Shape, until: float) -> None:
    """Show where the time of a pass goes."""

    def one(bits: int, tokens: int) -> str:
        from torch.profiler import ProfilerActivity, profile

        bench = PassBench(replace(shape, layers=6), bits)
        base = bench.plan(tokens)
        (image,) = compile_all([base])
        step = Step(bench, base, Module(base, image=image), CONTEXT)
        step.microseconds()
        with profile(activities=[ProfilerActivity.CUDA]) as seen:
            step.microseconds()
        events = sorted(seen.key_averages(), key=lambda event: -event.device_time_total)[:7]
        return "".join(f"\n    {event.key[:30]:30} {event.device_time:7.2f} µs" for event in events)

    for bits, tokens in ((4, 1), (8, 1), (4, 16), (8, 16)):
        attempt(f"kernels: {bits} bits, {tokens} tokens", lambda b=bits, t=tokens: one(b, t), until)  # type: ignore[misc]


def _transformers(shape: Shape, weights: dict[str, torch.Tensor], tokens: list[int]) -> torch.Tensor:
    """Return transformers' logits in bf16 behind each token."""
    model = random_transformers(shape)
    head = weights.get("lm_head.weight", weights["embed_tokens.weight"])
    named = {f"model.{name}": rows for name, rows in weights.items() if name != "lm_head.weight"}
    model.load_state_dict(named | {"lm_head.weight": head})
    with torch.inference_mode():
        logits: torch.Tensor = model(torch.tensor([tokens], device="cuda")).logits[0].float()
    return logits


def compare(whole: Shape, bits: int, prefill: str) -> str:
    """Compare a few layers of a shape with transformers, and passes of several sizes with each other."""
    shape = replace(whole, layers=LAYERS)
    weights = random_weights(shape, 1, "cuda")
    modules = Modules(None)
    modules.compile(
        [Plan(shape, bits, size) for size in fitting_passes(shape, bits) if size in (1, 2, 8, 16)]
    )
    model, dense = build_model(shape, weights, bits, "cuda", 4096)
    runner = CudaRunner(
        "random", model, dense, RandomWords(), bits=bits, context_tokens=4096, blocks=132,
        make_launcher=modules.load, prefill=prefill,
    )  # fmt: skip
    return "".join(f"\n    {_compare_prompt(runner, shape, weights, tokens)}" for tokens in PROMPTS)


def _compare_prompt(
    runner: CudaRunner, shape: Shape, weights: dict[str, torch.Tensor], prompt_tokens: int
) -> str:
    draw = torch.Generator().manual_seed(prompt_tokens)
    text = torch.randint(0, shape.vocab, (prompt_tokens,), generator=draw).tolist()
    runner.trim(0, 0)
    rows = [torch.from_numpy(runner.forward([Span(0, 0, text, want=1)]).copy())]
    said = [int(rows[0][-1].argmax())]
    for _ in range(SAID):
        found = runner.forward([Span(0, prompt_tokens + len(said) - 1, said[-1:], want=1)])
        rows.append(torch.from_numpy(found.copy()))
        said.append(int(rows[-1][-1].argmax()))
    ours = torch.cat([each[-1:] for each in rows])
    alike = []
    for size in (2, 8, 16):
        if size > runner.info.draft_tokens + 1:
            continue
        runner.trim(0, prompt_tokens)
        found = runner.forward([Span(0, prompt_tokens, said[:size], want=size)])
        alike.append(
            f"{size}: {'same' if (torch.from_numpy(found) == ours[1 : size + 1]).all() else 'OTHER'}"
        )
    theirs = _transformers(shape, weights, text + said)[prompt_tokens - 1 : prompt_tokens + SAID].cpu()
    first = float((ours[0] - theirs[0]).norm() / theirs[0].norm())
    distance = float((ours - theirs).norm() / theirs.norm())
    chosen = theirs.argmax(1)
    off = theirs.amax(1) - theirs[torch.arange(len(said)), torch.tensor(said)]
    equal = int((chosen == torch.tensor(said)).sum())
    return (
        f"{prompt_tokens} tokens: passes {', '.join(alike)}; logits {distance:.4f} from transformers', those "
        f"of the prompt {first:.4f}; {equal} of {len(said)} tokens, the others up to "
        f"{float(off.max()):.3f} logits below"
    )


def same(shape: Shape, until: float) -> None:
    del shape
    for name, bits, prefill in SAME:
        work = lambda n=name, b=bits, p=prefill: compare(KNOWN_SHAPES[n], b, p)  # noqa: E731
        attempt(f"same: {name}, {bits} bits, {prefill} prefill", work, until)
        torch.cuda.empty_cache()


STAGES = {"same": same, "kernels": kernels, "slices": slices, "variants": variants}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("stages", nargs="*", default=list(STAGES))
    parser.add_argument("--shape", choices=KNOWN_SHAPES, default="qwen2.5-coder-7b")
    parser.add_argument("--limit-s", type=float, default=90.0)
    parser.add_argument("--inside", action="store_true", help="this is the process of one stage")
    options = parser.parse_args()
    until = time.monotonic() + options.limit_s
    if options.inside:
        STAGES[options.stages[0]](KNOWN_SHAPES[options.shape], until)
        return
    for stage in options.stages:
        left_s = until - time.monotonic()
        if left_s > 0:
            print(f"== {stage}", flush=True)
            command = [sys.executable, __file__, stage, "--inside", "--shape", options.shape]
            with contextlib.suppress(subprocess.TimeoutExpired):
                subprocess.run([*command, "--limit-s", f"{left_s:.0f}"], timeout=left_s + 20, check=False)


if __name__ == "__main__":
    main()
