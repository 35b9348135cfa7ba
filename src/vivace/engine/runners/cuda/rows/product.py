"""The product of 32 or 64 rows with 8-bit weights, in Triton: the sums of kernels/product.cuh, to the bit.

An activation is two digits of 8 bits. A slice of columns is summed in integers, which is exact in any order;
the slices are added in fp32, in their order. So Hopper's large matrix instructions give the sums that the
kernel for one token gives. The weights are read as they lie (`weights/layout.py`): 64 columns of a row are
64 bytes in another order, and the digits come in that order too. Owns the multiplication, not the scales.
"""

from typing import NamedTuple

import torch  # type: ignore[import-not-found,unused-ignore]
import triton  # type: ignore[import-not-found,import-untyped,unused-ignore]
import triton.language as tl  # type: ignore[import-not-found,import-untyped,unused-ignore]
from triton.language.extra.cuda import (  # type: ignore[import-not-found,import-untyped,unused-ignore]
    gdc_launch_dependents,
    gdc_wait,
)

from vivace.engine.runners.cuda.rows.launches import Cut

BLOCK = 64  # columns that lie together
MOST_BYTES = 220 << 10  # of shared memory, for what is on its way to a block of the GPU
BLOCK_STAGES = 6  # blocks of 64 columns at once, where slices are long
TILE_BYTES = 512  # 8 rows of such a block


class Tile(NamedTuple):
    """What one block of the GPU computes."""

    rows: int = 64  # of the weights
    warps: int = 4
    stages: int = 3  # slices at once
    blocks: int = 0  # blocks of 64 columns at once, in place of slices


TILES = {  # by what is multiplied and rows, as measured on an H200 (docs/gpu-notes.md)
    ("qkv", 64): Tile(32, 4, blocks=8),
    ("out", 64): Tile(32, 4, blocks=4),
    ("gate_up", 64): Tile(64, 8, blocks=4),
    ("down", 64): Tile(64, 4, 3),
    ("qkv", 32): Tile(16, 4, 3),
    ("out", 32): Tile(16, 4, 3),
    ("gate_up", 32): Tile(64, 4, blocks=4),
    ("down", 32): Tile(64, 4, 3),
}
LARGE_COLUMNS = 3072
LARGE_TILES = {  # of models as wide as the 7B, where digits are as much to read as weights
    ("qkv", 64): Tile(32, 4, blocks=4),
    ("out", 64): Tile(32, 4, 3),
    ("gate_up", 64): Tile(64, 4, blocks=4),
    ("down", 64): Tile(128, 4, blocks=4),
    ("head", 64): Tile(64, 4, blocks=4),
    ("qkv", 32): Tile(64, 4, 3),
    ("out", 32): Tile(32, 4, 3),
    ("gate_up", 32): Tile(128, 4, blocks=4),
    ("down", 32): Tile(128, 8, blocks=4),
    ("head", 32): Tile(128, 4, blocks=4),
}


def tile_for(name: str, rows: int, columns: int, outputs: int) -> Tile:
    """Return the tile for so many rows, columns of the weights and rows of the weights."""
    tiles = LARGE_TILES if min(columns, outputs) >= LARGE_COLUMNS else TILES
    return tiles.get((name, rows)) or Tile()


