"""The launches of one pass, in order: what each kernel reads and writes.

Owns the buffers of a pass and the order of the arguments. Does not run launches: a GPU stream does, or the
emulator of the tests.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import torch  # type: ignore[import-not-found,unused-ignore]

from vivace.engine.runners.cuda.decode.expert_groups import GROUP_WORDS, LIST_WORDS, is_for_groups
from vivace.engine.runners.cuda.decode.experts import expert_plan, expert_sizes
from vivace.engine.runners.cuda.decode.launch import Argument, Launch
from vivace.engine.runners.cuda.decode.plan import PARTS, STATS_WORDS, Plan
from vivace.engine.runners.cuda.model.shape import HEAD_DIM, Shape
from vivace.engine.runners.cuda.weights.layout import Matrix

STATE_WORDS = 28  # `State` in kernels/common.cuh, padded
POSITION, COUNT, ACTIVE, STEP, REMAINING, SEED, SEED_HIGH, TEMPERATURE, STOPS, STOP = range(10)
MAX_STOPS = 16
RING_WORDS = 4096


class OssLayer(NamedTuple):
    """What a layer of gpt-oss has besides, in fp32."""

    window: int  # 0: none
    sinks: torch.Tensor  # [heads]
    out_bias: torch.Tensor
    router_bias: torch.Tensor
    up_bias: torch.Tensor  # [experts, rows of gate and up], in the order of the tiles
    down_bias: torch.Tensor  # [experts, hidden]
    plain_up_bias: torch.Tensor  # gate, then up


class Layer(NamedTuple):
    attention_gain: torch.Tensor
    qkv: Matrix
    bias: torch.Tensor
    head_gain: torch.Tensor  # of each row of q and k, where the shape says `qk_norm`; v's are not read
    out: Matrix
    ffn_gain: torch.Tensor
    gate_up: Matrix  # with experts: those of all, one after the other
    down: Matrix
    router: torch.Tensor | None = None  # [experts, hidden] bf16
    oss: OssLayer | None = None


class Model(NamedTuple):
    """All that a pass reads and never writes."""

    shape: Shape
    layers: list[Layer]
    final_gain: torch.Tensor
    head: Matrix
    embedding: torch.Tensor  # [vocab, hidden] bf16
    rotation: torch.Tensor  # [positions, 64, 2] cosine and sine


class Routed(NamedTuple):
    """What the kernels for groups of tokens leave for each other (kernels/expert_groups.cuh)."""

    groups: torch.Tensor
    shares: torch.Tensor  # of each token's experts
    made: torch.Tensor  # by each of them


def make_routed(shape: Shape, tokens: int, device: torch.device | str) -> Routed:
    """Return memory for passes of up to so many tokens: none where there are no experts."""
    places = tokens * shape.experts_per_token
    return Routed(
        torch.zeros(LIST_WORDS + places * GROUP_WORDS, dtype=torch.int32, device=device),
        torch.zeros(places, device=device),
        torch.zeros(places * shape.hidden, device=device),
    )


@dataclass
class Buffers:
    """What a pass writes. `ring` may be host memory that the device can reach."""

    inputs: torch.Tensor
    state: torch.Tensor
    tokens: torch.Tensor
    pages: torch.Tensor
    x: torch.Tensor
    q: torch.Tensor
    part: torch.Tensor
    part_stats: torch.Tensor
    rank: torch.Tensor  # what each rank of the attention has found, where rows share what they read
    rank_stats: torch.Tensor
    h: torch.Tensor
    arrived: torch.Tensor  # blocks of `feed` that have written their half of h, and which round it is
    marked: torch.Tensor  # h, each with the mark of its round
    scores: torch.Tensor  # of the experts
    routed: Routed
    logits: torch.Tensor
    best_score: torch.Tensor
    best_token: torch.Tensor
    ring: torch.Tensor
    kv: torch.Tensor  # as `pool.make_pool` made it


def make_buffers(
    plan: Plan, kv: torch.Tensor, max_pages: int, ring: torch.Tensor, pages: torch.Tensor | None = None
) -> Buffers:
    shape, tokens, device = plan.shape, plan.tokens, kv.device

    def zeros(*size: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        return torch.zeros(size, dtype=dtype, device=device)

    ranks = plan.rank_slots
    inputs = zeros(STATE_WORDS + tokens, dtype=torch.int32)  # one copy from the host fills state and tokens
    return Buffers(
        inputs=inputs,
        state=inputs[:STATE_WORDS],
        tokens=inputs[STATE_WORDS:],
        pages=zeros(max_pages, dtype=torch.int32) if pages is None else pages,
        x=zeros(tokens, shape.hidden),
        q=zeros(tokens, shape.heads, HEAD_DIM, dtype=torch.bfloat16),
        part=zeros(PARTS[-1], tokens, shape.heads, HEAD_DIM),
        part_stats=zeros(PARTS[-1], tokens, shape.heads, STATS_WORDS),
        rank=zeros(ranks, tokens, shape.heads, HEAD_DIM),
        rank_stats=zeros(ranks, tokens, shape.heads, 2),
        h=zeros(tokens, plan.down_columns),
        arrived=zeros(3, STATS_WORDS, dtype=torch.int32),
        marked=zeros(plan.down_columns, dtype=torch.int64),
        scores=zeros(tokens, shape.experts),
        routed=make_routed(shape, tokens, device),
        logits=zeros(tokens, shape.vocab),
        best_score=zeros(tokens, plan.blocks),
        best_token=zeros(tokens, plan.blocks, dtype=torch.int32),
        ring=ring,
        kv=kv,
    )


def rotation_table(
    shape: Shape,
    positions: int,
    device: torch.device | str,
    yarn_factor: float = 1.0,
    factors: torch.Tensor | None = None,
) -> torch.Tensor:
    """Return cosine and sine of position × frequency, in fp32 as in the reference.

    `factors` divide the frequencies (Llama 3). `yarn_factor` is YaRN's: beyond the trained context slow
    frequencies are stretched, quick ones are left, and all is made a little larger. gpt-oss has one of its
    own. Heads that are 64 wide turn by the first 32 of 64.
    """
    width = shape.head_width
    exponent = torch.arange(0, width, 2, dtype=torch.float32, device=device) / width
    frequency = shape.rope_theta**-exponent
    if factors is not None:
        frequency = frequency / factors.to(device).float()
    if shape.oss:
        yarn_factor *= shape.oss.yarn_factor
    if yarn_factor > 1.0:
        kept = _kept_share(shape).to(device)
        frequency = frequency * (kept + (1.0 - kept) / yarn_factor)
    frequency = torch.nn.functional.pad(frequency, (0, (HEAD_DIM - width) // 2))
    angle = torch.outer(torch.arange(positions, device=device).float(), frequency)
    size = 1.0 + 0.1 * math.log(yarn_factor)
    return (torch.stack([angle.cos(), angle.sin()], dim=-1) * size).contiguous()


def _kept_share(shape: Shape) -> torch.Tensor:
    """Return how much of each frequency YaRN keeps: all if it turns 32 times in the trained context."""
    trained = shape.oss.yarn_tokens if shape.oss else shape.trained_tokens

    def dimension(turns: float) -> float:
        wave = trained / (turns * 2 * math.pi)
        return shape.head_width * math.log(wave) / (2 * math.log(shape.rope_theta))

    low, high = dimension(32.0), dimension(1.0)
    if not shape.oss:  # there they are not rounded
        low, high = math.floor(low), math.ceil(high)
    low, high = max(0, low), min(shape.head_width - 1, high)
    ramp = (torch.arange(shape.head_width // 2, dtype=torch.float32) - low) / max(0.001, high - low)
    return 1.0 - ramp.clamp(0.0, 1.0)


def embedding(plan: Plan, model: Model, buffers: Buffers) -> Launch:
    size = plan.sizes(1)["embed"]
    return Launch("embed", size, (buffers.tokens, model.embedding, buffers.x))


def head_gain(shape: Shape, layer: Layer) -> tuple[Argument, ...]:
    """Return what the qkv kernel has to know of the norm of the heads."""
    return (layer.head_gain,) if shape.qk_norm else ()


LOG2_E = 1.4426950408889634  # the softmax is taken to the base 2


def view_of(shape: Shape, layer: Layer) -> tuple[Argument, ...]:
    """Return what the attention has to know besides: the scale of scores, and gpt-oss's sinks and window."""
    oss = (layer.oss.sinks, layer.oss.window) if layer.oss else ()
    return shape.score_scale * LOG2_E, *oss


