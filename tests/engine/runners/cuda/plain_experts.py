"""The launches of a mixture of experts in plain torch, one token after the other. For `plain_launcher`."""

import torch

from vivace.engine.runners.cuda.decode.plan import Plan
from vivace.engine.runners.cuda.model import mixture, reference
from vivace.engine.runners.cuda.weights.layout import Matrix, gate_up_pairs, untile

Tensor = torch.Tensor


class PlainExperts:
    _plan: Plan
    _rows: dict[int, Tensor]
    _chosen: tuple[Tensor, Tensor]  # how many tokens there are, and their scores

    def _experts(self, tiles: Tensor, scales: Tensor, columns: int, order: Tensor | None = None) -> Tensor:
        """All experts' matrices [experts, rows, columns], in their own order of rows."""
        if tiles.data_ptr() not in self._rows:
            found = untile(Matrix(tiles, scales), columns).reshape(self._plan.shape.experts, -1, columns)
            if order is not None:
                found = torch.empty_like(found).index_copy_(1, order, found)
            self._rows[tiles.data_ptr()] = found
        return self._rows[tiles.data_ptr()]

    def _router(
        self,
        x: Tensor,
        gain: Tensor,
        router: Tensor,
        scores: Tensor,
        _later: Tensor,
        _kb: int,
        epsilon: float,
    ) -> None:
        for token in range(len(x)):
            scores[token] = router.float() @ reference.norm(x[token], gain, epsilon)

    def _expert_gate_up(
        self, count: Tensor, x: Tensor, gain: Tensor, scores: Tensor, tiles: Tensor, scales: Tensor,
        h: Tensor, epsilon: float,
    ) -> None:  # fmt: skip
        shape = self._plan.shape
        order = gate_up_pairs(shape.expert_ffn)
        matrices = self._experts(tiles, scales, shape.hidden, order)
        for token in range(int(count[0])):
            y = reference.norm(x[token], gain, epsilon)
            experts, _ = mixture.choose_experts(scores[token : token + 1], shape.experts_per_token)
            gate, up = (matrices[experts[0]] @ y).chunk(2, dim=1)
            inner = (torch.nn.functional.silu(gate) * up).reshape(-1)
            h.view(-1)[token * len(inner) : (token + 1) * len(inner)] = inner

    def _expert_down(
        self, count: Tensor, h: Tensor, scores: Tensor, tiles: Tensor, scales: Tensor, x: Tensor
    ) -> None:
        for token in range(int(count[0])):
            x[token] += self._mixed(token, h, scores, tiles, scales)

    def _mixed(self, token: int, h: Tensor, scores: Tensor, tiles: Tensor, scales: Tensor) -> Tensor:
        shape = self._plan.shape
        matrices = self._experts(tiles, scales, shape.expert_ffn)
        width = shape.experts_per_token * shape.expert_ffn
        experts, shares = mixture.choose_experts(scores[token : token + 1], shape.experts_per_token)
        inner = h.view(-1)[token * width : (token + 1) * width].view(-1, shape.expert_ffn)
        return shares[0] @ torch.einsum("erc,ec->er", matrices[experts[0]], inner)

    # In groups: what `choose_experts` is told is all that the others need. Of what a token's experts make,
    # the first place has the sum.

    def _choose_experts(
        self, count: Tensor, scores: Tensor, _tokens: int, _groups: Tensor, _shares: Tensor
    ) -> None:
        self._chosen = count, scores

    def _group_gate_up(
        self,
        _groups: Tensor,
        x: Tensor,
        gain: Tensor,
        tiles: Tensor,
        scales: Tensor,
        h: Tensor,
        epsilon: float,
    ) -> None:
        count, scores = self._chosen
        self._expert_gate_up(count, x, gain, scores, tiles, scales, h, epsilon)

    def _group_down(
        self, _groups: Tensor, h: Tensor, _shares: Tensor, tiles: Tensor, scales: Tensor, made: Tensor
    ) -> None:
        count, scores = self._chosen
        for token in range(int(count[0])):
            self._by_token(made)[token, 0] = self._mixed(token, h, scores, tiles, scales)

    def _sum_experts(self, count: Tensor, made: Tensor, x: Tensor) -> None:
        for token in range(int(count[0])):
            x[token] += self._by_token(made)[token, 0]

    def _by_token(self, made: Tensor) -> Tensor:
        return made.view(-1, self._plan.shape.experts_per_token, self._plan.shape.hidden)