def stages_for(tile: Tile, rows: int, columns: int) -> int:
    """Return how many times `columns` of weights and digits are in shared memory at once."""
    return min(tile.stages, MOST_BYTES // (columns * (tile.rows + 2 * rows)))


def multiply(
    digits: torch.Tensor,  # [2][rows][columns] int8: high digits, low digits
    weights: torch.Tensor,  # as `layout.tile` made them
    sums: torch.Tensor,  # [parts][rows][weight rows] fp32
    cut: Cut,
    tile: Tile,
) -> None:
    """Write for each part the sum over its columns, in the unit of weights and activations."""
    if digits.is_cuda:
        launch(digits, weights, sums, cut, tile)
    else:
        sums.copy_(plain_sums(digits, weights, cut))


def launch(digits: torch.Tensor, weights: torch.Tensor, sums: torch.Tensor, cut: Cut, tile: Tile) -> None:
    """Bring whole slices at once, or blocks of one, where that is quicker or there is no room for slices."""
    _, rows, columns = digits.shape
    count, blocks = sums.shape[2], cut.columns // BLOCK
    stages = stages_for(tile, rows, cut.columns)
    has_room = stages > 1 and not tile.blocks
    overlaps = {"launch_pdl": True} if digits.is_cuda else {}
    _multiply[(triton.cdiv(count, tile.rows), cut.parts)](
        *(digits, weights, sums, count),
        *(rows, columns, cut.slices, blocks, tile.rows, has_room, digits.is_cuda),
        num_warps=tile.warps,
        num_stages=stages if has_room else tile.blocks or BLOCK_STAGES,
        **overlaps,
    )


def plain_sums(digits: torch.Tensor, weights: torch.Tensor, cut: Cut) -> torch.Tensor:
    """Return the same in plain torch."""
    _, rows, columns = digits.shape
    lying = weights.view(-1, columns // BLOCK, 8, BLOCK).transpose(1, 2)
    plain = lying.reshape(-1, cut.parts, cut.slices, cut.columns).double()
    each = digits.view(2, rows, cut.parts, cut.slices, cut.columns).double()
    exact = torch.einsum("drpsc,npsc->dsprn", each, plain)  # of integers below 2^53
    slices = 256.0 * exact[0].float() + exact[1].float()
    total = torch.zeros_like(slices[0])
    for index in range(cut.slices):
        total += slices[index]
    return total


@triton.jit  # type: ignore[untyped-decorator,unused-ignore]
def _multiply(  # type: ignore[no-untyped-def]
    digits, weights, sums, count,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, SLICES: tl.constexpr, BLOCKS: tl.constexpr,
    TILE: tl.constexpr, BY_SLICES: tl.constexpr, OVERLAPS: tl.constexpr,
):  # fmt: skip
    """Sum one part of the columns for TILE rows of the weights and all rows of the digits."""
    if OVERLAPS:  # begun before the kernel that writes the digits has ended
        gdc_wait()
        gdc_launch_dependents()
    part = tl.program_id(1)
    n = tl.program_id(0) * TILE + tl.arange(0, TILE)
    k = tl.arange(0, 64)
    m = tl.arange(0, ROWS)
    known = tl.minimum(n, count - 1)  # past the end the last row again
    first = part * SLICES * BLOCKS
    left = (
        weights + (known // 8).to(tl.int64)[:, None] * (8 * COLUMNS) + (known % 8 * 64)[:, None] + k[None, :]
    )
    high = digits + m[None, :] * COLUMNS + k[:, None]
    low = high + ROWS * COLUMNS
    total = tl.zeros([TILE, ROWS], tl.float32)
    upper = tl.zeros([TILE, ROWS], tl.int32)
    lower = tl.zeros([TILE, ROWS], tl.int32)
    if BY_SLICES:
        for index in tl.range(0, SLICES):
            upper = tl.zeros([TILE, ROWS], tl.int32)
            lower = tl.zeros([TILE, ROWS], tl.int32)
            for block in tl.static_range(BLOCKS):
                at = first + index * BLOCKS + block
                w = tl.load(left + at * 512)
                upper = tl.dot(w, tl.load(high + at * 64), upper, out_dtype=tl.int32)
                lower = tl.dot(w, tl.load(low + at * 64), lower, out_dtype=tl.int32)
            total += upper.to(tl.float32) * 256.0 + lower.to(tl.float32)
    else:
        for index in tl.range(0, SLICES * BLOCKS):
            at = first + index
            w = tl.load(left + at * 512)
            upper = tl.dot(w, tl.load(high + at * 64), upper, out_dtype=tl.int32)
            lower = tl.dot(w, tl.load(low + at * 64), lower, out_dtype=tl.int32)
            is_last = index % BLOCKS == BLOCKS - 1  # of its slice
            total = tl.where(is_last, total + (upper.to(tl.float32) * 256.0 + lower.to(tl.float32)), total)
            upper = tl.where(is_last, 0, upper)
            lower = tl.where(is_last, 0, lower)
    out = sums + (part * ROWS + m)[None, :].to(tl.int64) * count + n[:, None]
    tl.store(out, total, mask=(n < count)[:, None])
