"""Weights in 4 bits: 32 neighbours of a row share a step and a zero.

A weight is step × (0 … 15 − zero): the step a byte in its row's unit, the zero a byte of 16ths. With both it
takes 4.5 bits. The step is the best of a few, so that a file that is in groups of 32 already (Q4_K, Q4_1)
comes out nearly as it went in. Owns the rounding and how a tile of it lies in memory; kernels/int4.cuh has
the same format. docs/gpu-notes.md has the errors of other ways.
"""

from typing import NamedTuple

import torch  # type: ignore[import-not-found,unused-ignore]

GROUP = 32  # columns that share a step: what a tensor core takes at once
MAX_INTEGER = 15  # the largest integer
SPANS = range(15, 9, -1)  # steps from the least weight to the largest, of which the best is taken
ROWS_AT_ONCE = 4096  # in fp32, several times: 100 MB and more
TILE_ROWS = 8
BLOCK = 2 * GROUP  # columns; their integers are the two halves of a byte
BLOCK_BYTES = TILE_ROWS * GROUP + 2 * TILE_ROWS * 2


class Int4Weights(NamedTuple):
    """All but the scales are bytes. A weight is (16 × integer − zero) × step × scale."""

    integers: torch.Tensor  # [rows, groups, 32]
    step: torch.Tensor  # [rows, groups]
    zero: torch.Tensor
    scales: torch.Tensor  # [rows]


def round_to_int4(weight: torch.Tensor) -> Int4Weights:
    if weight.is_cuda:
        return _round_on_gpu(weight)
    starts = range(0, len(weight), ROWS_AT_ONCE)
    parts = [round_rows(weight[start : start + ROWS_AT_ONCE]) for start in starts]
    return Int4Weights(*(torch.cat(each) for each in zip(*parts, strict=True)))


def _round_on_gpu(weight: torch.Tensor) -> Int4Weights:
    from vivace.engine.runners.cuda.weights.int4_kernel import round_groups

    groups = weight.reshape(len(weight), -1, GROUP)
    width = groups.amax(-1).float().clamp(min=0.0) - groups.amin(-1).float().clamp(max=0.0)
    unit = _unit(width).squeeze(1)
    return Int4Weights(*round_groups(weight, unit, SPANS), unit / 16)


def _unit(width: torch.Tensor) -> torch.Tensor:
    """Return a row's unit of steps [rows, 1], given how wide its groups are."""
    return (width.amax(1, keepdim=True) / (SPANS[-1] * 255)).clamp(min=1e-30)


def round_rows(weight: torch.Tensor) -> Int4Weights:
    """Round in plain torch."""
    groups = weight.float().reshape(len(weight), -1, GROUP)
    least = groups.amin(-1).clamp(max=0.0)  # zero itself is always on the scale
    width = groups.amax(-1).clamp(min=0.0) - least
    unit = _unit(width)
    best, error = None, None
    for span in SPANS:
        found = _with_step(groups, width / (span * unit), least, unit)
        off = ((_widen_groups(found) - groups) / unit[..., None]).square_().sum(-1)
        if best is None or error is None:
            best, error = found, off
            continue
        is_better = off < error
        best = Int4Weights(
            torch.where(is_better[..., None], found.integers, best.integers),
            torch.where(is_better, found.step, best.step),
            torch.where(is_better, found.zero, best.zero),
            best.scales,
        )
        error = torch.minimum(off, error)
    assert best is not None
    return best


def _with_step(
    groups: torch.Tensor, steps: torch.Tensor, least: torch.Tensor, unit: torch.Tensor
) -> Int4Weights:
    step = torch.round(steps).clamp(1, 255)
    size = step * unit
    zero = torch.round(-16 * least / size).clamp(0, 255)
    integers = torch.round(groups / size[..., None] + zero[..., None] / 16).clamp(0, MAX_INTEGER)
    byte = torch.uint8
    return Int4Weights(integers.to(byte), step.to(byte), zero.to(byte), unit.squeeze(1) / 16)


def _widen_groups(int4: Int4Weights) -> torch.Tensor:
    size = int4.step.float() * int4.scales[:, None]
    return (16 * int4.integers.float() - int4.zero.float()[..., None]) * size[..., None]


def widen(int4: Int4Weights) -> torch.Tensor:
    """Return the matrix that the kernels multiply by: [rows, columns] of fp32."""
    return _widen_groups(int4).flatten(1)


def tile_int4(int4: Int4Weights) -> torch.Tensor:
    """Return [tile][64 columns]: [row][32 bytes: columns 0…31 low, 32…63 high], [2][row][step, zero]."""
    rows, groups, _ = int4.integers.shape
    size = (rows // TILE_ROWS, TILE_ROWS, groups // 2, 2)
    halves = int4.integers.reshape(*size, GROUP)
    bytes_ = (halves[..., 0, :] | halves[..., 1, :] << 4).transpose(1, 2).flatten(2)
    steps = torch.stack([int4.step.reshape(size), int4.zero.reshape(size)], dim=-1)
    return torch.cat([bytes_, steps.permute(0, 2, 3, 1, 4).flatten(2)], dim=-1).reshape(-1)


def untile_int4(tiles: torch.Tensor, scales: torch.Tensor, columns: int) -> Int4Weights:
    blocks = tiles.reshape(-1, columns // BLOCK, BLOCK_BYTES)
    count = len(blocks)  # of tiles
    bytes_, steps = blocks[..., : TILE_ROWS * GROUP], blocks[..., TILE_ROWS * GROUP :]
    halves = bytes_.reshape(count, -1, TILE_ROWS, GROUP).transpose(1, 2)
    integers = torch.stack([halves & 15, halves >> 4], dim=-2)  # [tile, row, block, 2, 32]
    pairs = steps.reshape(count, -1, 2, TILE_ROWS, 2)
    step, zero = pairs.permute(4, 0, 3, 1, 2).reshape(2, -1, columns // GROUP)
    return Int4Weights(integers.reshape(len(step), -1, GROUP), step, zero, scales)
