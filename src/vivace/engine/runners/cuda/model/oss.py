"""gpt-oss in plain torch and fp32: numbers in MXFP4, and what its experts make of a token.

Owns both, written for clarity: every faster path is compared with it. The rest of a layer is `reference`'s.
"""

from collections.abc import Mapping

import torch  # type: ignore[import-not-found,unused-ignore]

from vivace.engine.runners.cuda.model.mixture import choose_experts
from vivace.engine.runners.cuda.model.shape import GptOss

GROUP = 32  # neighbours of a row that share a scale
NUMBERS = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)  # of 4 bits; with the highest bit they are below 0


def widen_mxfp4(blocks: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    """Return blocks [… , groups, 16], two neighbours a byte, and scales [… , groups] as rows of fp32."""
    numbers = torch.tensor(NUMBERS + tuple(-each for each in NUMBERS), device=blocks.device)
    pairs = torch.stack([blocks & 15, blocks >> 4], dim=-1).flatten(-2)
    return torch.ldexp(numbers[pairs.long()], scales[..., None].int() - 127).flatten(-2)


def clamped_swiglu(gate: torch.Tensor, up: torch.Tensor, oss: GptOss) -> torch.Tensor:
    gate, up = gate.clamp(max=oss.limit), up.clamp(-oss.limit, oss.limit)
    return (up + 1) * gate * torch.sigmoid(oss.slope * gate)


def mix_oss_experts(
    weights: Mapping[str, torch.Tensor], at: str, y: torch.Tensor, count: int, oss: GptOss
) -> torch.Tensor:
    """Return what the experts make of y [tokens, hidden]; `at` is where their names begin."""
    scores = y @ weights[at + "router.weight"].float().T + weights[at + "router.bias"].float()
    experts, shares = choose_experts(scores, count)
    out = torch.zeros_like(y)
    for expert in sorted(set(experts.flatten().tolist())):
        gate_up, down = (
            widen_mxfp4(
                weights[f"{at}experts.{name}_blocks"][expert], weights[f"{at}experts.{name}_scales"][expert]
            )
            for name in ("gate_up_proj", "down_proj")
        )
        up_bias, down_bias = (
            weights[f"{at}experts.{name}_bias"][expert].float() for name in ("gate_up_proj", "down_proj")
        )
        tokens, which = torch.where(experts == expert)
        both = y[tokens] @ gate_up.T + up_bias
        inner = clamped_swiglu(both[:, ::2], both[:, 1::2], oss)  # rows of gate and up take turns
        out[tokens] += shares[tokens, which, None] * (inner @ down.T + down_bias)
    return out
