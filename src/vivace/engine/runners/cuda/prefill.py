"""Many tokens at once: a chunk of a prompt through torch's matrix products and its fused attention.

Owns the dense forward pass of one chunk. It asks between layers whether to go on, so that an interrupt
waits for one layer and not for the chunk; what a given-up chunk wrote lies behind the sequence's end and
is never read.
"""

from collections.abc import Sequence

import torch  # type: ignore[import-not-found,unused-ignore]
from torch.nn import functional  # type: ignore[import-not-found,unused-ignore]

from vivace.engine.runners.base import ShouldStop, Stopped
from vivace.engine.runners.cuda.chain import Launch, Model
from vivace.engine.runners.cuda.graphs import Machine
from vivace.engine.runners.cuda.plan import Size
from vivace.engine.runners.cuda.shape import HEAD_DIM, Shape
from vivace.engine.runners.cuda.weights import Dense

LAYERS_BETWEEN_QUESTIONS = 4


class Prefill:
    def __init__(
        self, model: Model, dense: list[Dense], head: torch.Tensor, kv: torch.Tensor, machine: Machine
    ) -> None:
        self._model, self._dense, self._head, self._kv, self._machine = model, dense, head, kv, machine

    def run(
        self,
        tokens: Sequence[int],
        start: int,
        pages: torch.Tensor,
        want: int,
        should_stop: ShouldStop | None,
    ) -> torch.Tensor:
        """Put a chunk into the pages of its sequence; logits [want, vocab] of its last tokens."""
        model, shape = self._model, self._model.shape
        x = model.embedding[torch.tensor(tokens, device=pages.device)].float()
        for index, layer in enumerate(self._dense):
            if should_stop and index % LAYERS_BETWEEN_QUESTIONS == 0:
                self._ask(should_stop)
            self._decoder_layer(layer, x, self._kv[index], pages, start)
        if not want:
            return x.new_empty(0, shape.vocab)
        y = functional.rms_norm(x[-want:], (shape.hidden,), model.final_gain, shape.norm_epsilon)
        return (y.to(torch.bfloat16) @ self._head.T).float()

    def _ask(self, should_stop: ShouldStop) -> None:
        if self._kv.is_cuda:
            torch.cuda.current_stream().synchronize()  # the host must not run ahead of its question
        if should_stop():
            raise Stopped

    def _decoder_layer(
        self, layer: Dense, x: torch.Tensor, kv: torch.Tensor, pages: torch.Tensor, start: int
    ) -> None:
        """x [tokens, hidden] in fp32, changed in place; the rest in bf16."""
        shape, count = self._model.shape, len(x)
        y = functional.rms_norm(x, (shape.hidden,), layer.attention_gain, shape.norm_epsilon).to(
            torch.bfloat16
        )
        rows = functional.linear(y, layer.qkv, layer.dense_bias)
        q = torch.empty(count, shape.heads, HEAD_DIM, dtype=torch.bfloat16, device=x.device)
        size = Size((count, 1, 1), 256, 1, 0)
        self._machine.run(
            Launch("place", size, (rows, self._model.rotation, pages, start, q, kv), overlaps=False)
        )
        mixed = _attend(shape, q, kv.index_select(0, pages), start + count)
        x += functional.linear(mixed, layer.out)
        y = functional.rms_norm(x, (shape.hidden,), layer.ffn_gain, shape.norm_epsilon).to(torch.bfloat16)
        gate, up = functional.linear(y, layer.gate_up).chunk(2, dim=1)
        x += functional.linear(functional.silu(gate).mul_(up), layer.down)


def _attend(shape: Shape, q: torch.Tensor, held: torch.Tensor, length: int) -> torch.Tensor:
    """q [tokens, heads, 128]; held [pages, 2, kv_heads, 64, 128] → [tokens, heads * 128]"""
    count = len(q)
    k, v = held.permute(1, 2, 0, 3, 4).reshape(2, 1, shape.kv_heads, -1, HEAD_DIM)[..., :length, :]
    q = q.transpose(0, 1)[None]
    if q.is_cuda:  # the flash kernel itself: causal from the end of the context, key heads shared as they are
        flash = torch.ops.aten._scaled_dot_product_flash_attention
        mixed = flash(q, k, v, 0.0, True)[0]
    else:
        seen = torch.ones(count, length, dtype=torch.bool).tril(length - count)
        mixed = functional.scaled_dot_product_attention(q, k, v, attn_mask=seen, enable_gqa=True)
    out: torch.Tensor = mixed[0].transpose(0, 1).reshape(count, -1)
    return out
