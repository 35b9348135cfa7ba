"""A chunk's experts out of their packed weights, in Triton: two products of rows that are grouped by expert.

A block of the GPU has some rows of one expert and some rows of its matrix, which become bf16 in the registers
from which the tensor core takes them: an expert is read in its 4 or 8 bits, once for each tile of rows that
chose it. Which tiles there are is known on the device alone, so there are as many blocks as there can be, and
those without a tile end at once. Owns the choice, the groups and both products, and that they are compiled
before they are needed; a weight's own steps are `unpacking`'s.
"""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import torch  # type: ignore[import-not-found,unused-ignore]
import triton  # type: ignore[import-not-found,import-untyped,unused-ignore]
import triton.language as tl  # type: ignore[import-not-found,import-untyped,unused-ignore]

from vivace.engine.runners.cuda.decode.launches import Layer, Model
from vivace.engine.runners.cuda.decode.plan import MXFP4
from vivace.engine.runners.cuda.model.shape import Shape
from vivace.engine.runners.cuda.prefill.unpacking import (
    add_block,
    lift_of,
    lowered,
    lying_place,
    shifts_of,
    width_of,
)
from vivace.engine.runners.cuda.weights.layout import Matrix

TOKENS_AT_ONCE = 2  # whose experts one block of the GPU chooses
PLACED_AT_ONCE = 64
COMPILERS = 8  # at once


class Cut(NamedTuple):
    """What one block of the GPU computes."""

    rows: int  # that share an expert
    outputs: int  # rows of the weights; one half of gate, the other of up
    warps: int
    stages: int  # blocks of 64 columns at once


# By the rows that an expert has in the mean, up to so many: the quickest of some on an H200. Blocks of four
# warps, for a block unpacks and then multiplies: others on its multiprocessor do the one beside the other.
CUTS = {8: Cut(16, 128, 4, 4), 16: Cut(32, 128, 4, 4), 128: Cut(64, 128, 4, 3), 1 << 20: Cut(128, 128, 4, 3)}


class _Launch(NamedTuple):
    """One kernel with all that it is asked, to be run or only compiled."""

    kernel: Any
    grid: tuple[int, ...]
    arguments: tuple[Any, ...]
    options: dict[str, int]


def cut_for(shape: Shape, tokens: int) -> Cut:
    mean = tokens * shape.experts_per_token / shape.experts
    return CUTS[min(rows for rows in CUTS if rows >= mean)]


