"""gpt-oss's weights under the names that the hub has for them."""

import torch  # type: ignore[import-not-found,unused-ignore]

from vivace.engine.runners.cuda.model.oss import GROUP
from vivace.engine.runners.cuda.model.reference import StateDict
from vivace.engine.runners.cuda.model.shape import Shape


def random_oss_weights(shape: Shape, seed: int, device: torch.device | str = "cpu") -> StateDict:
    """Return random weights with the magnitudes of a real model, for timing and for tests."""
    generator = torch.Generator(device=device).manual_seed(seed)

    def normal(*size: int, scale: float) -> torch.Tensor:
        return (torch.randn(size, generator=generator, device=device) * scale).to(torch.bfloat16)

    def byte(*size: int, low: int, high: int) -> torch.Tensor:
        return torch.randint(low, high, size, generator=generator, device=device, dtype=torch.uint8)

    def mxfp4(name: str, rows: int, columns: int) -> dict[str, torch.Tensor]:
        # A number is 2.6 on average (its square 7.4): with scales around 2^-n rows are about 1 long.
        middle = 127 - round(torch.tensor(2.7 * columns**0.5).log2().item())
        return {
            f"{name}_blocks": byte(shape.experts, rows, columns // GROUP, 16, low=0, high=256),
            f"{name}_scales": byte(shape.experts, rows, columns // GROUP, low=middle - 1, high=middle + 2),
            f"{name}_bias": normal(shape.experts, rows, scale=0.3),
        }

    hidden, ffn, width = shape.hidden, shape.expert_ffn, shape.head_width
    rows = {"q": shape.heads * width, "k": shape.kv_heads * width, "v": shape.kv_heads * width}
    weights = StateDict({"embed_tokens.weight": normal(shape.vocab, hidden, scale=0.5)})
    weights["norm.weight"] = normal(hidden, scale=0.2) + 1
    weights["lm_head.weight"] = normal(shape.vocab, hidden, scale=0.5)
    for index in range(shape.layers):
        at = f"layers.{index}."
        for name, size in rows.items():
            weights[f"{at}self_attn.{name}_proj.weight"] = normal(size, hidden, scale=hidden**-0.5)
            weights[f"{at}self_attn.{name}_proj.bias"] = normal(size, scale=0.3)
        weights[at + "self_attn.o_proj.weight"] = normal(hidden, rows["q"], scale=rows["q"] ** -0.5)
        weights[at + "self_attn.o_proj.bias"] = normal(hidden, scale=0.3)
        weights[at + "self_attn.sinks"] = normal(shape.heads, scale=2.0)
        weights[at + "mlp.router.weight"] = normal(shape.experts, hidden, scale=2 * hidden**-0.5)
        weights[at + "mlp.router.bias"] = normal(shape.experts, scale=0.3)
        weights |= mxfp4(at + "mlp.experts.gate_up_proj", 2 * ffn, hidden)
        weights |= mxfp4(at + "mlp.experts.down_proj", hidden, ffn)
        for name in ("input_layernorm", "post_attention_layernorm"):
            weights[f"{at}{name}.weight"] = normal(hidden, scale=0.2) + 1
    return weights