def parts_of(layer: Layer, parts: int) -> int:
    """Return the parts of a layer's attention in a pass: one cluster has all runs of a window at once."""
    return 1 if layer.oss and layer.oss.window else parts


def out_bias(layer: Layer) -> tuple[Argument, ...]:
    return (layer.oss.out_bias,) if layer.oss else ()


def layer_launches(
    plan: Plan, layer: Layer, model: Model, buffers: Buffers, kv: torch.Tensor, parts: int
) -> Iterator[Launch]:
    parts = parts_of(layer, parts)
    shape, size, b = plan.shape, plan.sizes(parts), buffers
    epsilon = shape.norm_epsilon
    if plan.is_clustered:
        made = (b.state, b.x, layer.attention_gain, *layer.qkv, layer.bias, model.rotation, b.pages, kv)
        mixed = (parts, epsilon, layer.out.tiles, b.part, b.arrived, *view_of(shape, layer))
        yield Launch("cluster_attention", size["cluster_attention"], (*made, *mixed))
        inner = (b.x, layer.ffn_gain, *layer.gate_up, b.marked, epsilon, *layer.down, b.arrived)
        yield Launch("feed", size["feed"], (*inner, b.part, layer.out.scales))
        return
    yield Launch("qkv", size["qkv"], (b.state, b.x, layer.attention_gain, *layer.qkv, layer.bias,
                                      model.rotation,
                                      b.pages, b.q, kv, epsilon, *head_gain(shape, layer)))  # fmt: skip
    seen, found = (b.state, b.q, kv, b.pages, parts), (b.part, b.part_stats)
    if plan.shares_reading(parts):
        ranks = (b.rank, b.rank_stats)
        scale, *view = view_of(shape, layer)
        yield Launch("draft_attention", size["draft_attention"], (*seen, *ranks, scale, *view))
        yield Launch("merge_ranks", size["merge_ranks"], (b.state, *ranks, *found, *view))
    else:
        yield Launch("attention", size["attention"], (*seen, *found, *view_of(shape, layer)))
    yield Launch("out_projection", size["out_projection"], (b.part, b.part_stats, parts, *layer.out, b.x,
                                                            *out_bias(layer)))  # fmt: skip
    if shape.experts:
        yield from expert_launches(
            plan, layer, model, count=b.state[COUNT:], x=b.x, scores=b.scores, h=b.h, routed=b.routed
        )
        return
    yield Launch("gate_up", size["gate_up"], (b.x, layer.ffn_gain, *layer.gate_up, b.h, epsilon))
    yield Launch("down_projection", size["down_projection"], (b.h, *layer.down, b.x))


