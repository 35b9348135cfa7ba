"""The experts of a layer as the kernels read them: packed a few at a time, never all of them in bf16.

Owns the names of their tensors, the order of their rows and packing them. What one matrix looks like is
`layout`'s; when a layer is read is `build`'s.
"""

from collections.abc import Iterator
from typing import NamedTuple

import torch  # type: ignore[import-not-found,unused-ignore]

from vivace.engine.runners.cuda.model.shape import Shape
from vivace.engine.runners.cuda.weights.layout import TILE_ROWS, Matrix, gate_up_pairs, pack
from vivace.engine.runners.cuda.weights.pieces import Weights

AT_ONCE = 16  # experts that are packed together: fewer and larger steps for the GPU


class Experts(NamedTuple):
    router: torch.Tensor  # [experts, hidden] bf16
    gate_up: Matrix
    down: Matrix


def expert_names(shape: Shape, index: int) -> Iterator[tuple[list[str], list[str], list[str]]]:
    """Yield the gates, ups and downs of those experts that are packed together."""
    at = f"layers.{index}.mlp.experts."
    for start in range(0, shape.experts, AT_ONCE):
        some = range(start, min(start + AT_ONCE, shape.experts))
        gates, ups, downs = ([f"{at}{e}.{name}_proj.weight" for e in some] for name in ("gate", "up", "down"))
        yield gates, ups, downs


def pack_experts(
    shape: Shape, weights: Weights, index: int, bits: int, device: torch.device | str
) -> Experts:
    """Pack a layer's experts."""
    width, hidden = shape.expert_ffn, shape.hidden
    assert width % TILE_ROWS == hidden % TILE_ROWS == 0  # no expert ends within a tile of another
    order = gate_up_pairs(width)
    gate_up, down = _Stack(shape.experts), _Stack(shape.experts)
    router = weights.rows(f"layers.{index}.mlp.gate.weight").to(device).to(torch.bfloat16).contiguous()
    for gates, ups, downs in expert_names(shape, index):
        both = [weights.rows(*names).to(device).to(torch.bfloat16) for names in (gates, ups)]
        rows = torch.cat([each.reshape(-1, width, hidden) for each in both], dim=1)
        starts = 2 * width * torch.arange(len(rows))[:, None]
        gate_up.put(len(rows), pack(rows.flatten(0, 1), bits, (starts + order).reshape(-1)))
        down.put(len(rows), pack(weights.rows(*downs).to(device).to(torch.bfloat16), bits))
    return Experts(router, gate_up.whole(), down.whole())


class _Stack:
    """One matrix of several: reserved when the first come."""

    def __init__(self, count: int) -> None:
        self._count, self._filled = count, 0
        self._tiles: torch.Tensor | None = None
        self._scales: torch.Tensor | None = None

    def put(self, count: int, matrix: Matrix) -> None:
        """Add `count` that lie one after the other in `matrix`."""
        if self._tiles is None or self._scales is None:
            self._tiles = matrix.tiles.new_empty(self._count, matrix.tiles.numel() // count)
            self._scales = matrix.scales.new_empty(self._count, matrix.scales.numel() // count)
        where = slice(self._filled, self._filled + count)
        self._tiles[where] = matrix.tiles.reshape(count, -1)
        self._scales[where] = matrix.scales.reshape(count, -1)
        self._filled += count

    def whole(self) -> Matrix:
        assert self._tiles is not None
        assert self._scales is not None
        return Matrix(self._tiles.view(-1), self._scales.view(-1))
