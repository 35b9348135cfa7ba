"""The experts of a layer as the kernels read them: packed one after the other, never all of them in bf16.

Owns the names of their tensors, the order of their rows and packing them. What one matrix looks like is
`layout`'s; when a layer is read is `build`'s.
"""

from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import torch  # type: ignore[import-not-found,unused-ignore]

from vivace.engine.runners.cuda.model.reference import StateDict
from vivace.engine.runners.cuda.model.shape import Shape
from vivace.engine.runners.cuda.weights.layout import Matrix, gate_up_pairs, pack

READERS = 4  # threads


class Experts(NamedTuple):
    router: torch.Tensor  # [experts, hidden] bf16
    gate_up: Matrix
    down: Matrix


def pack_experts(
    shape: Shape, weights: StateDict, index: int, bits: int, device: torch.device | str
) -> Experts:
    """Pack a layer's experts. Those to come are read meanwhile."""
    at, order = f"layers.{index}.mlp.", gate_up_pairs(shape.expert_ffn)

    def read(expert: int) -> list[torch.Tensor]:
        names = (f"{at}experts.{expert}.{name}_proj.weight" for name in ("gate", "up", "down"))
        return [weights[name].to(device).to(torch.bfloat16) for name in names]

    gate_up, down = _Stack(shape.experts), _Stack(shape.experts)
    with ThreadPoolExecutor(READERS) as threads:
        for expert, (gate, up, last) in enumerate(threads.map(read, range(shape.experts))):
            gate_up.put(expert, pack(torch.cat([gate, up]), bits, order))
            down.put(expert, pack(last, bits))
    router = weights[at + "gate.weight"].to(device).to(torch.bfloat16).contiguous()
    return Experts(router, gate_up.whole(), down.whole())


class _Stack:
    """One matrix of several: reserved when the first comes."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._tiles: torch.Tensor | None = None
        self._scales: torch.Tensor | None = None

    def put(self, index: int, matrix: Matrix) -> None:
        if self._tiles is None or self._scales is None:
            self._tiles = matrix.tiles.new_empty(self._count, matrix.tiles.numel())
            self._scales = matrix.scales.new_empty(self._count, matrix.scales.numel())
        self._tiles[index], self._scales[index] = matrix

    def whole(self) -> Matrix:
        assert self._tiles is not None
        assert self._scales is not None
        return Matrix(self._tiles.view(-1), self._scales.view(-1))
