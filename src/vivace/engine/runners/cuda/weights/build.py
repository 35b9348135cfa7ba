"""Build the model that the kernels read from a checkpoint's matrices.

Owns which matrices are joined, their row order, which of them are in 4 bits (those of the layers), and the
order in which weights are asked for. Does not read files (`stream`).
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch  # type: ignore[import-not-found,unused-ignore]

from vivace.engine.runners.cuda.decode.down_cut import down_columns
from vivace.engine.runners.cuda.decode.launches import Layer, Model, rotation_table
from vivace.engine.runners.cuda.model.reference import StateDict
from vivace.engine.runners.cuda.model.shape import HEAD_DIM, Shape
from vivace.engine.runners.cuda.weights import oss
from vivace.engine.runners.cuda.weights.experts import Experts, expert_names, pack_experts
from vivace.engine.runners.cuda.weights.layout import Matrix, gate_up_pairs, pack, rotation_pairs, untile
from vivace.engine.runners.cuda.weights.pieces import Weights


class Dense(NamedTuple):
    """One layer in row order and bf16, for the matrix products of a prefill: what it keeps of it."""

    attention_gain: torch.Tensor
    qkv: torch.Tensor
    bias: torch.Tensor
    head_gain: torch.Tensor  # [2, 128]: of the heads of q, of those of k
    out: torch.Tensor
    ffn_gain: torch.Tensor
    gate_up: torch.Tensor  # none with experts: they stay packed; or 8-bit floats, as down
    down: torch.Tensor
    dense_bias: torch.Tensor  # in bf16
    out_bias: torch.Tensor | None = None  # gpt-oss's, in bf16
    units: tuple[float, float] = (1.0, 1.0)  # of gate and up, and of down, where they are 8-bit floats


Keep = Callable[[Dense], Dense]


def reading_order(shape: Shape) -> Iterator[str]:
    """Yield the names of all weights that there may be, in the order in which `build_model` asks for them."""
    inner = ("mlp.gate",) if shape.experts else ("mlp.gate_proj", "mlp.up_proj", "mlp.down_proj")
    layer = (
        *(f"self_attn.{n}_proj.weight" for n in "qkv"),
        *(f"self_attn.{n}_proj.bias" for n in "qkv"),
        *(f"self_attn.{n}_norm.weight" for n in "qk"),
        *("input_layernorm.weight", "self_attn.o_proj.weight", "post_attention_layernorm.weight"),
        *(f"{name}.weight" for name in inner),
    )
    yield "rope_freqs.weight"
    for index in range(shape.layers):
        yield from (f"layers.{index}.{name}" for name in (*layer, *(oss.LAYER_NAMES if shape.oss else ())))
        for gates, ups, downs in expert_names(shape, index):
            yield from (*gates, *ups, *downs)
    yield from ("embed_tokens.weight", "lm_head.weight", "norm.weight")


def dense_layer(weights: Weights, index: int, device: torch.device | str) -> Dense:
    at = f"layers.{index}."
    has_experts = f"{at}mlp.gate.weight" in weights or f"{at}mlp.router.weight" in weights
    has_out_bias = f"{at}self_attn.o_proj.bias" in weights  # gpt-oss has

    def take(*names: str) -> torch.Tensor:
        return weights.rows(*(at + name for name in names)).to(device)

    qkv = take(*(f"self_attn.{n}_proj.weight" for n in "qkv")).to(torch.bfloat16)
    has_bias = f"{at}self_attn.q_proj.bias" in weights  # Qwen2 has, Llama has not
    bias = take(*(f"self_attn.{n}_proj.bias" for n in "qkv")) if has_bias else qkv.new_zeros(len(qkv))
    has_norm = f"{at}self_attn.q_norm.weight" in weights  # Qwen3 has
    head_gain = (
        take(*(f"self_attn.{n}_norm.weight" for n in "qk")) if has_norm else qkv.new_ones(2 * HEAD_DIM)
    )
    return Dense(
        attention_gain=take("input_layernorm.weight").float(),
        qkv=qkv,
        bias=bias.float(),
        head_gain=head_gain.float().reshape(2, HEAD_DIM),
        out=take("self_attn.o_proj.weight").to(torch.bfloat16),
        ffn_gain=take("post_attention_layernorm.weight").float(),
        gate_up=qkv[:0] if has_experts else take("mlp.gate_proj.weight", "mlp.up_proj.weight").to(qkv.dtype),
        down=qkv[:0] if has_experts else take("mlp.down_proj.weight").to(qkv.dtype),
        dense_bias=bias.to(torch.bfloat16),
        out_bias=take("self_attn.o_proj.bias").to(torch.bfloat16) if has_out_bias else None,
    )


def pack_layer(shape: Shape, dense: Dense, bits: int, experts: Experts | None = None) -> Layer:
    order = rotation_pairs(shape.qkv_rows // shape.head_width, shape.head_width)
    counts = torch.tensor([shape.heads, 2 * shape.kv_heads], device=dense.head_gain.device)
    gains = dense.head_gain[:, : shape.head_width].repeat_interleave(
        counts, 0
    )  # v has k's: nobody reads them
    gains = gains.reshape(-1)
    return Layer(
        attention_gain=dense.attention_gain,
        qkv=pack(dense.qkv, bits, order),
        bias=dense.bias[order.to(dense.bias.device)].contiguous(),
        head_gain=gains[order.to(gains.device)].contiguous(),
        out=pack(dense.out, bits),
        ffn_gain=dense.ffn_gain,
        gate_up=experts.gate_up if experts else pack(dense.gate_up, bits, gate_up_pairs(shape.ffn)),
        down=experts.down if experts else pack(_padded(dense.down, down_columns(shape)), bits),
        router=experts.router if experts else None,
    )


def _padded(rows: torch.Tensor, columns: int) -> torch.Tensor:
    return torch.nn.functional.pad(rows, (0, columns - rows.shape[1]))


def rounded_layer(shape: Shape, dense: Dense, layer: Layer) -> Dense:
    """Return the dense layer with the packed layer's numbers: a prefill must multiply by the same."""

    def rows(matrix: Matrix, like: torch.Tensor, order: torch.Tensor | None = None) -> torch.Tensor:
        columns = down_columns(shape) if matrix is layer.down else like.shape[1]
        found = untile(matrix, columns)[:, : like.shape[1]].to(like.dtype)
        if order is None:
            return found
        return torch.empty_like(found).index_copy_(0, order.to(found.device), found)

    dense = dense._replace(
        qkv=rows(layer.qkv, dense.qkv, rotation_pairs(shape.qkv_rows // shape.head_width, shape.head_width)),
        out=rows(layer.out, dense.out),
    )
    if layer.router is not None:
        return dense
    return dense._replace(
        gate_up=rows(layer.gate_up, dense.gate_up, gate_up_pairs(shape.ffn)),
        down=rows(layer.down, dense.down),
    )


def build_model(
    shape: Shape,
    weights: Weights,
    bits: int,
    device: torch.device | str,
    positions: int,
    yarn_factor: float = 1.0,
    *,
    keep: Keep = lambda dense: dense,
) -> tuple[Model, list[Dense]]:
    """Return the packed model, and what a prefill keeps of its dense layers: it is asked for one by one."""
    layers, kept = [], []
    factors = weights.rows("rope_freqs.weight") if "rope_freqs.weight" in weights else None
    for index in range(shape.layers):  # one after the other: in 4 bits the dense weights are made anew
        dense = dense_layer(weights, index, device)
        layers.append(_pack(shape, weights, index, dense, bits, device))
        dense = rounded_layer(shape, dense, layers[-1]) if bits == 4 else dense
        kept.append(keep(dense))
    embedding = weights.rows("embed_tokens.weight").to(device).to(torch.bfloat16).contiguous()
    has_head = "lm_head.weight" in weights
    head = weights.rows("lm_head.weight").to(device).to(torch.bfloat16) if has_head else embedding
    model = Model(
        shape=shape,
        layers=layers,
        final_gain=weights.rows("norm.weight").to(device).float(),
        head=pack(head, max(bits, 8)),
        embedding=embedding,
        rotation=rotation_table(shape, positions, device, yarn_factor, factors),
    )
    return model, kept


def _pack(
    shape: Shape, weights: Weights, index: int, dense: Dense, bits: int, device: torch.device | str
) -> Layer:
    if shape.oss:
        own, more = oss.pack_oss(shape, weights, index, dense.out_bias, device)
        return pack_layer(shape, dense, bits, own)._replace(oss=more)
    experts = pack_experts(shape, weights, index, bits, device) if shape.experts else None
    return pack_layer(shape, dense, bits, experts)


def random_weights(shape: Shape, seed: int, device: torch.device | str = "cpu") -> StateDict:
    """Return random weights with the magnitudes of a real model, for timing and for tests."""
    if shape.oss:
        return oss.random_oss_weights(shape, seed, device)
    generator = torch.Generator(device=device).manual_seed(seed)

    def normal(*size: int, scale: float) -> torch.Tensor:
        return (torch.randn(size, generator=generator, device=device) * scale).to(torch.bfloat16)

    weights = StateDict({"embed_tokens.weight": normal(shape.vocab, shape.hidden, scale=0.5)})
    weights["norm.weight"] = normal(shape.hidden, scale=0.2) + 1
    if not shape.tied_head:
        weights["lm_head.weight"] = normal(shape.vocab, shape.hidden, scale=0.5)
    rows = {"q": shape.heads * HEAD_DIM, "k": shape.kv_heads * HEAD_DIM, "v": shape.kv_heads * HEAD_DIM}
    for index in range(shape.layers):
        at = f"layers.{index}."
        for name, size in rows.items():
            weights[f"{at}self_attn.{name}_proj.weight"] = normal(
                size, shape.hidden, scale=shape.hidden**-0.5
            )
            if shape.qkv_bias:
                weights[f"{at}self_attn.{name}_proj.bias"] = normal(size, scale=0.3)
        for name in "qk" if shape.qk_norm else "":
            weights[f"{at}self_attn.{name}_norm.weight"] = normal(HEAD_DIM, scale=0.2) + 1
        weights[at + "self_attn.o_proj.weight"] = normal(shape.hidden, rows["q"], scale=rows["q"] ** -0.5)
        ffn = shape.expert_ffn or shape.ffn
        if shape.experts:
            weights[at + "mlp.gate.weight"] = normal(
                shape.experts, shape.hidden, scale=2 * shape.hidden**-0.5
            )
        for network in range(shape.experts) if shape.experts else ("",):
            inner = f"{at}mlp.experts.{network}." if shape.experts else f"{at}mlp."
            for name in ("gate", "up"):
                weights[f"{inner}{name}_proj.weight"] = normal(ffn, shape.hidden, scale=shape.hidden**-0.5)
            weights[f"{inner}down_proj.weight"] = normal(shape.hidden, ffn, scale=ffn**-0.5)
        for name in ("input_layernorm", "post_attention_layernorm"):
            weights[f"{at}{name}.weight"] = normal(shape.hidden, scale=0.2) + 1
    return weights