def expert_launches(
    plan: Plan,
    layer: Layer,
    model: Model,
    *,
    count: torch.Tensor,
    x: torch.Tensor,
    scores: torch.Tensor,
    h: torch.Tensor,
    routed: Routed,
) -> Iterator[Launch]:
    """Yield the launches of a layer's experts, for the first `count` tokens of a pass."""
    experts = expert_plan(plan)
    size, epsilon = expert_sizes(experts, plan.tokens), plan.shape.norm_epsilon
    later = _read_after(layer, model)
    later_kb = min(experts.tuned.expert_later_kb, later.nbytes >> 10)
    assert layer.router is not None
    oss, more = plan.shape.oss, layer.oss
    router, up, down = (
        ((more.router_bias,), (more.up_bias, oss.limit, oss.slope), (more.down_bias,))
        if oss and more
        else ((), (), ())
    )
    yield Launch("router", size["router"], (x, layer.ffn_gain, layer.router, scores, later, later_kb,
                                            epsilon, *router))  # fmt: skip
    if is_for_groups(experts):
        groups, shares, made = routed
        yield Launch("choose_experts", size["choose_experts"], (count, scores, plan.tokens, groups, shares))
        yield Launch("group_gate_up", size["group_gate_up"], (groups, x, layer.ffn_gain, *layer.gate_up,
                                                              h, epsilon, *up))  # fmt: skip
        yield Launch("group_down", size["group_down"], (groups, h, shares, *layer.down, made, *down))
        yield Launch("sum_experts", size["sum_experts"], (count, made, x))
        return
    yield Launch("expert_gate_up", size["expert_gate_up"], (count, x, layer.ffn_gain, scores, *layer.gate_up,
                                                            h, epsilon, *up))  # fmt: skip
    yield Launch("expert_down", size["expert_down"], (count, h, scores, *layer.down, x, *down))


def _read_after(layer: Layer, model: Model) -> torch.Tensor:
    """Return the weights that are read first when a layer has ended."""
    following = next((i + 1 for i, each in enumerate(model.layers) if each is layer), len(model.layers))
    return (model.layers[following].qkv if following < len(model.layers) else model.head).tiles


def pass_launches(
    plan: Plan, model: Model, buffers: Buffers, *, parts: int, streams: bool
) -> Iterator[Launch]:
    """Yield the launches of a pass. A stream's step finds x written by the step before it."""
    b = buffers
    if not streams:
        yield embedding(plan, model, buffers)
    for index, layer in enumerate(model.layers):
        for launch in layer_launches(plan, layer, model, buffers, b.kv[index], parts):
            # The kernels read state and KV before they wait; so the first one begins with all of it final.
            yield launch._replace(overlaps=index > 0 or launch.kernel not in ("qkv", "cluster_attention"))
    yield from ending_launches(plan, model, b, streams=streams)


def ending_launches(plan: Plan, model: Model, buffers: Buffers, *, streams: bool) -> Iterator[Launch]:
    """Yield what follows the last layer: the logits of x, and the choice of the next tokens."""
    b, size = buffers, plan.sizes(1)
    yield Launch("head", size["head"], (b.state, b.x, model.final_gain, *model.head, b.logits, b.best_score,
                                        b.best_token, plan.shape.norm_epsilon))  # fmt: skip
    yield Launch("choose", size["choose"], (b.state, b.best_score, b.best_token, size["head"].grid[0],
                                            model.embedding, b.x, b.ring, RING_WORDS,
                                            int(streams)))  # fmt: skip


Run = Callable[[Launch], None]
