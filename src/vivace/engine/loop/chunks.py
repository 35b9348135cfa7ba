"""How many tokens a pass may have, by what passes cost.

Owns these limits. Does not own which of them holds for a turn (`stepper`, `rows`).
"""

from vivace.engine.runners.base import ModelInfo
from vivace.engine.speculation.costs import StepCosts

CHUNKS = (1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096)  # tokens that a prefill chunk may have
CHUNK_MS = 100.0  # a prefill chunk takes no longer …
MIN_CHUNK_TOKENS = 64  # … unless the runner can be stopped in its middle: then no smaller than efficient,
LONGEST_CHUNK_MS = 1000.0  # and as large as was measured best up to this: other realtime turns wait for it
BESIDE_MS = 6.0  # a prefill chunk takes no longer while other turns decode rows of one pass
CONTENDED_STEPS = 1.5  # what a pass may cost, in decode steps, while a realtime turn waits for it


def chunk_tokens(costs: StepCosts, best: int, info: ModelInfo) -> int:
    """Return the largest prefill chunk within CHUNK_MS. A runner that can be stopped may have its best."""
    sizes = [size for size in CHUNKS if size <= info.pass_tokens]
    chunk = _largest_chunk(costs, info, CHUNK_MS)
    if not info.can_stop:
        return chunk
    best = max((size for size in sizes if size <= best and costs.ms(size) <= LONGEST_CHUNK_MS), default=1)
    return max(chunk, best, MIN_CHUNK_TOKENS)


def chunk_tokens_beside(costs: StepCosts, info: ModelInfo) -> int:
    """Return the largest prefill chunk while other turns decode rows of one pass."""
    return max(MIN_CHUNK_TOKENS, _largest_chunk(costs, info, BESIDE_MS))


def contended_tokens(costs: StepCosts) -> int:
    """Return the tokens of a pass that a realtime turn waits for."""
    most_ms = CONTENDED_STEPS * costs.ms(1)
    return max((n for n in range(1, MIN_CHUNK_TOKENS) if costs.ms(n) <= most_ms), default=1)


def _largest_chunk(costs: StepCosts, info: ModelInfo, most_ms: float) -> int:
    sizes = [size for size in CHUNKS if size <= info.pass_tokens]
    return max(size for size in sizes if size == 1 or costs.ms(size) <= most_ms)
