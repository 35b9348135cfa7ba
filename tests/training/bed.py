"""A decoder of two narrow layers with random weights, and examples that it can learn."""

import random

import torch  # type: ignore[import-not-found,unused-ignore]

from vivace.engine.runners.cuda.model.reference import StateDict
from vivace.engine.runners.cuda.model.shape import Shape
from vivace.training.decoder import Decoder
from vivace.training.examples import Example, Examples

SHAPE = Shape(2, 32, 64, 4, 2, 64, 512, head_width=8)
END = 1


def tiny_weights(shape: Shape = SHAPE, seed: int = 0) -> StateDict:
    chance = torch.Generator().manual_seed(seed)

    def matrix(*size: int) -> torch.Tensor:
        return torch.randn(*size, generator=chance) * 0.15

    weights = StateDict(
        {
            "embed_tokens.weight": matrix(shape.vocab, shape.hidden) * 4,
            "norm.weight": 1 + matrix(shape.hidden),
        }
    )
    for layer in range(shape.layers):
        at = f"layers.{layer}."
        sizes = {
            "self_attn.q_proj": (shape.attention_width, shape.hidden),
            "self_attn.k_proj": (shape.kv_heads * shape.head_width, shape.hidden),
            "self_attn.v_proj": (shape.kv_heads * shape.head_width, shape.hidden),
            "self_attn.o_proj": (shape.hidden, shape.attention_width),
            "mlp.gate_proj": (shape.ffn, shape.hidden),
            "mlp.up_proj": (shape.ffn, shape.hidden),
            "mlp.down_proj": (shape.hidden, shape.ffn),
        }
        for name, size in sizes.items():
            weights[f"{at}{name}.weight"] = matrix(*size)
            if name[-6:] in ("q_proj", "k_proj", "v_proj"):
                weights[f"{at}{name}.bias"] = matrix(size[0])
        for name in ("input_layernorm", "post_attention_layernorm"):
            weights[f"{at}{name}.weight"] = 1 + matrix(shape.hidden)
    return weights


def tiny_decoder() -> Decoder:
    return Decoder(SHAPE, tiny_weights(), "cpu", torch.float32)


def repeating(count: int, seed: int = 3) -> Examples:
    """Return examples whose answer is the prompt's last token, told in two other ways, and the end."""
    chance = random.Random(seed)
    rows = []
    for number in range(count):
        prompt = tuple(chance.randrange(8, 24) for _ in range(chance.randrange(2, 7)))
        answer = (prompt[-1] + 24, prompt[-1] + 40, END)
        rows.append(Example(prompt, answer, f"example {number}", f"project {number % 2}", "commit"))
    return Examples((2, 3, 4, 5), tuple(rows))
