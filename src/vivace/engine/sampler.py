"""Which token comes next: greedy, or drawn with a key of (seed, position).

The key makes a draw repeatable: the same seed at the same place in the log gives the same token, also
after the engine died and the turn was resubmitted. Owns no state.
"""

import numpy as np
from numpy.typing import NDArray

Row = NDArray[np.float32]  # [vocab]


def sample(logits: Row, *, temperature: float, top_p: float, seed: int, position: int) -> int:
    if temperature <= 0.0:
        return int(logits.argmax())
    scaled = logits.astype(np.float64) / temperature
    weights = np.exp(scaled - scaled.max())
    weights /= weights.sum()
    order = np.argsort(-weights, kind="stable")
    kept = int(np.searchsorted(np.cumsum(weights[order]), top_p)) + 1
    order = order[:kept]
    cumulative = np.cumsum(weights[order])
    draw = np.random.default_rng((seed, position)).random() * cumulative[-1]
    return int(order[int(np.searchsorted(cumulative, draw, side="right").clip(0, len(order) - 1))])


def log_probability(logits: Row, token: int) -> float:
    """Natural logarithm of the probability of `token`."""
    peak = float(logits.max())
    return float(logits[token]) - peak - float(np.log(np.exp(logits - peak).sum(dtype=np.float64)))
