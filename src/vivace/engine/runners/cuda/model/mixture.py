"""A mixture of experts in plain torch and fp32: which experts a token has, and what they make of it.

Owns the choice and its ties: the lower number wins. Written for clarity: every faster path is compared with
it.
"""

from collections.abc import Mapping

import torch  # type: ignore[import-not-found,unused-ignore]


def choose_experts(scores: torch.Tensor, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the best `count` experts of each token, the best first, and their shares, which add up to 1.

    The shares are the softmax over the chosen scores: the same as a softmax over all scores that is divided
    by the sum of the chosen ones.
    """
    best = scores.sort(dim=-1, descending=True, stable=True)
    return best.indices[:, :count], best.values[:, :count].softmax(-1)


def mix_experts(weights: Mapping[str, torch.Tensor], at: str, y: torch.Tensor, count: int) -> torch.Tensor:
    """Return what the experts make of y [tokens, hidden]; `at` is where their names begin."""
    experts, shares = choose_experts(y @ weights[at + "gate.weight"].float().T, count)
    out = torch.zeros_like(y)
    for token in range(len(y)):
        for expert, share in zip(experts[token].tolist(), shares[token], strict=True):
            gate, up, down = (
                weights[f"{at}experts.{expert}.{name}_proj.weight"].float() for name in ("gate", "up", "down")
            )
            inner = torch.nn.functional.silu(gate @ y[token]) * (up @ y[token])
            out[token] += share * (down @ inner)
    return out