class Groups:
    """Which rows have which expert, for chunks of up to `most` tokens."""

    def __init__(
        self, model: Model, most: int, device: torch.device, dtype: torch.dtype = torch.bfloat16
    ) -> None:
        self._shape = shape = model.shape
        self._width = width_of(model.layers[0].gate_up, is_mxfp4=shape.oss is not None)
        self._shifts = shifts_of(self._width).to(device)
        experts = (matrix for layer in model.layers for matrix in (layer.gate_up, layer.down))
        self._lift = lift_of(experts) if self._width == MXFP4 else 0
        rows = most * shape.experts_per_token

        def some(*size: int, dtype: torch.dtype = torch.int32) -> torch.Tensor:
            return torch.zeros(size, dtype=dtype, device=device)

        self._counts = some(triton.next_power_of_2(shape.experts))  # zeros between two layers
        self._experts, self._ranks, self._rows = some(rows), some(rows), some(rows)
        self._shares = some(rows, dtype=torch.float32)
        self._y = some(most, shape.hidden, dtype=dtype)  # x behind the norm, its columns as weights lie
        self._inner = some(rows, shape.expert_ffn, dtype=dtype)
        self._made = some(rows, shape.hidden, dtype=dtype)

    def run(
        self,
        layer: Layer,
        x: torch.Tensor,  # [tokens, hidden] fp32, before the norm
        scores: torch.Tensor,  # [tokens, experts] of x, in fp32 and before the norm's scale
        delta: torch.Tensor,  # [tokens, hidden]
    ) -> None:
        """Write what its experts make of each token to `delta`."""
        for kernel, grid, arguments, options in self._launches(layer, x, scores, delta):
            kernel[grid](*arguments, **options)

    def compile(
        self, layer: Layer, x: torch.Tensor, scores: torch.Tensor, delta: torch.Tensor, sizes: Sequence[int]
    ) -> None:
        """Compile what chunks of these sizes need, several kernels at a time: each takes seconds."""
        with ThreadPoolExecutor(COMPILERS) as threads, triton.AsyncCompileMode(threads):
            for size in sizes:
                for kernel, grid, arguments, options in self._launches(
                    layer, x[:size], scores[:size], delta[:size]
                ):
                    kernel.warmup(*arguments, grid=grid, **options)

    def _launches(
        self, layer: Layer, x: torch.Tensor, scores: torch.Tensor, delta: torch.Tensor
    ) -> Iterator[_Launch]:
        shape, oss, tokens = self._shape, layer.oss, len(x)
        count, chosen, wide = shape.experts, shape.experts_per_token, triton.next_power_of_2(shape.experts)
        nothing, width = self._shares, self._width  # the first is for who needs an address and reads nothing
        arguments: tuple[Any, ...] = (
            *(x, layer.ffn_gain, scores, oss.router_bias if oss else nothing, tokens, shape.norm_epsilon),
            *(self._y, self._counts, self._experts, self._ranks, self._shares),
            *(shape.hidden, triton.next_power_of_2(shape.hidden), count, wide, chosen),
            *(triton.next_power_of_2(chosen), TOKENS_AT_ONCE, width, oss is not None),
        )
        yield _Launch(_choose, (triton.cdiv(tokens, TOKENS_AT_ONCE),), arguments, {"num_warps": 4})
        rows = tokens * chosen
        arguments = (self._counts, self._experts, self._ranks, self._rows, rows, count, wide, PLACED_AT_ONCE)
        yield _Launch(_place, (triton.cdiv(rows, PLACED_AT_ONCE),), arguments, {"num_warps": 4})
        cut, is_cuda = cut_for(shape, tokens), x.is_cuda
        options = {"num_warps": cut.warps, "num_stages": cut.stages}
        tiles = count + rows // cut.rows  # at most: one of each expert is not whole
        units = cut.outputs // 2  # each has a row of gate and one of up
        arguments = (
            *(self._y, layer.gate_up.tiles, _words(layer.gate_up), self._shifts, self._lift),
            *(layer.gate_up.scales, oss.plain_up_bias if oss else nothing, self._counts, self._rows),
            *(self._shares, self._inner, *((shape.oss.limit, shape.oss.slope) if shape.oss else (0.0, 0.0))),
            *(shape.hidden, shape.expert_ffn, count, wide, chosen, width, units, cut.rows, is_cuda),
        )
        yield _Launch(_gate_up, (triton.cdiv(shape.expert_ffn, units), tiles), arguments, options)
        arguments = (
            *(self._inner, layer.down.tiles, _words(layer.down), self._shifts, self._lift),
            *(layer.down.scales, self._counts, self._rows, self._made),
            *(shape.expert_ffn, shape.hidden, count, wide, width, cut.outputs, cut.rows, is_cuda),
        )
        yield _Launch(_down, (triton.cdiv(shape.hidden, cut.outputs), tiles), arguments, options)
        arguments = (
            *(self._made, self._experts, self._shares, oss.down_bias if oss else nothing, delta),
            *(self._counts, shape.hidden, triton.next_power_of_2(shape.hidden), wide, chosen),
            oss is not None,
        )
        yield _Launch(_sum, (tokens,), arguments, {"num_warps": 8})


def _words(matrix: Matrix) -> torch.Tensor:
    return matrix.tiles.view(torch.int32)


_MXFP4, _LEAST = tl.constexpr(MXFP4), tl.constexpr(16)  # rows that a product has at least


