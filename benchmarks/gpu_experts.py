"""A mixture of experts on a GPU, with random weights of the true shape: right, and how fast.

    gpu_experts.py                       Qwen3-Coder-30B-A3B in 4 bits: all stages
    gpu_experts.py right step passes     some of them
    gpu_experts.py --bits 8 step

right     a layer's experts against plain torch, and 16 tokens in one pass against each alone, to the bit
step      microseconds of one token at 1k, kernel by kernel
without   how much shorter the step is without one of its kernels
alone     each kernel by itself, without overlap
variants  the same with other cuts of the work
several   passes of 8 and 16 tokens with other cuts of the experts' work
groups    passes where tokens that share an expert are a group of 2, 4 or 8
drafts    passes of 16 and 32 tokens with other cuts of a draft's attention
passes    passes of 2 to 16 tokens
prefill   prompts of 64 to 4,096 tokens, the longest time until one can be stopped, and kernels of 1,024
cuts      a layer's experts of 64 to 4,096 tokens of a prompt, with other cuts of the work

Weights are random bytes, made where they are needed: 30 billion of them never exist in bf16. Nothing of the
engine is in these numbers. Nothing new is begun after `--limit-s`.
"""

import argparse
import functools
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

sys.path.insert(0, str(Path(__file__).parent.parent / "src"))

import torch  # type: ignore[import-not-found,unused-ignore]
from torch.cuda import Event  # type: ignore[import-not-found,unused-ignore]

from gpu_attempt import attempt
from gpu_prompts import profiled, read_prompts, time_cuts
from vivace.bench.gpu.passes import PAGES, Step, random_dense, random_model
from vivace.engine.runners.cuda.decode import experts, launches
from vivace.engine.runners.cuda.decode.experts import expert_plan, share_experts
from vivace.engine.runners.cuda.decode.graphs import capture
from vivace.engine.runners.cuda.decode.launches import Layer, Model, expert_launches, make_routed
from vivace.engine.runners.cuda.decode.plan import Plan
from vivace.engine.runners.cuda.kernels.driver import Module, architecture, compile_source, source
from vivace.engine.runners.cuda.kv.pool import make_pool
from vivace.engine.runners.cuda.model import mixture, reference
from vivace.engine.runners.cuda.model.shape import KNOWN_SHAPES, Shape
from vivace.engine.runners.cuda.prefill.experts import ExpertPrefill
from vivace.engine.runners.cuda.weights.layout import Matrix, gate_up_pairs, untile

MUST, AIM = 800, 1300  # tok/s of one user, 4 bits, 1k
CONTEXT = 1024
SIZES = (2, 4, 8, 16)
VARIANTS: list[dict[str, Any]] = [
    {"tiles_at_once": 4},
    {"late_start": 0b00111},
    {"late_start": 0b11111},
    {"late_start": 0b10011},
    {"late_start": 0b10101},
    {"late_start": 0b00110},
    {"pace_bytes": 36864},
    {"pace_bytes": 55296},
    {"o_stages": 4, "o_tiles": 4},
    {"o_stages": 1, "o_tiles": 1},
    {"qkv_stages": 8, "qkv_tiles": 8},
    {"attention_cluster": 8},
    {"attention_warps": 8},
    {"attention_cluster": 8, "attention_parts": ((512, 1), (3072, 2), (10240, 4))},
    {"attention_parts": ((512, 1), (3072, 2), (10240, 4))},
    {"expert_part_warps": 2, "expert_down_registers": 64},
    {"expert_part_warps": 3, "expert_down_registers": 64},
    {"expert_part_warps": 2, "expert_down_registers": 80},
    {"expert_down_registers": 80},
    {"expert_down_registers": 96},
    {"expert_down_stages": 1},
    {"expert_up_blocks": 1},
]


