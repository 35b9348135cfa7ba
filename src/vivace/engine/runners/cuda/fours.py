"""Weights in 4 bits: 32 neighbours of a row share a step and a least value.

A weight is least + step × (0 … 15), step and least in bf16: 5 bits a weight with all. The step is the best of
a few: a file that is in groups of 32 already (Q4_K, Q4_1) then comes out nearly as it went in. Owns the
rounding and how a tile of it lies in memory; kernels/fours.cuh has the same format. docs/gpu-notes.md has
the errors of other ways.
"""

from typing import NamedTuple

import torch  # type: ignore[import-not-found,unused-ignore]

GROUP = 32  # columns that share a step: what a tensor core takes at once
MOST = 15  # the largest integer
SPANS = (15, 14, 13, 12, 11, 10)  # steps from the least weight to the largest, of which the best is taken
ROWS_AT_ONCE = 4096  # in fp32, several times: 100 MB and more
TILE_ROWS = 8
BLOCK = 2 * GROUP  # columns; their integers are the two halves of a byte
BLOCK_BYTES = TILE_ROWS * GROUP + 2 * TILE_ROWS * 4


class Fours(NamedTuple):
    integers: torch.Tensor  # [rows, groups, 32] of bytes
    step: torch.Tensor  # [rows, groups] of bf16
    least: torch.Tensor


def round_to_fours(weight: torch.Tensor) -> Fours:
    starts = range(0, len(weight), ROWS_AT_ONCE)
    parts = [_round_rows(weight[start : start + ROWS_AT_ONCE]) for start in starts]
    return Fours(*(torch.cat(each) for each in zip(*parts, strict=True)))


def _round_rows(weight: torch.Tensor) -> Fours:
    groups = weight.float().reshape(len(weight), -1, GROUP)
    least = groups.amin(-1).to(torch.bfloat16)
    width = groups.amax(-1) - least.float()
    best = _with_step(groups, width / SPANS[0], least)
    error = _error(groups, best)
    for span in SPANS[1:]:
        other = _with_step(groups, width / span, least)
        other_error = _error(groups, other)
        is_better = other_error < error
        best = Fours(
            torch.where(is_better[..., None], other.integers, best.integers),
            torch.where(is_better, other.step, best.step),
            least,
        )
        error = torch.where(is_better, other_error, error)
    return best


def _with_step(groups: torch.Tensor, step: torch.Tensor, least: torch.Tensor) -> Fours:
    short = step.to(torch.bfloat16)
    to_integer = torch.where(short > 0, 1 / short.float(), 0.0)
    integers = torch.round((groups - least.float()[..., None]) * to_integer[..., None])
    return Fours(integers.clamp(0, MOST).to(torch.uint8), short, least)


def _error(groups: torch.Tensor, fours: Fours) -> torch.Tensor:
    return (_widen_groups(fours) - groups).square_().sum(-1)


def _widen_groups(fours: Fours) -> torch.Tensor:
    return torch.addcmul(
        fours.least.float()[..., None], fours.integers.float(), fours.step.float()[..., None]
    )


def widen(fours: Fours) -> torch.Tensor:
    """The matrix that the kernels multiply by: [rows, columns] of fp32."""
    return _widen_groups(fours).flatten(1)


def tile_fours(fours: Fours) -> torch.Tensor:
    """[tile][64 columns]: [row][32 bytes: columns 0 … 31 low, 32 … 63 high], [2 groups][row][step, least]

    The second group's step is divided by 16: the kernel takes the high halves where they stand.
    """
    rows, groups, _ = fours.integers.shape
    size = (rows // TILE_ROWS, TILE_ROWS, groups // 2, 2)
    halves = fours.integers.reshape(*size, GROUP)
    nibbles = (halves[..., 0, :] | halves[..., 1, :] << 4).transpose(1, 2).flatten(2)
    step = fours.step.reshape(size) * torch.tensor(
        [1, 1 / 16], dtype=torch.bfloat16, device=fours.step.device
    )
    scales = torch.stack([step, fours.least.reshape(size)], dim=-1).permute(0, 2, 3, 1, 4).flatten(2)
    return torch.cat([nibbles, scales.contiguous().view(torch.uint8)], dim=-1).reshape(-1)


def untile_fours(tiles: torch.Tensor, columns: int) -> Fours:
    blocks = tiles.reshape(-1, columns // BLOCK, BLOCK_BYTES)
    count = len(blocks)  # of tiles
    bytes_, scales = blocks[..., : TILE_ROWS * GROUP], blocks[..., TILE_ROWS * GROUP :]
    halves = bytes_.reshape(count, -1, TILE_ROWS, GROUP).transpose(1, 2)
    integers = torch.stack([halves & 15, halves >> 4], dim=-2)  # [tile, row, block, 2, 32]
    numbers = scales.contiguous().view(torch.bfloat16).reshape(count, -1, 2, TILE_ROWS, 2)
    step, least = numbers.permute(4, 0, 3, 1, 2).reshape(2, -1, columns // GROUP)
    step = step.clone()
    step[:, 1::2] *= 16
    return Fours(integers.reshape(len(step), -1, GROUP), step, least)
