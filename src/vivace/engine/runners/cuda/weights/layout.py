"""How a weight matrix lies in device memory: in the order in which the tensor cores take it.

Tiles of 8 rows; in a tile, blocks of 32 columns (16-bit) or 64 (8-bit); in a block, 16 bytes for each of
32 lanes. Lane (g, t) holds row g, columns 8t … 8t+7 of each 32. Every load of a warp is then 512
consecutive bytes. Rows that must meet (rotation pairs, gate and up) are put 4 and 4 into one tile. Owns
the permutation and the rounding to 8 bits; the kernels in `kernels/` undo it. 4 bits are `int4`'s.
"""

from typing import NamedTuple

import torch  # type: ignore[import-not-found,unused-ignore]

from vivace.engine.runners.cuda.model.shape import HEAD_DIM
from vivace.engine.runners.cuda.weights.int4 import round_to_int4, tile_int4, untile_int4, widen

TILE_ROWS = 8


class Matrix(NamedTuple):
    """A weight matrix as the kernels read it; `scales` has one number a row, in the order of the tiles.

    `tiles` are bf16, int8 with a scale a row, or bytes: 4 bits, with a step for every 32 among them.
    """

    tiles: torch.Tensor
    scales: torch.Tensor


def rotation_pairs(heads: int, width: int = HEAD_DIM) -> torch.Tensor:
    """Return the row order for q, k, v: tile j of a head holds dimensions 4j … 4j+3 and the same + 64.

    Of heads that are 64 wide, the same + 32.
    """
    half = width // 2
    low = torch.arange(half).reshape(-1, 4)
    one = torch.cat([low, low + half], dim=1).reshape(-1)
    return (torch.arange(heads)[:, None] * width + one).reshape(-1)


def gate_up_pairs(ffn: int) -> torch.Tensor:
    """Return the row order for [gate; up]: tile j holds gate rows 4j … 4j+3 and the same rows of up."""
    low = torch.arange(ffn).reshape(-1, 4)
    return torch.cat([low, low + ffn], dim=1).reshape(-1)


def pack(weight: torch.Tensor, bits: int, order: torch.Tensor | None = None) -> Matrix:
    """Return rows in `order`, padded to whole tiles, rounded to `bits` and laid out in tiles."""
    rows = weight if order is None else weight[order.to(weight.device)]
    missing = -rows.shape[0] % TILE_ROWS
    if missing:
        rows = torch.cat([rows, rows.new_zeros(missing, rows.shape[1])])
    if bits == 8:
        values, scales = round_to_8_bits(rows)
        return Matrix(tile(values, 64), scales)
    if bits == 4:
        int4 = round_to_int4(rows)
        return Matrix(tile_int4(int4), int4.scales)
    scales = torch.ones(rows.shape[0], dtype=torch.float32, device=rows.device)
    return Matrix(tile(rows.to(torch.bfloat16), 32), scales)


def round_to_8_bits(rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return signed integers and one scale for each row."""
    rows = rows.float()
    scales = rows.abs().amax(dim=1).clamp(min=1e-12) / 127
    values = torch.round(rows / scales[:, None]).clamp(-127, 127)
    return values.to(torch.int8), scales


def tile(rows: torch.Tensor, block: int) -> torch.Tensor:
    """Return [rows, columns] as [tile][block][lane (g, t)][32-column part][8]."""
    count, columns = rows.shape
    parts = block // 32
    split = rows.reshape(count // TILE_ROWS, TILE_ROWS, columns // block, parts, 4, 8)
    return split.permute(0, 2, 1, 4, 3, 5).contiguous().reshape(-1)


def untile(matrix: Matrix, columns: int) -> torch.Tensor:
    """Return the matrix that the kernels multiply by, with rows in tile order."""
    if matrix.tiles.dtype == torch.uint8:
        return widen(untile_int4(*matrix, columns))
    parts = 2 if matrix.tiles.dtype == torch.int8 else 1
    count = matrix.tiles.numel() // columns
    split = matrix.tiles.reshape(count // TILE_ROWS, columns // (32 * parts), TILE_ROWS, 4, parts, 8)
    rows = split.permute(0, 2, 1, 4, 3, 5).reshape(count, columns).float()
    if parts == 2:
        rows = rows * matrix.scales[:, None]
    return rows
