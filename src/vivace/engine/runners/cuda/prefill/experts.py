"""Prefill of a mixture of experts: a chunk's tokens grouped by expert, out of the packed weights.

Sizes depend on the chunk alone (each token has as many rows as experts), so it is captured like any other
chunk. Owns a layer's experts; the rest of a chunk's pass is `chunks`', the groups and their products on a GPU
`grouped`'s. Elsewhere they are plain torch.
"""

import torch  # type: ignore[import-not-found,unused-ignore]

from vivace.engine.runners.cuda.decode.graphs import Launcher
from vivace.engine.runners.cuda.decode.launches import Layer, Model
from vivace.engine.runners.cuda.model.mixture import choose_experts
from vivace.engine.runners.cuda.model.oss import clamped_swiglu
from vivace.engine.runners.cuda.model.shape import Shape
from vivace.engine.runners.cuda.prefill.chunks import Prefill
from vivace.engine.runners.cuda.weights.build import Dense
from vivace.engine.runners.cuda.weights.layout import Matrix, untile
from vivace.engine.runners.cuda.weights.oss import untile_mxfp4


class ExpertPrefill(Prefill):
    def __init__(
        self, model: Model, dense: list[Dense], kv: torch.Tensor, pages: torch.Tensor, launcher: Launcher
    ) -> None:
        super().__init__(model, dense, kv, pages, launcher)
        shape = model.shape
        # The scores come from x in fp32, as in decode, and not from y, which is rounded.
        self._routers = [router_of(layer) for layer in model.layers]
        self._scores = torch.zeros(self.chunk_tokens, shape.experts, device=kv.device)
        if kv.is_cuda:
            from vivace.engine.runners.cuda.prefill.grouped import Groups

            self._groups = Groups(model, self.chunk_tokens, kv.device)

    def warm_up(self) -> None:
        if self._kv.is_cuda:
            self._groups.compile(self._model.layers[0], self._x, self._scores, self._delta, self._sizes)
        super().warm_up()

    def _feed_forward(self, index: int, size: int) -> None:
        layer, x, y, delta = self._model.layers[index], self._x[:size], self._y[:size], self._delta[:size]
        self._add_norm(layer.ffn_gain, size, self._in_its_unit)
        scores = torch.mm(x, self._routers[index], out=self._scores[:size])
        if x.is_cuda:
            self._groups.run(layer, x, scores, delta)
        else:
            delta.copy_(mix_experts(self._model.shape, layer, x, y, scores))


def router_of(layer: Layer) -> torch.Tensor:
    assert layer.router is not None
    return (layer.router.float() * layer.ffn_gain).T.contiguous()


def mix_experts(
    shape: Shape, layer: Layer, x: torch.Tensor, y: torch.Tensor, scores: torch.Tensor
) -> torch.Tensor:
    """Return what its experts make of each token, as `grouped` does, in plain torch."""
    scores = scores * torch.rsqrt(x.square().mean(1, keepdim=True) + shape.norm_epsilon)
    if layer.oss:
        scores = scores + layer.oss.router_bias
    experts, shares = choose_experts(scores, shape.experts_per_token)
    delta = torch.zeros_like(x)
    for expert in sorted(set(experts.flatten().tolist())):
        tokens, which = torch.where(experts == expert)
        both = y[tokens].float() @ _expert(layer.gate_up, expert, shape, shape.hidden).T
        gate, up = both.view(len(tokens), -1, 2, 4).transpose(1, 2).reshape(len(tokens), 2, -1).unbind(1)
        if shape.oss and layer.oss:
            gate_bias, up_bias = layer.oss.plain_up_bias[expert].chunk(2)
            inner = clamped_swiglu(gate + gate_bias, up + up_bias, shape.oss)
        else:
            inner = torch.nn.functional.silu(gate) * up
        share = shares[tokens, which, None]
        inner = (inner * share).to(y.dtype).float()
        made = (inner @ _expert(layer.down, expert, shape, shape.expert_ffn).T).to(y.dtype).float()
        delta[tokens] += made + share * layer.oss.down_bias[expert] if layer.oss else made
    return delta


def _expert(matrix: Matrix, expert: int, shape: Shape, columns: int) -> torch.Tensor:
    """Return an expert's matrix in fp32, rows in the order of the tiles."""
    tiles = matrix.tiles.view(shape.experts, -1)[expert]
    if shape.oss:
        return untile_mxfp4(tiles, columns)
    return untile(Matrix(tiles, matrix.scales.view(shape.experts, -1)[expert]), columns)