@triton.jit  # type: ignore[untyped-decorator,unused-ignore]
def _choose(  # type: ignore[no-untyped-def]
    x, gain, scores, bias, tokens, epsilon, y, counts, experts, ranks, shares,
    HIDDEN: tl.constexpr, HIDDEN2: tl.constexpr, EXPERTS: tl.constexpr, EXPERTS2: tl.constexpr,
    CHOSEN: tl.constexpr, CHOSEN2: tl.constexpr, TOKENS: tl.constexpr, WIDTH: tl.constexpr,
    HAS_BIAS: tl.constexpr,
):  # fmt: skip
    """Choose the experts of a few tokens, the lower of two with the same score; count who chose each.

    And write what the experts read: these tokens behind the norm, in the order of the weights' columns.
    """
    token = tl.program_id(0) * TOKENS + tl.arange(0, TOKENS)
    is_token = token < tokens
    column, expert = tl.arange(0, HIDDEN2), tl.arange(0, EXPERTS2)
    is_real = is_token[:, None] & (column < HIDDEN)[None, :]
    row = tl.load(x + token[:, None] * HIDDEN + column[None, :], mask=is_real, other=0.0)
    scale = tl.rsqrt(tl.sum(row * row, 1) / HIDDEN + epsilon)
    row = row * scale[:, None] * tl.load(gain + column, mask=column < HIDDEN, other=0.0)[None, :]
    at = token[:, None] * HIDDEN + lying_place(column, WIDTH)[None, :]
    tl.store(y + at, row.to(y.dtype.element_ty), mask=is_real)
    is_real = is_token[:, None] & (expert < EXPERTS)[None, :]
    score = tl.load(scores + token[:, None] * EXPERTS + expert[None, :], mask=is_real, other=0.0)
    score = score * scale[:, None]
    if HAS_BIAS:
        score += tl.load(bias + expert, mask=expert < EXPERTS, other=0.0)[None, :]
    score = tl.where((expert < EXPERTS)[None, :], score, float("-inf"))
    place = tl.arange(0, CHOSEN2)
    best = tl.full([TOKENS, CHOSEN2], float("-inf"), tl.float32)
    for which in tl.static_range(CHOSEN):
        most, index = tl.max(score, 1, return_indices=True)
        best = tl.where((place == which)[None, :], most[:, None], best)
        score = tl.where(expert[None, :] == index[:, None], float("-inf"), score)
        at = token * CHOSEN + which
        rank = tl.atomic_add(counts + index, 1, mask=is_token, sem="relaxed")
        tl.store(experts + at, index, mask=is_token)
        tl.store(ranks + at, rank, mask=is_token)
    weight = tl.exp(best - tl.max(best, 1)[:, None])
    weight = weight / tl.sum(weight, 1)[:, None]
    at = token[:, None] * CHOSEN + place[None, :]
    tl.store(shares + at, weight, mask=is_token[:, None] & (place < CHOSEN)[None, :])


@triton.jit  # type: ignore[untyped-decorator,unused-ignore]
def _place(  # type: ignore[no-untyped-def]
    counts, experts, ranks, rows, count,
    EXPERTS: tl.constexpr, EXPERTS2: tl.constexpr, PLACED: tl.constexpr,
):  # fmt: skip
    """Write the rows in the order of their experts; among those of one expert any order will do."""
    expert = tl.arange(0, EXPERTS2)
    chose = tl.load(counts + expert, mask=expert < EXPERTS, other=0)
    begins = tl.cumsum(chose, 0) - chose
    row = tl.program_id(0) * PLACED + tl.arange(0, PLACED)
    is_row = row < count
    own = tl.load(experts + row, mask=is_row, other=0)
    begin = tl.sum(tl.where(own[:, None] == expert[None, :], begins[None, :], 0), 1)
    tl.store(rows + begin + tl.load(ranks + row, mask=is_row, other=0), row, mask=is_row)


@triton.jit  # type: ignore[untyped-decorator,unused-ignore]
def _tile(counts, tile, EXPERTS: tl.constexpr, EXPERTS2: tl.constexpr, ROWS: tl.constexpr):  # type: ignore[no-untyped-def]
    """Return a tile's expert (none: a number past the last), its first row, and the end of its rows."""
    expert = tl.arange(0, EXPERTS2)
    chose = tl.load(counts + expert, mask=expert < EXPERTS, other=0)
    tiles = (chose + ROWS - 1) // ROWS
    tile_ends, ends = tl.cumsum(tiles, 0), tl.cumsum(chose, 0)
    own = tl.sum((tile_ends <= tile).to(tl.int32), 0)
    is_own = expert == own
    end = tl.sum(tl.where(is_own, ends, 0), 0)
    first = tl.sum(tl.where(is_own, ends - chose - (tile_ends - tiles) * ROWS, 0), 0)
    return own, first + tile * ROWS, end


