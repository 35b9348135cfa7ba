"""The decoder in plain torch and fp32: the reference that every faster path is compared with.

Owns no layout and no KV cache. Written for clarity, not for speed.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch  # type: ignore[import-not-found,unused-ignore]

from vivace.engine.runners.cuda.decode.launches import COUNT, POSITION
from vivace.engine.runners.cuda.model.mixture import mix_experts
from vivace.engine.runners.cuda.model.oss import mix_oss_experts
from vivace.engine.runners.cuda.model.shape import HEAD_DIM, PAGE_TOKENS, Shape

RoundKV = Callable[
    [torch.Tensor], torch.Tensor
]  # keys or values [tokens, kv_heads, 128] → as the KV has them


def unrounded(rows: torch.Tensor) -> torch.Tensor:
    return rows


def norm(x: torch.Tensor, gain: torch.Tensor, epsilon: float) -> torch.Tensor:
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + epsilon) * gain


def rotate(x: torch.Tensor, table: torch.Tensor) -> torch.Tensor:
    """Rotate x [tokens, heads, 128] by table [tokens, 64, 2]: dimension i with dimension i + 64.

    Of heads that are 64 wide, dimension i with i + 32, by the first 32 of the table.
    """
    low, high = x.chunk(2, dim=-1)
    cosine, sine = (table[:, None, : low.shape[-1], which] for which in (0, 1))
    return torch.cat([low * cosine - high * sine, high * cosine + low * sine], dim=-1)


class View(NamedTuple):
    """What a layer's attention is besides its keys: the scores' scale, a window, a sink for each head.

    A sink is a score that takes its share of the softmax and has no value.
    """

    scale: float = HEAD_DIM**-0.5
    window: int = 0  # positions that are seen, the token's own among them; 0: all
    sinks: torch.Tensor | None = None  # [heads]


ALL = View()


def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, start: int, view: View = ALL) -> torch.Tensor:
    """Attend from q [tokens, heads, 128] at `start` on to k, v [start + tokens, kv_heads, 128]."""
    tokens, heads, _ = q.shape
    group = heads // k.shape[1]
    k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    scores = torch.einsum("thd,shd->hts", q, k) * view.scale
    behind = (start + torch.arange(tokens, device=q.device))[:, None] - torch.arange(len(k), device=q.device)
    seen = (behind >= 0) & (behind < (view.window or len(k)))
    scores = scores.masked_fill(~seen, -torch.inf)
    if view.sinks is None:
        return torch.einsum("hts,shd->thd", scores.softmax(-1), v)
    sinks = view.sinks.float()[:, None, None].expand(-1, tokens, 1)
    return torch.einsum("hts,shd->thd", torch.cat([scores, sinks], -1).softmax(-1)[..., :-1], v)


def in_rows(heads: torch.Tensor) -> torch.Tensor:
    """Return heads in rows of 128, as q meets the KV: zeros behind each half of a narrower one."""
    half = heads.shape[-1] // 2
    halves = heads.reshape(*heads.shape[:-1], 2, half)
    return torch.nn.functional.pad(halves, (0, HEAD_DIM // 2 - half)).flatten(-2)


def out_of_rows(rows: torch.Tensor, width: int) -> torch.Tensor:
    """Return heads of that width without the zeros."""
    halves = rows.reshape(*rows.shape[:-1], 2, HEAD_DIM // 2)
    return halves[..., : width // 2].flatten(-2)


def attend_pages(
    state: torch.Tensor,
    q: torch.Tensor,
    kv: torch.Tensor,
    pages: torch.Tensor,
    mixed: torch.Tensor,
    view: View = ALL,
) -> None:
    """Compute a chunk's attention as `ChunkAttention` does, for machines without a GPU."""
    start, count = int(state[POSITION]), int(state[COUNT])
    length, kv_heads = start + count, kv.shape[2]
    held = kv[pages[: -(-length // PAGE_TOKENS)].long()].float()
    k, v = held.permute(1, 0, 3, 2, 4).reshape(2, -1, kv_heads, HEAD_DIM)[:, :length]
    answers = out_of_rows(attend(in_rows(q[:count].float()), k, v, start, view), q.shape[-1])
    mixed[:count] = answers.reshape(count, -1).to(mixed.dtype)


class StateDict(dict[str, torch.Tensor]):
    """Weights by their Hugging Face names, without the `model.` in front."""

    def rows(self, *names: str) -> torch.Tensor:
        """Return these weights below each other."""
        return torch.cat([self[name] for name in names])


def forward(
    shape: Shape, weights: StateDict, tokens: torch.Tensor, rotation: torch.Tensor, keep: RoundKV = unrounded
) -> torch.Tensor:
    """Return logits [tokens, vocab] of a whole sequence from position 0."""
    x = weights["embed_tokens.weight"][tokens].float()
    for index in range(shape.layers):
        x = decoder_layer(shape, weights, index, x, rotation[: len(tokens)], keep)
    x = norm(x, weights["norm.weight"], shape.norm_epsilon)
    return x @ weights.get("lm_head.weight", weights["embed_tokens.weight"]).float().T


def decoder_layer(
    shape: Shape,
    weights: StateDict,
    index: int,
    x: torch.Tensor,
    table: torch.Tensor,
    keep: RoundKV = unrounded,
) -> torch.Tensor:
    at = f"layers.{index}."
    view = View(shape.score_scale, shape.window_of(index), weights.get(at + "self_attn.sinks"))

    def project(name: str, y: torch.Tensor) -> torch.Tensor:
        out = y @ weights[f"{at}{name}.weight"].float().T
        return out + weights[f"{at}{name}.bias"] if f"{at}{name}.bias" in weights else out

    y = norm(x, weights[at + "input_layernorm.weight"], shape.norm_epsilon)
    q, k, v = (project(f"self_attn.{n}_proj", y).reshape(len(x), -1, shape.head_width) for n in "qkv")
    if shape.qk_norm:
        q, k = (
            norm(each, weights[f"{at}self_attn.{n}_norm.weight"].float(), shape.norm_epsilon)
            for n, each in (("q", q), ("k", k))
        )
    attention = attend(rotate(q, table), keep(rotate(k, table)), keep(v), 0, view)
    x = x + project("self_attn.o_proj", attention.reshape(len(x), -1))
    y = norm(x, weights[at + "post_attention_layernorm.weight"], shape.norm_epsilon)
    if shape.oss:
        return x + mix_oss_experts(weights, at + "mlp.", y, shape.experts_per_token, shape.oss)
    if shape.experts:
        return x + mix_experts(weights, at + "mlp.", y, shape.experts_per_token)
    inner = torch.nn.functional.silu(project("mlp.gate_proj", y)) * project("mlp.up_proj", y)
    return x + project("mlp.down_proj", inner)
