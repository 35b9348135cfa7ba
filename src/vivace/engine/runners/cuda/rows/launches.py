"""The launches of one pass over rows of several sequences, in order.

Owns what a row is in memory, the buffers that passes of all sizes share, and the two orders of launches: few
rows go through the kernels of one sequence's passes, many through large products with small kernels between
them. Does not run launches.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import torch  # type: ignore[import-not-found,unused-ignore]

from vivace.engine.runners.cuda.decode.clusters import out_parts
from vivace.engine.runners.cuda.decode.down_cut import down_columns
from vivace.engine.runners.cuda.decode.launch import Argument, Launch
from vivace.engine.runners.cuda.decode.launches import (
    Layer,
    Model,
    Routed,
    expert_launches,
    head_gain,
    make_routed,
    out_bias,
    parts_of,
    view_of,
)
from vivace.engine.runners.cuda.decode.plan import (
    BATCH_ROWS,
    PARTS,
    PICK_BLOCKS,
    STATS_WORDS,
    Plan,
)
from vivace.engine.runners.cuda.model.shape import HEAD_DIM, Shape
from vivace.engine.runners.cuda.weights.layout import Matrix

ROW_WORDS = 12  # `Row` in kernels/common.cuh
POSITION, FRESH, PAGES, TOKEN, NUMBER, ROW_PARTS, SEED, SEED_HIGH, TEMPERATURE = range(9)
ROW_COUNT, LOGITS = 9, 10
MAX_ROWS = BATCH_ROWS[-1]
MAX_LOGITS = 16  # rows of a pass whose logits the host may have: 12 µs over the bus for each
RING_WORDS = MAX_ROWS  # of each of two rings
WIDE_OVERLAPS = True  # whether what follows a large product is launched before that has ended
SLICES = 8  # of the columns of all products but the last of a layer


class Cut(NamedTuple):
    """How columns are summed: `parts` with a sum each, of `slices` that are added in order."""

    parts: int
    slices: int
    columns: int  # of a slice


class WideProduct(NamedTuple):
    """One product over many rows: digits times weights."""

    name: str
    digits: torch.Tensor  # [2][rows][columns]
    weights: torch.Tensor
    sums: torch.Tensor  # [parts][rows][rows of the weights]
    cut: Cut


RowLaunch: TypeAlias = Launch | WideProduct


@dataclass
class RowBuffers:
    """What passes over rows write. Those of one size are the beginning of these."""

    inputs: torch.Tensor  # [MAX_ROWS * ROW_WORDS]
    chosen: torch.Tensor  # the tokens of the last pass
    pages: torch.Tensor  # [sequences, pages of the longest]
    ring: torch.Tensor  # host memory that the device can reach: two of RING_WORDS
    kv: torch.Tensor
    x: torch.Tensor
    q: torch.Tensor
    part: torch.Tensor
    part_stats: torch.Tensor
    rank: torch.Tensor  # what each rank of the attention has found of a draft's rows
    rank_stats: torch.Tensor
    h: torch.Tensor
    scores: torch.Tensor  # of the experts
    routed: Routed
    logits: torch.Tensor  # of rows that are sampled on the host: [2 * MAX_LOGITS, vocab], for two passes
    best_score: torch.Tensor
    best_token: torch.Tensor
    digits: torch.Tensor
    scales: torch.Tensor
    sums: torch.Tensor


def make_row_buffers(
    shape: Shape, kv: torch.Tensor, pages: torch.Tensor, ring: torch.Tensor, blocks: int, plans: list[Plan]
) -> RowBuffers:
    def zeros(*size: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        return torch.zeros(size, dtype=dtype, device=kv.device)

    most, wide = MAX_ROWS, MAX_ROWS if any(plan.is_wide for plan in plans) else 0
    ranks = max((plan.rank_slots for plan in plans), default=0)
    widest = max(down_columns(shape), shape.hidden, shape.heads * HEAD_DIM)
    outputs = max(2 * shape.ffn, -(-shape.vocab // 8) * 8, 8 * shape.hidden, shape.qkv_rows)
    return RowBuffers(
        inputs=zeros(most * ROW_WORDS, dtype=torch.int32),
        chosen=zeros(most, dtype=torch.int32),
        pages=pages,
        ring=ring,
        kv=kv,
        x=zeros(most, shape.hidden),
        q=zeros(most, shape.heads, HEAD_DIM, dtype=torch.bfloat16),
        part=zeros(PARTS[-1] * most, shape.heads, HEAD_DIM),
        part_stats=zeros(PARTS[-1] * most, shape.heads, STATS_WORDS),
        rank=zeros(ranks * most, shape.heads, HEAD_DIM),
        rank_stats=zeros(ranks * most, shape.heads, 2),
        h=zeros(most, down_columns(shape)),
        scores=zeros(most, shape.experts),
        routed=make_routed(shape, most, kv.device),
        logits=zeros(2 * MAX_LOGITS, shape.vocab),
        best_score=zeros(most, max(blocks, PICK_BLOCKS)),
        best_token=zeros(most, max(blocks, PICK_BLOCKS), dtype=torch.int32),
        digits=zeros(2 * wide * widest, dtype=torch.int8),
        scales=zeros(wide * 9),  # of a row, and of the down projection's parts of it
        sums=zeros(wide * outputs),
    )


def row_launches(
    plan: Plan, model: Model, buffers: RowBuffers, parts: int, *, is_draft: bool = False
) -> Iterator[RowLaunch]:
    """Yield the launches of a pass. `parts` is the most that the attention of one of its rows has.

    `is_draft`: all rows are a token of one sequence and its draft, with the same parts.
    """
    b, size = buffers, plan.sizes(parts)
    yield Launch("embed", size["embed"], (b.inputs, b.chosen, model.embedding, b.x), overlaps=False)
    if plan.is_wide:
        yield from _wide(plan, model, b, parts, is_draft=is_draft)
    else:
        yield from _narrow(plan, model, b, parts)
    blocks = PICK_BLOCKS if plan.is_wide else size["head"].grid[0]
    yield Launch("choose", size["choose"], (b.inputs, b.best_score, b.best_token, blocks, b.chosen, b.ring,
                                            RING_WORDS))  # fmt: skip


def _narrow(plan: Plan, model: Model, b: RowBuffers, parts: int) -> Iterator[RowLaunch]:
    epsilon = plan.shape.norm_epsilon
    for index, layer in enumerate(model.layers):
        kv, own = b.kv[index], parts_of(layer, parts)
        size = plan.sizes(own)
        # The kernels read rows and KV before they wait; so the first one begins with all of it final.
        yield Launch("qkv", size["qkv"], (b.inputs, b.x, layer.attention_gain, *layer.qkv, layer.bias,
                                          model.rotation, b.pages, b.q, kv, epsilon,
                                          *head_gain(plan.shape, layer)),
                     overlaps=index > 0)  # fmt: skip
        yield _attention(plan, layer, b, kv, own)
        yield Launch("out_projection", size["out_projection"], (b.part, b.part_stats, own, *layer.out, b.x,
                                                                *out_bias(layer)))  # fmt: skip
        if plan.shape.experts:
            yield from expert_launches(
                plan,
                layer,
                model,
                count=b.inputs[ROW_COUNT:],
                x=b.x,
                scores=b.scores,
                h=b.h,
                routed=b.routed,
            )
            continue
        yield Launch("gate_up", size["gate_up"], (b.x, layer.ffn_gain, *layer.gate_up, b.h, epsilon))
        yield Launch("down_projection", size["down_projection"], (b.h, *layer.down, b.x))
    head = plan.sizes(1)["head"]
    yield Launch("head", head, (b.inputs, b.x, model.final_gain, *model.head, b.logits, b.best_score,
                                        b.best_token, epsilon))  # fmt: skip


def _attention(plan: Plan, layer: Layer, b: RowBuffers, kv: torch.Tensor, parts: int) -> Launch:
    arguments = (b.inputs, b.q, kv, b.pages, parts, b.part, b.part_stats, *view_of(plan.shape, layer))
    overlaps = WIDE_OVERLAPS or not plan.is_wide
    return Launch("attention", plan.sizes(parts)["attention"], arguments, overlaps)


class _Wide:
    """The launches between large products: each finds the sums of the one before."""

    def __init__(self, plan: Plan, model: Model, b: RowBuffers, parts: int, *, is_draft: bool) -> None:
        self._plan, self._model, self._b, self._parts = plan, model, b, parts
        self._is_draft = is_draft
        self._shape, self._size = plan.shape, plan.sizes(parts)
        self._rows = plan.tokens
        # Blocks that share a row read the scale of its sums and write those of its digits: not in one place.
        self._down_scales = b.scales[MAX_ROWS:]

    def launch(self, kernel: str, size: str, *arguments: Argument) -> Launch:
        return Launch(kernel, self._size[size], arguments, overlaps=WIDE_OVERLAPS)

    def add_and_norm(
        self, gain: torch.Tensor, parts: int, added: torch.Tensor, scales: torch.Tensor
    ) -> Launch:
        """Add the sums that lie there: `parts`, in units of `added` for a row and `scales` for a column."""
        b, epsilon = self._b, self._shape.norm_epsilon
        sums = (b.x, b.sums, parts, added, scales)
        return self.launch("add_and_norm", "row", *sums, gain, b.digits, b.scales, epsilon)

    def after_down(self, before: Layer | None, gain: torch.Tensor) -> Launch:
        """Add what the layer before has found, if there is one."""
        if before is None:
            return self.add_and_norm(gain, 0, self._down_scales, gain)
        return self.add_and_norm(gain, self._plan.down_slices[0], self._down_scales, before.down.scales)

    def product(self, name: str, matrix: Matrix, columns: int, cut: tuple[int, int]) -> WideProduct:
        b, (parts, slices) = self._b, cut
        count = matrix.tiles.numel() // columns
        digits = b.digits[: 2 * self._rows * columns].view(2, self._rows, columns)
        sums = b.sums[: parts * self._rows * count].view(parts, self._rows, count)
        return WideProduct(name, digits, matrix.tiles, sums, Cut(parts, slices, columns // parts // slices))

    def _attend(self, layer: Layer, kv: torch.Tensor) -> Iterator[Launch]:
        if not self._is_draft:
            yield _attention(self._plan, layer, self._b, kv, self._parts)
            return
        b, found = self._b, (self._b.rank, self._b.rank_stats)
        seen = (b.inputs, b.q, kv, b.pages, self._parts)
        yield self.launch("draft_attention", "draft_attention", *seen, *found, *view_of(self._shape, layer))
        yield self.launch("merge_ranks", "merge_ranks", b.inputs, *found, b.part, b.part_stats)

    def layer(self, layer: Layer, kv: torch.Tensor) -> Iterator[RowLaunch]:
        b, shape, one = self._b, self._shape, (1, SLICES)
        yield self.product("qkv", layer.qkv, shape.hidden, one)
        placing = (layer.qkv.scales, layer.bias, self._model.rotation, b.pages, b.q, kv)
        gain = (*head_gain(shape, layer), shape.norm_epsilon) if shape.qk_norm else ()
        yield self.launch("place_rows", "place", b.inputs, b.sums, b.scales, *placing, *gain)
        yield from self._attend(layer, kv)
        # The scales of the layer before are read: here is room for those of the out projection's parts.
        mixed = (b.part, b.part_stats, self._parts, b.digits, self._down_scales)
        yield self.launch("stage_parts_of_rows", "out_parts", *mixed)
        parts = out_parts(shape, self._plan.bits)
        yield self.product("out", layer.out, shape.heads * HEAD_DIM, (parts, SLICES // parts))
        yield self.add_and_norm(layer.ffn_gain, parts, self._down_scales, layer.out.scales)
        yield self.product("gate_up", layer.gate_up, shape.hidden, one)
        inner = (b.sums, b.scales, layer.gate_up.scales, b.digits, self._down_scales)
        yield self.launch("silu_digits", "row_parts", *inner)
        yield self.product("down", layer.down, self._plan.down_columns, self._plan.down_slices)


def _wide(plan: Plan, model: Model, b: RowBuffers, parts: int, *, is_draft: bool) -> Iterator[RowLaunch]:
    wide = _Wide(plan, model, b, parts, is_draft=is_draft)
    before: Layer | None = None
    for index, layer in enumerate(model.layers):
        yield wide.after_down(before, layer.attention_gain)
        yield from wide.layer(layer, b.kv[index])
        before = layer
    yield wide.after_down(before, model.final_gain)
    head = wide.product("head", model.head, plan.shape.hidden, (1, SLICES))
    yield head
    choice = (b.scales, model.head.scales, head.sums.shape[2], b.logits, b.best_score, b.best_token)
    yield wide.launch("pick", "pick", b.inputs, b.sums, *choice)