@triton.jit  # type: ignore[untyped-decorator,unused-ignore]
def _gate_up(  # type: ignore[no-untyped-def]
    y, tiles, words, shifts, lift, scales, bias, counts, rows, shares, inner, limit, slope,
    COLUMNS: tl.constexpr, FFN: tl.constexpr, EXPERTS: tl.constexpr, EXPERTS2: tl.constexpr,
    CHOSEN: tl.constexpr, WIDTH: tl.constexpr, UNITS: tl.constexpr, ROWS: tl.constexpr,
    IS_CUDA: tl.constexpr,
):  # fmt: skip
    """Write SiLU(gate) × up × the token's share for a tile of one expert's rows, or for the rest of them."""
    expert, first, end = _tile(counts, tl.program_id(1), EXPERTS, EXPERTS2, ROWS)
    if expert >= EXPERTS:
        return
    if ROWS > 2 * _LEAST and end - first <= _LEAST:
        _gate_up_rows(
            y, tiles, words, shifts, lift, scales, bias, rows, shares, inner, limit, slope, expert,
            first, end, COLUMNS, FFN, CHOSEN, WIDTH, UNITS, _LEAST, IS_CUDA,
        )  # fmt: skip
    elif ROWS > _LEAST and end - first <= ROWS // 2:
        _gate_up_rows(
            y, tiles, words, shifts, lift, scales, bias, rows, shares, inner, limit, slope, expert,
            first, end, COLUMNS, FFN, CHOSEN, WIDTH, UNITS, ROWS // 2, IS_CUDA,
        )  # fmt: skip
    else:
        _gate_up_rows(
            y, tiles, words, shifts, lift, scales, bias, rows, shares, inner, limit, slope, expert,
            first, end, COLUMNS, FFN, CHOSEN, WIDTH, UNITS, ROWS, IS_CUDA,
        )  # fmt: skip


