"""Sequences on a GPU with random weights of the true shape, for `gpu_rows.py`: a runner and its passes.

Owns the weights, the compiled variants of a pass, and where every sequence stands. Does not report anything.
"""

import contextlib
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent / "src"))

import torch  # type: ignore[import-not-found,unused-ignore]
from torch.cuda import Event  # type: ignore[import-not-found,unused-ignore]

from vivace.engine.runners.base import DecodeRow, SamplingSpec, Span
from vivace.engine.runners.cuda.decode.graphs import Launcher
from vivace.engine.runners.cuda.decode.plan import Plan
from vivace.engine.runners.cuda.kernels.driver import Modules
from vivace.engine.runners.cuda.model.shape import QWEN_CODER_1_5B as SHAPE
from vivace.engine.runners.cuda.rows.passes import PassKind, RowInput, batch_plans
from vivace.engine.runners.cuda.runner import CudaRunner
from vivace.engine.runners.cuda.weights.build import build_model, random_weights

MOST = 64  # rows of a pass
CONTEXT = 700  # tokens of the shortest sequence; they end below 1,024, where the attention has one part
COMPARED = 12  # tokens of each sequence
FIRST = 5  # what every sequence says first
REPLAYS = 20
# Other cuts: rows, changes of the tuning. One compiled module each.
CUTS: list[tuple[int, dict[str, Any]]] = [
    (4, {"attention_cluster": 16, "attention_ranks": 1}),
    (8, {"attention_cluster": 8, "attention_ranks": 2}),
    (8, {"attention_cluster": 2, "attention_ranks": 8}),
    (16, {"attention_cluster": 4, "attention_ranks": 4}),
    (16, {"is_wide": True}),
    (32, {"attention_cluster": 4, "attention_ranks": 4}),
    (64, {"attention_cluster": 4, "attention_ranks": 4}),
    (64, {"early_blocks": 4}),
    (32, {"is_wide": False}),
    (64, {"is_wide": False}),
]


class Letters:
    end_tokens = frozenset({3})

    def token_bytes(self, token: int) -> bytes:
        return bytes([token % 256])


def sampling_of(seq: int) -> SamplingSpec:
    return (SamplingSpec(), SamplingSpec(1.0, 7 + seq), SamplingSpec(40.0, (1 << 40) + seq))[seq % 3]


def length_of(seq: int, context: int) -> int:
    return context + seq * 37 % 100


class Bench:
    def __init__(self) -> None:
        begun = time.monotonic()
        blocks = torch.cuda.get_device_properties(0).multi_processor_count
        modules = Modules(None)
        plans = batch_plans(SHAPE, 8, blocks, 16, MOST)
        self.base = {plan.tokens: plan for plan in plans}
        modules.compile([Plan(SHAPE, 8, 1, blocks), *plans, *(self.variant(*cut) for cut in CUTS)])
        self._modules, self._loaded = modules, dict[Plan, Launcher]()
        plain = random_weights(SHAPE, 1, "cuda")
        model, dense = build_model(SHAPE, plain, 8, "cuda", 4096)
        self.runner = CudaRunner(
            "random", model, dense, Letters(), bits=8, context_tokens=64 * 2048, blocks=blocks,
            make_launcher=self.load, max_rows=MOST,
        )  # fmt: skip
        self.runner._kv.normal_()
        self.passes = self.runner._row_passes
        self.tokens: dict[int, int] = {}
        self.starts: dict[int, int] = {}
        self.passes.warm_up(2048)  # no graph is captured while something is timed
        print(f"ready after {time.monotonic() - begun:.0f} s", flush=True)

    def load(self, plan: Plan) -> Launcher:
        if plan not in self._loaded:
            self._loaded[plan] = self._modules.load(plan)
        return self._loaded[plan]

    def variant(self, rows: int, change: dict[str, Any]) -> Plan:
        plan = self.base[rows]
        return replace(plan, tuning=replace(plan.tuned, **change))

    def begin(self, users: int, context: int = CONTEXT) -> None:
        """Let every sequence stand behind its context, whose keys and values are anything."""
        self.runner._flights.drop_all()
        for seq in range(users):
            self.starts[seq], self.tokens[seq] = length_of(seq, context), FIRST
            self.runner.trim(seq, self.starts[seq])  # the same pages again: what is in them is its past
            self.runner._pages.reserve(seq, 0, self.starts[seq])
            self.runner._lengths[seq] = self.starts[seq]

    def step_alone(self, seq: int, steps_ahead: int) -> None:
        span = Span(seq, self.starts[seq], [self.tokens[seq]])
        (self.tokens[seq],) = self.runner.decode(span, sampling_of(seq), steps_ahead)
        self.starts[seq] += 1

    def step_rows(self, seqs: Sequence[int], steps_ahead: int = 1) -> None:
        rows = [DecodeRow(seq, self.starts[seq], self.tokens[seq], sampling_of(seq)) for seq in seqs]
        for seq, said in zip(seqs, self.runner.decode_rows(rows, steps_ahead), strict=True):
            if isinstance(said, list):
                self.tokens[seq], self.starts[seq] = said[-1], self.starts[seq] + 1

    def written(self, seq: int, context: int) -> torch.Tensor:
        """Return the keys and values behind the context, as bits."""
        self.runner._passes.synchronize()
        begin, kv = length_of(seq, context), self.runner._kv
        at = torch.arange(begin, begin + COMPARED)
        pages = torch.tensor(self.runner._pages.table(seq))[at // 64].to(kv.device)
        return kv[:, pages, :, :, (at % 64).to(kv.device)].view(torch.int16).clone()

    @contextlib.contextmanager
    def using(self, plan: Plan) -> Iterator[None]:
        """Let passes of that many rows be another variant."""
        passes, rows = self.passes, plan.tokens
        before = passes._plans[rows], passes._launchers.pop(rows, None), dict(passes._graphs)
        passes._plans[rows] = plan
        passes._graphs = {key: graph for key, graph in before[2].items() if key[0] != rows}
        try:
            yield
        finally:
            passes._plans[rows] = before[0]
            passes._launchers.pop(rows, None)
            if before[1] is not None:
                passes._launchers[rows] = before[1]
            passes._graphs = before[2]

    def pass_us(self, users: int, context: int = CONTEXT) -> float:
        """Return microseconds of one pass on the device, the least of three rounds."""
        self.begin(users, context)
        inputs = []
        for seq in range(users):
            self.runner._reserve_row(seq, self.starts[seq])
            inputs.append(RowInput(seq, self.starts[seq], FIRST, sampling_of(seq)))
        self.passes.collect(self.passes.start(inputs), users)
        size = next(size for size in self.passes._plans if size >= users)
        plan = self.passes._plans[size]
        parts = max(plan.parts_for(row.position + 1) for row in inputs)
        graph = self.passes._graphs[PassKind(size, parts)]
        found = []
        for _ in range(3):
            begin, end = Event(enable_timing=True), Event(enable_timing=True)  # type: ignore[no-untyped-call,unused-ignore]
            begin.record()
            for _ in range(REPLAYS):
                graph.replay()
            end.record()
            end.synchronize()
            found.append(float(begin.elapsed_time(end)) / REPLAYS * 1e3)
        return min(found)
