"""Build the model that the kernels read from a checkpoint's matrices.

Owns which matrices are joined, their row order, and which of them are in 4 bits (those of the layers). Does
not read files (`checkpoint`).
"""

from typing import NamedTuple

import torch  # type: ignore[import-not-found,unused-ignore]

from vivace.engine.runners.cuda.decode.launches import Layer, Model, rotation_table
from vivace.engine.runners.cuda.model.reference import StateDict
from vivace.engine.runners.cuda.model.shape import HEAD_DIM, Shape
from vivace.engine.runners.cuda.weights.layout import Matrix, gate_up_pairs, pack, rotation_pairs, untile


class Dense(NamedTuple):
    """One layer in row order and bf16, for the matrix products of a prefill."""

    attention_gain: torch.Tensor
    qkv: torch.Tensor
    bias: torch.Tensor
    out: torch.Tensor
    ffn_gain: torch.Tensor
    gate_up: torch.Tensor
    down: torch.Tensor
    dense_bias: torch.Tensor  # in bf16


def dense_layer(weights: StateDict, index: int, device: torch.device | str) -> Dense:
    at = f"layers.{index}."

    def take(*names: str) -> torch.Tensor:
        return torch.cat([weights[at + name].to(device) for name in names])

    qkv = take(*(f"self_attn.{n}_proj.weight" for n in "qkv")).to(torch.bfloat16)
    has_bias = f"{at}self_attn.q_proj.bias" in weights  # Qwen2 has, Llama has not
    bias = take(*(f"self_attn.{n}_proj.bias" for n in "qkv")) if has_bias else qkv.new_zeros(len(qkv))
    return Dense(
        attention_gain=take("input_layernorm.weight").float(),
        qkv=qkv,
        bias=bias.float(),
        out=take("self_attn.o_proj.weight").to(torch.bfloat16),
        ffn_gain=take("post_attention_layernorm.weight").float(),
        gate_up=take("mlp.gate_proj.weight", "mlp.up_proj.weight").to(torch.bfloat16),
        down=take("mlp.down_proj.weight").to(torch.bfloat16),
        dense_bias=bias.to(torch.bfloat16),
    )


def pack_layer(shape: Shape, dense: Dense, bits: int) -> Layer:
    order = rotation_pairs(shape.qkv_rows // HEAD_DIM)
    return Layer(
        attention_gain=dense.attention_gain,
        qkv=pack(dense.qkv, bits, order),
        bias=dense.bias[order.to(dense.bias.device)].contiguous(),
        out=pack(dense.out, bits),
        ffn_gain=dense.ffn_gain,
        gate_up=pack(dense.gate_up, bits, gate_up_pairs(shape.ffn)),
        down=pack(dense.down, bits),
    )


def rounded_layer(shape: Shape, dense: Dense, layer: Layer) -> Dense:
    """Return the dense layer with the packed layer's numbers: a prefill must multiply by the same."""

    def rows(matrix: Matrix, like: torch.Tensor, order: torch.Tensor | None = None) -> torch.Tensor:
        found = untile(matrix, like.shape[1]).to(like.dtype)
        if order is None:
            return found
        return torch.empty_like(found).index_copy_(0, order.to(found.device), found)

    return dense._replace(
        qkv=rows(layer.qkv, dense.qkv, rotation_pairs(shape.qkv_rows // HEAD_DIM)),
        out=rows(layer.out, dense.out),
        gate_up=rows(layer.gate_up, dense.gate_up, gate_up_pairs(shape.ffn)),
        down=rows(layer.down, dense.down),
    )


def build_model(
    shape: Shape,
    weights: StateDict,
    bits: int,
    device: torch.device | str,
    positions: int,
    yarn_factor: float = 1.0,
) -> tuple[Model, list[Dense]]:
    """Return the packed model, and its dense layers for the prefill."""
    layers, kept = [], []
    for index in range(shape.layers):  # one after the other: in 4 bits the dense weights are made anew
        dense = dense_layer(weights, index, device)
        layers.append(pack_layer(shape, dense, bits))
        kept.append(rounded_layer(shape, dense, layers[-1]) if bits == 4 else dense)
    embedding = weights["embed_tokens.weight"].to(device).to(torch.bfloat16).contiguous()
    head = weights.get("lm_head.weight", embedding).to(device).to(torch.bfloat16)
    model = Model(
        shape=shape,
        layers=layers,
        final_gain=weights["norm.weight"].to(device).float(),
        head=pack(head, max(bits, 8)),
        embedding=embedding,
        rotation=rotation_table(shape, positions, device, yarn_factor, weights.get("rope_freqs.weight")),
        dense_head=head,
    )
    return model, kept


def random_weights(shape: Shape, seed: int, device: torch.device | str = "cpu") -> StateDict:
    """Return random weights with the magnitudes of a real model, for timing and for tests."""
    generator = torch.Generator(device=device).manual_seed(seed)

    def normal(*size: int, scale: float) -> torch.Tensor:
        return (torch.randn(size, generator=generator, device=device) * scale).to(torch.bfloat16)

    weights = StateDict({"embed_tokens.weight": normal(shape.vocab, shape.hidden, scale=0.5)})
    weights["norm.weight"] = normal(shape.hidden, scale=0.2) + 1
    rows = {"q": shape.heads * HEAD_DIM, "k": shape.kv_heads * HEAD_DIM, "v": shape.kv_heads * HEAD_DIM}
    for index in range(shape.layers):
        at = f"layers.{index}."
        for name, size in rows.items():
            weights[f"{at}self_attn.{name}_proj.weight"] = normal(
                size, shape.hidden, scale=shape.hidden**-0.5
            )
            weights[f"{at}self_attn.{name}_proj.bias"] = normal(size, scale=0.3)
        weights[at + "self_attn.o_proj.weight"] = normal(shape.hidden, rows["q"], scale=rows["q"] ** -0.5)
        for name in ("gate", "up"):
            weights[f"{at}mlp.{name}_proj.weight"] = normal(shape.ffn, shape.hidden, scale=shape.hidden**-0.5)
        weights[at + "mlp.down_proj.weight"] = normal(shape.hidden, shape.ffn, scale=shape.ffn**-0.5)
        for name in ("input_layernorm", "post_attention_layernorm"):
            weights[f"{at}{name}.weight"] = normal(shape.hidden, scale=0.2) + 1
    return weights
