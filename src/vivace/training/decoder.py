"""A dense decoder in torch that an adapter can be trained beside: rows of tokens in, hidden states out.

Owns the forward pass with and without an adapter, on any device and in any dtype, and its KV for decoding.
The weights never change. Held against `runners.cuda.model.reference` by a test. Does not own the loss.
"""

from dataclasses import dataclass
from pathlib import Path

import torch  # type: ignore[import-not-found,unused-ignore]
from torch.nn import functional as F  # type: ignore[import-not-found,unused-ignore]

from vivace.engine.runners.cuda.decode.launches import rotation_table
from vivace.engine.runners.cuda.model.reference import StateDict
from vivace.engine.runners.cuda.model.shape import Shape
from vivace.engine.runners.cuda.weights.checkpoint import read_checkpoint
from vivace.errors import StartError
from vivace.training.adapter import Adapter


@dataclass(frozen=True)
class Cache:
    """Keys and values [layers, 2, rows, kv_heads, width, head width] of rows that are being written."""

    held: torch.Tensor

    def put(self, layer: int, at: int, k: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Store k and v [rows, kv_heads, new, head width] at `at`; return all up to their end."""
        end = at + k.shape[2]
        self.held[layer, 0, :, :, at:end] = k
        self.held[layer, 1, :, :, at:end] = v
        return self.held[layer, 0, :, :, :end], self.held[layer, 1, :, :, :end]


class Decoder:
    """The model's weights on one device. `adapter` is an argument of each pass: nothing is switched."""

    def __init__(
        self, shape: Shape, weights: StateDict, device: torch.device | str, dtype: torch.dtype
    ) -> None:
        if not shape.is_dense or shape.oss:
            raise StartError("Only dense models can be trained.", "Choose qwen2.5-coder-1.5b.")
        self.shape, self.device, self.dtype = shape, torch.device(device), dtype
        self.weights = StateDict({name: each.to(device, dtype) for name, each in weights.items()})
        self._head = self.weights.get("lm_head.weight", self.weights["embed_tokens.weight"])
        self._rotation = rotation_table(shape, shape.trained_tokens, device)[:, : shape.head_width // 2]

    def hidden(
        self,
        tokens: torch.Tensor,
        positions: torch.Tensor,
        mask: torch.Tensor,
        adapter: Adapter | None = None,
        cache: Cache | None = None,
        at: int = 0,
    ) -> torch.Tensor:
        """Return the last layer's normed states of tokens [rows, width]; mask [rows, 1, width, seen].

        With a cache, the tokens stand at `at` in it and attend to what it holds before them too.
        """
        x = F.embedding(tokens, self.weights["embed_tokens.weight"])
        turn = self._rotation[positions][:, None].to(self.dtype)  # [rows, 1, width, half, 2]
        for layer in range(self.shape.layers):
            x = x + self._attention(layer, x, turn, mask, adapter, cache, at)
            x = x + self._feed_forward(layer, x, adapter)
        return self._norm(x, "norm.weight")

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        return F.linear(hidden, self._head)

    def new_cache(self, rows: int, width: int) -> Cache:
        shape = self.shape
        size = (shape.layers, 2, rows, shape.kv_heads, width, shape.head_width)
        return Cache(torch.zeros(size, dtype=self.dtype, device=self.device))

    def _attention(
        self,
        layer: int,
        x: torch.Tensor,
        turn: torch.Tensor,
        mask: torch.Tensor,
        adapter: Adapter | None,
        cache: Cache | None,
        at: int,
    ) -> torch.Tensor:
        shape, name = self.shape, f"layers.{layer}.self_attn"
        rows, width, _ = x.shape
        y = self._norm(x, f"layers.{layer}.input_layernorm.weight")
        q, k, v = (
            self._project(f"{name}.{each}_proj", y, adapter)
            .view(rows, width, -1, shape.head_width)
            .transpose(1, 2)
            for each in "qkv"
        )
        if shape.qk_norm:
            q, k = self._norm(q, f"{name}.q_norm.weight"), self._norm(k, f"{name}.k_norm.weight")
        q, k = _rotated(q, turn), _rotated(k, turn)
        if cache is not None:
            k, v = cache.put(layer, at, k, v)
        group = shape.heads // shape.kv_heads
        if width == 1:  # heads of one group stand where positions do: their keys are read once
            q = q.reshape(rows, shape.kv_heads, group, shape.head_width)
            mask = mask.expand(-1, -1, group, -1)
        else:
            k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
        mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=shape.score_scale)
        if width == 1:
            mixed = mixed.reshape(rows, shape.heads, 1, shape.head_width)
        return self._project(f"{name}.o_proj", mixed.transpose(1, 2).reshape(rows, width, -1), adapter)

    def _feed_forward(self, layer: int, x: torch.Tensor, adapter: Adapter | None) -> torch.Tensor:
        name = f"layers.{layer}.mlp"
        y = self._norm(x, f"layers.{layer}.post_attention_layernorm.weight")
        gate, up = (self._project(f"{name}.{each}_proj", y, adapter) for each in ("gate", "up"))
        return self._project(f"{name}.down_proj", F.silu(gate) * up, adapter)

    def _project(self, name: str, x: torch.Tensor, adapter: Adapter | None) -> torch.Tensor:
        out = F.linear(x, self.weights[f"{name}.weight"], self.weights.get(f"{name}.bias"))
        if adapter is None:
            return out
        a, b = adapter.pairs[name]
        return out + F.linear(F.linear(x, a.to(self.dtype)), (b * adapter.scale).to(self.dtype))

    def _norm(self, x: torch.Tensor, name: str) -> torch.Tensor:
        return F.rms_norm(x, (x.shape[-1],), self.weights[name], self.shape.norm_epsilon)


def open_decoder(model: Path, device: str) -> Decoder:
    """Read a GGUF file or a folder; its weights become bf16 on a GPU, fp32 elsewhere."""
    shape, weights = read_checkpoint(model)
    return Decoder(shape, weights, device, torch.bfloat16 if device.startswith("cuda") else torch.float32)


def _rotated(x: torch.Tensor, turn: torch.Tensor) -> torch.Tensor:
    """Rotate x [rows, heads, width, head width]: dimension i with dimension i + half."""
    low, high = x.chunk(2, dim=-1)
    cosine, sine = turn[..., 0], turn[..., 1]
    return torch.cat([low * cosine - high * sine, high * cosine + low * sine], dim=-1)
