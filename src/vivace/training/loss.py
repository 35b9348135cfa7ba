"""The loss of answers: cross-entropy, and how far the adapted model is from the base on the same tokens.

Owns the way through the head in pieces, so that logits of 150k tokens never lie in memory all at once. The KL
term is KL(base ‖ adapted): what the base thinks likely must stay likely, which is what keeps it from
forgetting. Does not own the step.
"""

from typing import NamedTuple

import torch  # type: ignore[import-not-found,unused-ignore]
from torch.nn import functional as F  # type: ignore[import-not-found,unused-ignore]

from vivace.training.adapter import Adapter
from vivace.training.decoder import Decoder
from vivace.training.packing import Batch, attention_mask

PIECE = 2048  # targets whose logits live at once


class Losses(NamedTuple):
    """Sums over targets."""

    nats: torch.Tensor
    kl: torch.Tensor


def backward(
    decoder: Decoder,
    adapter: Adapter,
    batch: Batch,
    kl_weight: float,
    targets: int,
    copied_weight: float = 1.0,
    weight: float = 0.0,
) -> Losses:
    """Add the gradient of weighted nats / weight + kl_weight × kl / targets to the adapter; return both sums.

    A target that repeats the old text counts `copied_weight`, others 1. `weight`: the sum over all targets of
    the step; as many as targets unless told. The sum of nats that is returned is not weighted.
    """
    weights = torch.where(batch.changed, 1.0, copied_weight)
    mask = attention_mask(batch.segments)
    base = None
    if kl_weight:
        with torch.no_grad():
            base = _at_places(decoder.hidden(batch.tokens, batch.positions, mask), batch)
    states = _at_places(decoder.hidden(batch.tokens, batch.positions, mask, adapter), batch)
    leaf = states.detach().requires_grad_()
    nats, kl = torch.zeros((), device=decoder.device), torch.zeros((), device=decoder.device)
    for start in range(0, len(batch.targets), PIECE):
        part = slice(start, start + PIECE)
        logs = F.log_softmax(decoder.logits(leaf[part]).float(), dim=-1)
        each = F.nll_loss(logs, batch.targets[part], reduction="none")
        nats += each.detach().sum()
        loss = (each * weights[part]).sum() / (weight or targets)
        if base is not None:
            distance = _kl(decoder, base[part], logs)
            kl += distance.detach()
            loss = loss + kl_weight * distance / targets
        torch.autograd.backward(loss)
    assert leaf.grad is not None
    torch.autograd.backward(states, leaf.grad)
    return Losses(nats, kl)


@torch.no_grad()
def measure(
    decoder: Decoder, adapter: Adapter | None, batch: Batch, against_base: bool = False
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return nats of each target, and its KL to the base (zeros unless asked for)."""
    mask = attention_mask(batch.segments)
    states = _at_places(decoder.hidden(batch.tokens, batch.positions, mask, adapter), batch)
    has_kl = against_base and adapter is not None
    base = _at_places(decoder.hidden(batch.tokens, batch.positions, mask), batch) if has_kl else None
    nats, kl = torch.zeros_like(batch.targets, dtype=torch.float32), torch.zeros(len(batch.targets))
    kl = kl.to(nats.device)
    for start in range(0, len(batch.targets), PIECE):
        part = slice(start, start + PIECE)
        logs = F.log_softmax(decoder.logits(states[part]).float(), dim=-1)
        nats[part] = F.nll_loss(logs, batch.targets[part], reduction="none")
        if base is not None:
            base_logs = F.log_softmax(decoder.logits(base[part]).float(), dim=-1)
            kl[part] = (base_logs.exp() * (base_logs - logs)).sum(-1)
    return nats, kl


def _kl(decoder: Decoder, base: torch.Tensor, logs: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        base_logs = F.log_softmax(decoder.logits(base).float(), dim=-1)
    return F.kl_div(logs, base_logs, reduction="sum", log_target=True)


def _at_places(hidden: torch.Tensor, batch: Batch) -> torch.Tensor:
    return hidden[batch.places[:, 0], batch.places[:, 1]]
