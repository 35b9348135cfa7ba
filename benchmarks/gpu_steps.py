"""One decode step by itself: microseconds of a captured pass on random weights, for any tuning.

    gpu_steps.py                                            every format as it is tuned, at 1k, 4k and 16k
    gpu_steps.py --tokens 1 2 4 8 16 32 --contexts 1024     passes that verify drafts
    gpu_steps.py --bits 8 up_stages=10,12 late_start=24,28  every combination at 1k, the best first

No model is needed: time does not depend on what the weights are. Nothing of the engine is in these numbers
(`vivace bench gpu` has that); they are for choosing `Tuning` in plan.py. Rounds of all combinations take
turns, and the least of each is shown.
"""

import argparse
import itertools
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields, replace
from typing import Any

import torch  # type: ignore[import-not-found,unused-ignore]
from torch.cuda import Event  # type: ignore[import-not-found,unused-ignore]

from vivace.engine.runners.cuda.decode import launches
from vivace.engine.runners.cuda.decode.graphs import capture
from vivace.engine.runners.cuda.decode.plan import Plan, Tuning
from vivace.engine.runners.cuda.kernels.driver import Module, architecture, compile_source, source
from vivace.engine.runners.cuda.kv.pool import make_pool
from vivace.engine.runners.cuda.model.shape import Shape
from vivace.engine.runners.cuda.weights.build import build_model, random_weights

QWEN_CODER_1_5B = Shape(28, 1536, 8960, 12, 2, 151936, 32768)
PAGES = 272  # 17,408 tokens
REPLAYS = 40
ROUNDS = 3
SHOWN = 20


class Bench:
    """Weights and KV that all plans of one format share."""

    def __init__(self, bits: int, tokens: int) -> None:
        self.blocks = torch.cuda.get_device_properties(0).multi_processor_count
        plain = random_weights(QWEN_CODER_1_5B, 1, "cuda")
        self.model, _ = build_model(QWEN_CODER_1_5B, plain, bits, "cuda", PAGES * 64)
        self.kv = make_pool(QWEN_CODER_1_5B, PAGES, 16, "cuda")
        self.kv.normal_()
        self.bits, self.tokens = bits, tokens

    def plan(self, change: dict[str, Any]) -> Plan:
        plan = Plan(QWEN_CODER_1_5B, self.bits, self.tokens, self.blocks)
        return replace(plan, tuning=replace(plan.tuned, **change))

    def prepare(self, plan: Plan, image: bytes, context: int) -> "Step":
        return Step(self, plan, Module(plan, image=image), context)


class Step:
    """One captured pass behind `context` tokens; of one token, as the first of a stream."""

    def __init__(self, bench: Bench, plan: Plan, module: Module, context: int) -> None:
        ring = torch.zeros(launches.RING_WORDS, dtype=torch.int64).pin_memory()
        self._buffers = launches.make_buffers(plan, bench.kv, PAGES, ring)
        self._buffers.pages.copy_(torch.randperm(PAGES).int())
        self._context, self._tokens = context, plan.tokens
        passes = launches.pass_launches(
            plan,
            bench.model,
            self._buffers,
            parts=plan.parts_for(context + REPLAYS),
            streams=plan.tokens == 1,
        )
        self._graph = capture(module, passes, torch.cuda.graph_pool_handle())

    def microseconds(self) -> float:
        state = torch.zeros(launches.STATE_WORDS, dtype=torch.int32)
        state[launches.POSITION], state[launches.COUNT] = self._context, self._tokens
        state[launches.ACTIVE], state[launches.REMAINING] = 1, 1 << 30
        self._buffers.state.copy_(state)
        self._buffers.x.normal_()
        begin, end = Event(enable_timing=True), Event(enable_timing=True)  # type: ignore[no-untyped-call,unused-ignore]
        begin.record()
        for _ in range(REPLAYS):
            self._graph.replay()
        end.record()
        end.synchronize()
        return float(begin.elapsed_time(end)) / REPLAYS * 1e3


def combinations(words: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Yield every combination of values; each word is `name=a,b`."""
    known = {field.name for field in fields(Tuning)} - {"attention_parts"}  # numbers only
    names, values = [], []
    for word in words:
        name, _, texts = word.partition("=")
        if name not in known:
            sys.exit(f"There is no {name}; known: {', '.join(sorted(known))}.")
        names.append(name)
        values.append([int(text, 0) for text in texts.split(",")])
    for choice in itertools.product(*values):
        yield dict(zip(names, choice, strict=True))


def compile_all(plans: Sequence[Plan]) -> list[bytes]:
    target = architecture()
    with ThreadPoolExecutor(16) as threads:
        return list(threads.map(lambda plan: compile_source(source(plan), target), plans))


def measure(bits: int, tokens: int, contexts: Sequence[int], changes: Sequence[dict[str, Any]]) -> None:
    bench = Bench(bits, tokens)
    plans = [bench.plan(change) for change in changes]
    steps = {
        (context, index): bench.prepare(plan, image, context)
        for index, (plan, image) in enumerate(zip(plans, compile_all(plans), strict=True))
        for context in contexts
    }
    found: dict[tuple[int, int], float] = {}
    for _ in range(ROUNDS):
        for key, step in steps.items():
            found[key] = min(step.microseconds(), found.get(key, float("inf")))
    for context in contexts:
        best = sorted((us, index) for (at, index), us in found.items() if at == context)
        for us, index in best[:SHOWN]:
            words = " ".join(f"{name}={value}" for name, value in changes[index].items())
            speed = f"{1e6 / us:5.0f} tok/s" if tokens == 1 else f"{tokens:2} tokens"
            print(f"{bits:2}-bit at {context:5}: {us:7.1f} µs, {speed}  {words}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--bits", type=int, nargs="*", default=[4, 8, 16])
    parser.add_argument("--tokens", type=int, nargs="*", default=[1])
    parser.add_argument("--contexts", type=int, nargs="*", default=[])
    parser.add_argument("changes", nargs="*", help="fields of Tuning, as in up_stages=10,12")
    options = parser.parse_args()
    changes = list(combinations(options.changes))
    contexts = options.contexts or ([1024] if options.changes else [1024, 4096, 16384])
    for bits in options.bits:
        for tokens in options.tokens:
            measure(bits, tokens, contexts, changes)


if __name__ == "__main__":
    main()
