"""Which recommended models suit a machine: the best that fit and are quick enough, under a free licence.

Owns that choice, and the sizes of machines that the reference page is about. Does not own the list or its
order (`models.hub.curated`) or how a model does (`fit`).
"""

from collections.abc import Sequence
from typing import NamedTuple

from vivace.engine.tuning.fit import Fit, Machine, fit
from vivace.models.catalog import QWEN, ModelCard
from vivace.models.hub.curated import CURATED, Curated

QUICK_TOKENS = 10.0  # a second: slower than that nobody waits for an answer
MOST = 3

GB = 10**9
CPU_SIZES = ((8, 40), (16, 40), (32, 60), (64, 60), (128, 100))  # GB of memory, GB/s of usual ones
GPU_SIZES = ((8, 270), (12, 360), (16, 450), (24, 930), (48, 860), (80, 3350), (141, 4800))


class Pick(NamedTuple):
    model: Curated | ModelCard
    fit: Fit


def recommend(
    machine: Machine, context_tokens: int, models: Sequence[Curated] = CURATED, most: int = MOST
) -> list[Pick]:
    """Return the best models for this machine, best first; the default model where none is quick enough."""
    picks = [Pick(model, fit(machine, model, context_tokens)) for model in models if model.is_free]
    suited = [pick for pick in picks if pick.fit.fits and _is_quick(pick.fit)]
    return suited[:most] or [Pick(QWEN, fit(machine, QWEN, context_tokens))]


def _is_quick(found: Fit) -> bool:
    is_unknown = found.is_on_gpu and not found.tokens_per_second
    return is_unknown or found.tokens_per_second >= QUICK_TOKENS


def usual_machines() -> list[tuple[str, Machine]]:
    """Return machines of every size, with the bandwidth that is usual for it."""
    cpus = [
        (f"{size} GB memory", Machine("", size * GB, speed * 1e9, measured_with=""))
        for size, speed in CPU_SIZES
    ]
    gpus = [
        (f"{size} GB GPU", Machine("", 0, 0.0, "", gpu_bytes=size * GB, gpu_bytes_per_second=speed * 1e9))
        for size, speed in GPU_SIZES
    ]
    return [*cpus, *gpus]