SEVERAL: list[dict[str, Any]] = [
    {"tiles_at_once": 2},
    {"tiles_at_once": 6},
    {"expert_down_stages": 2},
    {"expert_blocks": 3, "expert_up_kb": 48, "expert_down_stages": 2, "tiles_at_once": 2},
    {"expert_up_kb": 56},
    {"expert_up_kb": 92, "expert_down_stages": 2},
    {"expert_part_warps": 2, "expert_down_registers": 64},
]


# Tiles of rows that share a block's reading (0: no row shares any), and blocks on a multiprocessor.
DRAFTS = ((0, 1), (8, 1), (8, 2), (4, 2), (4, 4), (16, 1))
DRAFT_SIZES = (16, 32)


class Bench:
    variants = VARIANTS

    def __init__(self, shape: Shape, bits: int, stages: list[str]) -> None:
        begun = time.monotonic()
        self.shape, self.bits = shape, bits
        self.blocks = torch.cuda.get_device_properties(0).multi_processor_count
        one = self.plan(1)
        plans = [one]
        plans.append(expert_plan(self.plan(2)))
        plans += [self.plan(size) for size in SIZES] if "passes" in stages else []
        plans += [self.variant(change) for change in self.variants] if "variants" in stages else []
        plans += self.draft_plans() if "drafts" in stages else []
        threads, target = ThreadPoolExecutor(16), architecture()
        self._images = {plan: threads.submit(compile_source, source(plan), target) for plan in plans}
        self.model = self.make_model()
        self.kv = make_pool(shape, PAGES, 16, "cuda")
        self.kv.normal_()
        self.make = share_experts(self.load)
        self._images[one].result()
        print(
            f"ready after {time.monotonic() - begun:.0f} s, {torch.cuda.memory_allocated() >> 20} MiB",
            flush=True,
        )

    def make_model(self) -> Model:
        return random_model(self.shape, self.bits, PAGES * 64)

    def plan(self, tokens: int) -> Plan:
        return Plan(self.shape, self.bits, tokens, self.blocks)

    def variant(self, change: dict[str, Any]) -> Plan:
        plan = self.plan(1)
        return replace(plan, tuning=replace(plan.tuned, **change))

    def draft_plans(self) -> list[Plan]:
        cuts: list[dict[str, Any]] = [
            {"draft_tiles": tiles, "draft_blocks": blocks} for tiles, blocks in DRAFTS
        ]
        passes = [self.plan(size) for size in DRAFT_SIZES]
        return [replace(each, tuning=replace(each.tuned, **cut)) for each in passes for cut in cuts]

    def load(self, plan: Plan) -> Module:
        image = self._images[plan].result() if plan in self._images else b""
        return Module(plan, image=image)

    def step_us(self, plan: Plan, context: int = CONTEXT) -> float:
        step = Step(self, plan, self.make(plan), context)
        return min(step.microseconds() for _ in range(4))


