"""Loss on held-out examples: by project, and how far an adapter is from the base there.

Owns the averages. One number for all tokens would be that of the largest project, so each has its own.
"""

import random
from collections import defaultdict

import torch  # type: ignore[import-not-found,unused-ignore]

from vivace.training.adapter import Adapter
from vivace.training.decoder import Decoder
from vivace.training.examples import Examples
from vivace.training.loss import measure
from vivace.training.packing import collate, pack

ROWS_AT_ONCE = 4


def held_out_loss(
    decoder: Decoder,
    adapter: Adapter | None,
    examples: Examples,
    row_tokens: int = 4096,
    *,
    against_base: bool = False,
) -> dict[str, dict[str, float]]:
    """Return nats and KL a token for each group, and for `all`."""
    rounded = adapter.rounded(decoder.dtype) if adapter else None
    lengths = [len(row) for row in examples.rows]
    rows = pack(lengths, row_tokens - len(examples.prefix), random.Random(0))
    sums: defaultdict[str, list[float]] = defaultdict(lambda: [0.0, 0.0, 0.0])
    for start in range(0, len(rows), ROWS_AT_ONCE):
        batch = collate(examples.prefix, examples.rows, rows[start : start + ROWS_AT_ONCE])
        nats, kl = measure(decoder, rounded, batch.to(decoder.device), against_base)
        found = torch.stack([nats, kl]).double().cpu()
        for index in sorted(set(batch.owners.tolist())):
            own = found[:, batch.owners == index]
            group = examples.rows[index].group
            for name in (group, "all"):
                for at, each in enumerate((*own.sum(1).tolist(), own.shape[1])):
                    sums[name][at] += each
    return {
        name: {"nats": nats / count, "kl": kl / count, "tokens": count}
        for name, (nats, kl, count) in sorted(sums.items())
    }
