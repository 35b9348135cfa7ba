"""Prefill out of the packed weights, for models that have no room for a second copy in bf16.

A layer is widened into one scratch that all layers share, before its products: the numbers are those that
decode multiplies by. It costs a reading of the packed layer and a writing of the wide one for each chunk
(about 0.35 ms for a layer of a 32B in 8 bits). Owns the scratch; the rest of a chunk's pass is `chunks`'.
"""

import torch  # type: ignore[import-not-found,unused-ignore]

from vivace.engine.runners.cuda.decode.down_cut import down_columns
from vivace.engine.runners.cuda.decode.graphs import Launcher
from vivace.engine.runners.cuda.decode.launch import Launch
from vivace.engine.runners.cuda.decode.launches import Model
from vivace.engine.runners.cuda.decode.plan import Size
from vivace.engine.runners.cuda.model.shape import HEAD_DIM
from vivace.engine.runners.cuda.prefill.chunks import Prefill
from vivace.engine.runners.cuda.weights.build import Dense
from vivace.engine.runners.cuda.weights.layout import Matrix


class PackedPrefill(Prefill):
    def __init__(
        self, model: Model, dense: list[Dense], kv: torch.Tensor, pages: torch.Tensor, launcher: Launcher
    ) -> None:
        super().__init__(model, dense, kv, pages, launcher)
        shape = model.shape

        def scratch(rows: int, columns: int) -> torch.Tensor:
            return torch.zeros(rows, columns, dtype=torch.bfloat16, device=kv.device)

        self._qkv = scratch(shape.qkv_rows, shape.hidden)
        self._out = scratch(shape.hidden, shape.attention_width)
        self._up = scratch(2 * shape.ffn, shape.hidden)
        self._down = scratch(shape.hidden, down_columns(shape))

    @staticmethod
    def keep(dense: Dense) -> Dense:
        none = dense.qkv[:0].clone()
        return dense._replace(qkv=none, out=none, gate_up=none, down=none)

    def _decoder_layer(self, index: int, size: int) -> None:
        layer, shape = self._model.layers[index], self._model.shape
        self._launcher.run(widening(layer.qkv, self._qkv, HEAD_DIM // 2))
        self._launcher.run(widening(layer.out, self._out, 0))
        self._launcher.run(widening(layer.gate_up, self._up, shape.ffn))
        self._launcher.run(widening(layer.down, self._down, 0))
        super()._decoder_layer(index, size)

    def _weights(self, index: int) -> Dense:
        down = self._down[:, : self._model.shape.ffn]
        return self._dense[index]._replace(qkv=self._qkv, out=self._out, gate_up=self._up, down=down)


def widening(matrix: Matrix, out: torch.Tensor, paired_rows: int) -> Launch:
    """Return the launch that writes packed matrices as bf16.

    Rows that must meet lie 4 and 4 in a tile, `paired_rows` apart in `out`: gate and up, the two halves of a
    head. 0: they lie as they are.
    """
    columns = out.shape[-1]
    threads = out.numel() // (8 if matrix.tiles.dtype == torch.bfloat16 else 16)
    size = Size((-(-threads // 256), 1, 1), 256, 1, 0)
    arguments = (*matrix, out, out.numel() // columns // 8, columns, paired_rows)
    return Launch("widen", size, arguments, overlaps=False)
