"""How long one pass takes on the GPU, for any shape: random weights, no file, nothing of the engine.

Time does not depend on what the weights are, so they are made where they are used, packed as the kernels read
them: a model that has no room in bf16 can be measured too. Owns the packed random model and the clock.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

import torch  # type: ignore[import-not-found,unused-ignore]
from torch.cuda import Event  # type: ignore[import-not-found,unused-ignore]

from vivace.engine.runners.cuda.decode import launches
from vivace.engine.runners.cuda.decode.down_cut import down_columns
from vivace.engine.runners.cuda.decode.experts import expert_plan, share_experts
from vivace.engine.runners.cuda.decode.graphs import Launcher, capture
from vivace.engine.runners.cuda.decode.launches import Layer, Model
from vivace.engine.runners.cuda.decode.plan import Plan, fitting_passes, tile_bytes
from vivace.engine.runners.cuda.kernels.driver import Modules, architecture, compile_source, source
from vivace.engine.runners.cuda.kv.pool import make_pool
from vivace.engine.runners.cuda.model.shape import HEAD_DIM, Shape
from vivace.engine.runners.cuda.weights.build import Dense, Keep, build_model, random_weights
from vivace.engine.runners.cuda.weights.layout import TILE_ROWS, Matrix

PAGES = 272  # 17,408 tokens
REPLAYS = 40
ROUNDS = 3
CONTEXT = 1024
TOKENS = (1, 8, 16, 32)  # of the passes that are shown
STEP_SIZES = {4: 15_000.0, 8: 73.0}  # what random bytes are worth, in the unit of their row


def random_matrix(rows: int, columns: int, bits: int, device: torch.device | str) -> Matrix:
    """Return a packed matrix whose products are about as large as what they multiply."""
    tiles = -(-rows // TILE_ROWS)
    size, scale = tiles * tile_bytes(columns, bits), columns**-0.5
    if bits == 16:
        return Matrix(
            torch.randn(size // 2, device=device, dtype=torch.bfloat16) * scale,
            torch.ones(tiles * TILE_ROWS, device=device),
        )
    low, high, kind = (0, 256, torch.uint8) if bits == 4 else (-127, 128, torch.int8)
    values = torch.randint(low, high, (size,), device=device, dtype=kind)
    return Matrix(values, torch.full((tiles * TILE_ROWS,), scale / STEP_SIZES[bits], device=device))


def random_model(shape: Shape, bits: int, positions: int, device: torch.device | str = "cuda") -> Model:
    """Return a model of random numbers, packed."""
    if shape.oss:
        return build_model(shape, random_weights(shape, 1, device), bits, device, positions)[0]

    def ones(count: int) -> torch.Tensor:
        return torch.ones(count, device=device)

    def router() -> torch.Tensor:
        scores: torch.Tensor = torch.randn(shape.experts, shape.hidden, device=device) * 0.02
        return scores.to(torch.bfloat16)

    width, columns = shape.expert_ffn or shape.ffn, shape.expert_ffn or down_columns(shape)

    def layer() -> Layer:
        return Layer(
            attention_gain=ones(shape.hidden),
            qkv=random_matrix(shape.qkv_rows, shape.hidden, bits, device),
            bias=torch.zeros(shape.qkv_rows, device=device),
            head_gain=ones(shape.qkv_rows),
            out=random_matrix(shape.hidden, shape.attention_width, bits, device),
            ffn_gain=ones(shape.hidden),
            gate_up=random_matrix(2 * max(1, shape.experts) * width, shape.hidden, bits, device),
            down=random_matrix(max(1, shape.experts) * shape.hidden, columns, bits, device),
            router=router() if shape.experts else None,
        )

    embedding = torch.randn(shape.vocab, shape.hidden, device=device, dtype=torch.bfloat16)
    return Model(
        shape=shape,
        layers=[layer() for _ in range(shape.layers)],
        final_gain=ones(shape.hidden),
        head=random_matrix(shape.vocab, shape.hidden, max(bits, 8), device),
        embedding=embedding,
        rotation=launches.rotation_table(shape, positions, device),
    )


def random_parts(
    shape: Shape, bits: int, positions: int, device: torch.device | str, keep: Keep
) -> tuple[Model, list[Dense]]:
    """Return a random model, and what a prefill keeps to multiply by."""
    if shape.oss:  # heads and biases that belong together: as if they were read from a file
        return build_model(shape, random_weights(shape, 1, device), bits, device, positions, keep=keep)
    model = random_model(shape, bits, positions, device)
    return model, [keep(random_dense(shape, layer)) for layer in model.layers]


def random_dense(shape: Shape, layer: Layer) -> Dense:
    """Return what a prefill multiplies by: as random as the packed weights, and others."""
    device = layer.bias.device

    def rows(count: int, columns: int) -> torch.Tensor:
        made: torch.Tensor = torch.randn(count, columns, device=device, dtype=torch.bfloat16) * columns**-0.5
        return made

    nothing = torch.empty(0, shape.hidden, dtype=torch.bfloat16, device=device)
    return Dense(
        attention_gain=layer.attention_gain,
        qkv=rows(shape.qkv_rows, shape.hidden),
        bias=layer.bias,
        head_gain=torch.ones(2, HEAD_DIM, device=device),
        out=rows(shape.hidden, shape.attention_width),
        ffn_gain=layer.ffn_gain,
        gate_up=nothing if shape.experts else rows(2 * shape.ffn, shape.hidden),
        down=nothing if shape.experts else rows(shape.hidden, shape.ffn),
        dense_bias=layer.bias.to(torch.bfloat16),
    )


def compile_all(plans: Sequence[Plan]) -> list[bytes]:
    target = architecture()
    with ThreadPoolExecutor(16) as threads:
        return list(threads.map(lambda plan: compile_source(source(plan), target), plans))


class PassBench:
    """Weights and KV that all plans of one shape and format share."""

    def __init__(self, shape: Shape, bits: int) -> None:
        self.shape, self.bits = shape, bits
        self.blocks = torch.cuda.get_device_properties(0).multi_processor_count
        self.model = random_model(shape, bits, PAGES * 64)
        self.kv = make_pool(shape, PAGES, 16, "cuda")
        self.kv.normal_()

    def plan(self, tokens: int) -> Plan:
        return Plan(self.shape, self.bits, tokens, self.blocks)


class Weights(Protocol):
    """What a pass reads: a model, and some KV."""

    model: Model
    kv: torch.Tensor


class Step:
    """One captured pass behind `context` tokens; of one token, as the first of a stream."""

    def __init__(self, bench: Weights, plan: Plan, module: Launcher, context: int) -> None:
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


def measure_shape(shape: Shape, bits: int) -> dict[str, Any]:
    """Measure a step of one token and the passes that verify drafts, each behind 1,024 tokens."""
    bench = PassBench(shape, bits)
    passes = (bench.plan(size) for size in fitting_passes(shape, bits) if size in TOKENS)
    plans = [plan.near or plan for plan in passes]
    modules = Modules(None)
    modules.compile(list({*plans, *(expert_plan(plan) for plan in plans if shape.experts)}))
    make = share_experts(modules.load) if shape.experts else modules.load
    found: dict[str, Any] = {}
    for plan in plans:
        step = Step(bench, plan, make(plan), CONTEXT)
        us = min(step.microseconds() for _ in range(ROUNDS))
        found[str(plan.tokens)] = {"us": us, "tokens_per_s": plan.tokens * 1e6 / us}
    return found
