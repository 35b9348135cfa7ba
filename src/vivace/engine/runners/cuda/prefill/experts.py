"""Prefill of a mixture of experts: a chunk's tokens sorted by expert, one grouped product for all experts.

Sizes depend on the chunk alone (each token has as many rows as experts), so it is captured like any other
chunk. A layer's experts are widened to bf16 in one scratch that all layers share. Owns the sorting and the
sums; the rest of a chunk's pass is `chunks`'.
"""

import torch  # type: ignore[import-not-found,unused-ignore]

from vivace.engine.runners.cuda.decode.graphs import Launcher
from vivace.engine.runners.cuda.decode.launches import Model
from vivace.engine.runners.cuda.model.mixture import choose_experts
from vivace.engine.runners.cuda.model.oss import clamped_swiglu
from vivace.engine.runners.cuda.model.reference import norm
from vivace.engine.runners.cuda.prefill.chunks import Prefill
from vivace.engine.runners.cuda.prefill.packed import widening
from vivace.engine.runners.cuda.weights.build import Dense
from vivace.engine.runners.cuda.weights.layout import Matrix

LAYERS_OF_A_SEGMENT = 3  # widening a layer takes as long as a few hundred tokens


class ExpertPrefill(Prefill):
    def __init__(
        self, model: Model, dense: list[Dense], kv: torch.Tensor, pages: torch.Tensor, launcher: Launcher
    ) -> None:
        super().__init__(model, dense, kv, pages, launcher)
        shape = model.shape
        self.segments = max(self.segments, -(-shape.layers // LAYERS_OF_A_SEGMENT))

        def scratch(*size: int) -> torch.Tensor:
            return torch.zeros(size, dtype=torch.bfloat16, device=kv.device)

        self._wide_up = scratch(shape.experts, 2 * shape.expert_ffn, shape.hidden)
        self._wide_down = scratch(shape.experts, shape.hidden, shape.expert_ffn)

    def _feed_forward(self, index: int, size: int) -> None:
        layer, shape = self._model.layers[index], self._model.shape
        self._add_norm(layer.ffn_gain, size, self._in_its_unit)
        self._widen(layer.gate_up, self._wide_up, paired_rows=shape.expert_ffn)
        self._widen(layer.down, self._wide_down, paired_rows=0)
        # The scores come from x in fp32, as in decode, and not from y, which is rounded.
        assert layer.router is not None
        scores = norm(self._x[:size], layer.ffn_gain, shape.norm_epsilon) @ layer.router.float().T
        if layer.oss:
            scores = scores + layer.oss.router_bias
        experts, shares = choose_experts(scores, shape.experts_per_token)
        rows = experts.reshape(-1).sort(
            stable=True
        )  # row i of the sorted ones is of token indices[i] // count
        ends = torch.zeros(shape.experts, dtype=torch.int32, device=scores.device)
        ends = ends.index_add(0, rows.values, torch.ones_like(rows.values, dtype=torch.int32))
        ends = ends.cumsum(0, dtype=torch.int32)
        inputs = self._y[:size][rows.indices // shape.experts_per_token]
        both = grouped_product(inputs, self._wide_up, ends).float()
        share = shares.reshape(-1, 1)[rows.indices]
        if shape.oss and layer.oss:
            gate, up = (both + layer.oss.plain_up_bias[rows.values]).chunk(2, dim=1)
            inner = clamped_swiglu(gate, up, shape.oss) * share
        else:
            gate, up = both.chunk(2, dim=1)
            inner = torch.nn.functional.silu(gate) * up * share
        found = grouped_product(inner.to(inputs.dtype), self._wide_down, ends)
        back = torch.empty_like(found).index_copy_(0, rows.indices, found)
        delta = back.view(size, -1, shape.hidden).sum(1, dtype=torch.float32)
        if layer.oss:
            delta = delta + (shares[..., None] * layer.oss.down_bias[experts]).sum(1)
        self._delta[:size] = delta

    def _widen(self, matrix: Matrix, out: torch.Tensor, *, paired_rows: int) -> None:
        kernel = "widen_mxfp4" if self._model.shape.oss else "widen"
        self._launcher.run(widening(matrix, out, paired_rows, kernel))


def grouped_product(rows: torch.Tensor, matrices: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
    """Return rows × matrix.T, for rows in groups: those of matrix i end at row `ends[i]`. Sum in 32 bits."""
    if rows.is_cuda:
        product: torch.Tensor = torch._grouped_mm(rows, matrices.transpose(1, 2), ends)
        return product
    begins = [0, *ends.tolist()]
    parts = [
        rows[begin:end].float() @ matrix.float().T
        for begin, end, matrix in zip(begins, begins[1:], matrices, strict=False)
    ]
    return torch.cat(parts).to(rows.dtype)