def right(bench: Bench) -> str:
    """Compare a layer's experts with plain torch, and 16 tokens together and in groups with each alone."""
    shape, layer = bench.shape, bench.model.layers[0]
    x = torch.randn(16, shape.hidden, device="cuda")

    def run(rows: torch.Tensor, group: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
        tokens = len(rows)
        out, scores = rows.clone(), torch.zeros(tokens, shape.experts, device="cuda")
        h = torch.zeros(tokens, shape.experts_per_token * shape.expert_ffn, device="cuda")
        count = torch.tensor([tokens], dtype=torch.int32, device="cuda")
        plan = replace(bench.plan(1), tokens=tokens)
        plan = replace(plan, tuning=replace(plan.tuned, expert_group=group))
        launcher, routed = bench.make(expert_plan(plan)), make_routed(shape, tokens, "cuda")
        for launch in expert_launches(
            plan, layer, bench.model, count=count, x=out, scores=scores, h=h, routed=routed
        ):
            launcher.run(launch)
        torch.cuda.synchronize()
        return out, scores

    together, scores = run(x)
    alone = torch.cat([run(x[i : i + 1])[0] for i in range(16)])
    grouped = [size for size in (2, 4, 8) if torch.equal(run(x, size)[0], alone)]
    y = reference.norm(x, layer.ffn_gain, shape.norm_epsilon)
    assert layer.router is not None
    plain = y.double() @ layer.router.double().T
    experts, shares = mixture.choose_experts(plain, shape.experts_per_token)
    same_choice = torch.equal(mixture.choose_experts(scores, shape.experts_per_token)[0], experts)
    wanted = torch.stack([_mixed(bench, layer, y[i], experts[i], shares[i]) for i in range(4)])
    error = float(((together - x)[:4] - wanted).norm() / wanted.norm())
    return (
        f"error {error:.1e}, scores {float((scores - plain).abs().max()):.1e} off, choices "
        f"{'the same' if same_choice else 'DIFFERENT'}, 16 together "
        f"{'the same to the bit' if torch.equal(together, alone) else 'DIFFERENT'}, "
        f"in groups of {grouped}, too; "
        f"registers and spills {bench.load(bench.plan(1)).registers()}"
    )


def _mixed(
    bench: Bench, layer: Layer, y: torch.Tensor, experts: torch.Tensor, shares: torch.Tensor
) -> torch.Tensor:
    shape, total = bench.shape, torch.zeros_like(y)
    order = gate_up_pairs(shape.expert_ffn).to(y.device)
    for expert, share in zip(experts.tolist(), shares.float(), strict=True):
        rows = untile(_part(layer.gate_up, expert, shape.experts), shape.hidden)
        gate, up = (torch.empty_like(rows).index_copy_(0, order, rows) @ y).chunk(2)
        inner = torch.nn.functional.silu(gate) * up
        total += share * (untile(_part(layer.down, expert, shape.experts), shape.expert_ffn) @ inner)
    return total


def _part(matrix: Matrix, expert: int, experts: int) -> Matrix:
    return Matrix(*(each.reshape(experts, -1)[expert].contiguous() for each in matrix))


def step(bench: Bench) -> str:
    us = bench.step_us(bench.plan(1))
    return f"{us:7.1f} µs, {1e6 / us:5.0f} tok/s (must {MUST}, aim {AIM}){kernels(bench, bench.plan(1))}"


def kernels(bench: Bench, plan: Plan) -> str:
    """Return the mean time of each kernel; those that wait for others count their waiting."""
    one = Step(bench, plan, bench.make(plan), CONTEXT)
    one.microseconds()
    return profiled(one.microseconds)


def alone(bench: Bench) -> str:
    """Return each kernel of a layer by itself, one after the other in a graph without overlap."""
    plan, found = bench.plan(1), ""
    module = bench.load(plan)
    module._overlap = False
    ring = torch.zeros(launches.RING_WORDS, dtype=torch.int64).pin_memory()
    buffers = launches.make_buffers(plan, bench.kv, PAGES, ring)
    buffers.state[launches.POSITION], buffers.state[launches.COUNT] = CONTEXT, 1
    buffers.x.normal_()
    every = list(launches.pass_launches(plan, bench.model, buffers, parts=1, streams=False))
    for name in ("qkv", "attention", "out_projection", "router", "expert_gate_up", "expert_down", "head"):
        own = [launch for launch in every if launch.kernel == name]
        graph = capture(module, own, torch.cuda.graph_pool_handle())
        begin, end = Event(enable_timing=True), Event(enable_timing=True)  # type: ignore[no-untyped-call,unused-ignore]
        begin.record()
        for _ in range(10):
            graph.replay()
        end.record()
        end.synchronize()
        found += f"\n    {name:20} {begin.elapsed_time(end) * 100 / len(own):7.2f} µs"
    return found


def prefill(bench: Bench) -> str:
    pages = torch.arange(PAGES, dtype=torch.int32, device="cuda")
    dense = [random_dense(bench.shape, layer) for layer in bench.model.layers]
    reader = ExpertPrefill(bench.model, dense, bench.kv, pages, bench.load(bench.plan(1)))
    return read_prompts(reader, bench.shape.vocab)


def time_variants(bench: Bench, until: float) -> None:
    for change in bench.variants:
        label = " ".join(f"{name}={value}" for name, value in change.items())
        attempt(label, functools.partial(timed, bench, bench.variant(change)), until)


def time_several(bench: Bench, changes: list[dict[str, Any]], until: float) -> None:
    """Time passes of 8 and 16 tokens with other cuts of the experts' work."""
    before = dict(experts.SEVERAL)
    for change in [{}, *changes]:
        label = " ".join(f"{name}={value}" for name, value in change.items())
        experts.SEVERAL.update(change)
        bench.make = share_experts(bench.load)
        for size in (8, 16):
            attempt(f"{size} tokens {label}", functools.partial(timed, bench, bench.plan(size)), until)
        experts.SEVERAL.clear()
        experts.SEVERAL.update(before)


def time_groups(bench: Bench, until: float) -> None:
    """Time passes where tokens that share an expert read its weights once, against each by itself."""
    for size in SIZES:
        for group in (0, 2, 4, 8):
            plan = bench.plan(size)
            plan = replace(plan, tuning=replace(plan.tuned, expert_group=group))
            attempt(f"{size} tokens, groups of {group}", functools.partial(timed, bench, plan), until)


def time_drafts(bench: Bench, until: float) -> None:
    """Time passes whose rows share a reading of keys and values in several ways, and in none."""
    for plan in bench.draft_plans():
        label = f"{plan.tokens} tokens, {plan.draft_tiles} tiles, {plan.tuned.draft_blocks} blocks"
        attempt(label, functools.partial(timed, bench, plan), until)


def timed(bench: Bench, plan: Plan) -> str:
    return f"{bench.step_us(plan):7.1f} µs"


def without(bench: Bench) -> str:
    """Return how much shorter a step is without one of its kernels: what the chain pays for it."""
    plan = bench.plan(1)
    whole, found = bench.step_us(plan), ""
    yielded: Any = launches.layer_launches
    for name in ("qkv", "attention", "out_projection", "router", "expert_gate_up", "expert_down"):

        def fewer(*arguments: Any, name: str = name) -> Any:
            return (launch for launch in yielded(*arguments) if launch.kernel != name)

        launches.layer_launches = cast(Any, fewer)
        try:
            found += f"\n    {name:20} {(whole - bench.step_us(plan)) / bench.shape.layers:7.2f} µs"
        finally:
            launches.layer_launches = yielded
    return f"{whole:.0f} µs" + found


STAGES: dict[str, Callable[[Bench], str]] = {
    "right": right, "step": step, "without": without, "alone": alone, "prefill": prefill,
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument(
        "stages", nargs="*", default=["right", "step", "passes", "variants", "without", "prefill"]
    )
    parser.add_argument("--shape", default="qwen3-coder-30b-a3b", choices=sorted(KNOWN_SHAPES))
    parser.add_argument("--bits", type=int, default=4)
    parser.add_argument("--limit-s", type=float, default=80.0)
    options = parser.parse_args()
    until = time.monotonic() + options.limit_s
    bench = Bench(KNOWN_SHAPES[options.shape], options.bits, options.stages)
    for stage in options.stages:
        if stage in STAGES:
            attempt(stage, functools.partial(STAGES[stage], bench), until)
        for size in SIZES if stage == "passes" else ():
            attempt(f"{size} tokens", functools.partial(timed, bench, bench.plan(size)), until)
        if stage == "variants":
            time_variants(bench, until)
        if stage == "several":
            time_several(bench, SEVERAL, until)
        if stage == "groups":
            time_groups(bench, until)
        if stage == "drafts":
            time_drafts(bench, until)
        if stage == "cuts":
            time_cuts(bench.model, until)


if __name__ == "__main__":
    main()