@triton.jit  # type: ignore[untyped-decorator,unused-ignore]
def _gate_up_rows(  # type: ignore[no-untyped-def]
    y, tiles, words, shifts, lift, scales, bias, rows, shares, inner, limit, slope, expert, first, end,
    COLUMNS: tl.constexpr, FFN: tl.constexpr, CHOSEN: tl.constexpr, WIDTH: tl.constexpr,
    UNITS: tl.constexpr, ROWS: tl.constexpr, IS_CUDA: tl.constexpr,
):  # fmt: skip
    m, k = first + tl.arange(0, ROWS), tl.arange(0, 64)
    row = tl.load(rows + tl.minimum(m, end - 1))
    n = tl.program_id(0) * UNITS + tl.arange(0, UNITS)
    known = tl.minimum(n, FFN - 1)  # past the end the last one again
    lying = known // 4 * 8 + known % 4  # a tile has 4 rows of gate, then the same of up
    # One product for both: 8 rows of gate, then the same of up: a thread of the tensor core has both.
    both = tl.arange(0, 2 * UNITS)
    pair = tl.minimum(tl.program_id(0) * UNITS + both // 16 * 8 + both % 8, FFN - 1)
    lying_both = pair // 4 * 8 + pair % 4 + both // 8 % 2 * 4
    first_tile = expert.to(tl.int64) * (2 * FFN // 8)
    at = y + (row // CHOSEN * COLUMNS)[None, :] + k[:, None]
    total = tl.zeros([2 * UNITS, ROWS], tl.float32)
    for block in tl.range(0, COLUMNS // 64):
        x = tl.load(at + block * 64)
        total = add_block(
            total, tiles, words, shifts, lift, first_tile, lying_both, block, x, COLUMNS, WIDTH, IS_CUDA
        )
    if WIDTH == _MXFP4:
        total = lowered(total, lift)
    total = total.reshape(UNITS // 8, 2, 8, ROWS).trans(0, 2, 3, 1)
    gate, up = tl.split(total.reshape(UNITS, ROWS, 2))
    if WIDTH <= 8:
        at_scale = scales + expert * (2 * FFN) + lying
        gate = gate * tl.load(at_scale)[:, None]
        up = up * tl.load(at_scale + 4)[:, None]
    if WIDTH == _MXFP4:
        at_bias = bias + expert * (2 * FFN) + known
        gate = tl.minimum(gate + tl.load(at_bias)[:, None], limit)
        up = tl.minimum(tl.maximum(up + tl.load(at_bias + FFN)[:, None], -limit), limit)
        made = (up + 1.0) * gate / (1.0 + tl.exp(-slope * gate))
    else:
        made = up * gate / (1.0 + tl.exp(-gate))
    made = made * tl.load(shares + row)[None, :]
    out = inner + m[None, :] * FFN + lying_place(n, WIDTH)[:, None]
    tl.store(out, made.to(y.dtype.element_ty), mask=(n < FFN)[:, None] & (m < end)[None, :])


@triton.jit  # type: ignore[untyped-decorator,unused-ignore]
def _down(  # type: ignore[no-untyped-def]
    inner, tiles, words, shifts, lift, scales, counts, rows, made,
    COLUMNS: tl.constexpr, HIDDEN: tl.constexpr, EXPERTS: tl.constexpr, EXPERTS2: tl.constexpr,
    WIDTH: tl.constexpr, OUTPUTS: tl.constexpr, ROWS: tl.constexpr, IS_CUDA: tl.constexpr,
):  # fmt: skip
    """Write the down projection of a tile of one expert's rows, or of the rest of them."""
    expert, first, end = _tile(counts, tl.program_id(1), EXPERTS, EXPERTS2, ROWS)
    if expert >= EXPERTS:
        return
    if ROWS > 2 * _LEAST and end - first <= _LEAST:
        _down_rows(
            inner, tiles, words, shifts, lift, scales, rows, made, expert, first, end,
            COLUMNS, HIDDEN, WIDTH, OUTPUTS, _LEAST, IS_CUDA,
        )  # fmt: skip
    elif ROWS > _LEAST and end - first <= ROWS // 2:
        _down_rows(
            inner, tiles, words, shifts, lift, scales, rows, made, expert, first, end,
            COLUMNS, HIDDEN, WIDTH, OUTPUTS, ROWS // 2, IS_CUDA,
        )  # fmt: skip
    else:
        _down_rows(
            inner, tiles, words, shifts, lift, scales, rows, made, expert, first, end,
            COLUMNS, HIDDEN, WIDTH, OUTPUTS, ROWS, IS_CUDA,
        )  # fmt: skip


@triton.jit  # type: ignore[untyped-decorator,unused-ignore]
def _down_rows(  # type: ignore[no-untyped-def]
    inner, tiles, words, shifts, lift, scales, rows, made, expert, first, end,
    COLUMNS: tl.constexpr, HIDDEN: tl.constexpr, WIDTH: tl.constexpr, OUTPUTS: tl.constexpr,
    ROWS: tl.constexpr, IS_CUDA: tl.constexpr,
):  # fmt: skip
    """Write each row to its token's place."""
    m, k = first + tl.arange(0, ROWS), tl.arange(0, 64)
    known_m = tl.minimum(m, end - 1)
    n = tl.program_id(0) * OUTPUTS + tl.arange(0, OUTPUTS)
    known = tl.minimum(n, HIDDEN - 1)
    first_tile = expert.to(tl.int64) * (HIDDEN // 8)
    at = inner + (known_m * COLUMNS)[None, :] + k[:, None]
    total = tl.zeros([OUTPUTS, ROWS], tl.float32)
    for block in tl.range(0, COLUMNS // 64):
        x = tl.load(at + block * 64)
        total = add_block(
            total, tiles, words, shifts, lift, first_tile, known, block, x, COLUMNS, WIDTH, IS_CUDA
        )
    if WIDTH == _MXFP4:
        total = lowered(total, lift)
    if WIDTH <= 8:
        total = total * tl.load(scales + expert * HIDDEN + known)[:, None]
    out = made + (tl.load(rows + known_m) * HIDDEN)[None, :] + n[:, None]
    tl.store(out, total.to(inner.dtype.element_ty), mask=(n < HIDDEN)[:, None] & (m < end)[None, :])


@triton.jit  # type: ignore[untyped-decorator,unused-ignore]
def _sum(  # type: ignore[no-untyped-def]
    made, experts, shares, bias, delta, counts,
    HIDDEN: tl.constexpr, HIDDEN2: tl.constexpr, EXPERTS2: tl.constexpr, CHOSEN: tl.constexpr,
    HAS_BIAS: tl.constexpr,
):  # fmt: skip
    """Add what a token's experts have made, the best one's first. The first block forgets who chose what."""
    token, column = tl.program_id(0), tl.arange(0, HIDDEN2)
    is_real = column < HIDDEN
    total = tl.zeros([HIDDEN2], tl.float32)
    for which in tl.static_range(CHOSEN):
        at = token * CHOSEN + which
        total += tl.load(made + at * HIDDEN + column, mask=is_real, other=0.0).to(tl.float32)
        if HAS_BIAS:
            own = tl.load(bias + tl.load(experts + at) * HIDDEN + column, mask=is_real, other=0.0)
            total += tl.load(shares + at) * own
    tl.store(delta + token * HIDDEN + column, total.to(delta.dtype.element_ty), mask=is_real)
    if token == 0:
        expert = tl.arange(0, EXPERTS2)
        tl.store(counts + expert, tl.zeros([EXPERTS2], tl.int32))
