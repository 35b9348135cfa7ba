"""Would 4 bits do? The same weights, rounded to 4-bit groups and widened again, for gpu_fix to judge.

Owns the rounding: a step and a least value for each group of 32 in a row, as good kernels have them; the
embedding and the head stay as they are.
"""

import dataclasses
import json
from pathlib import Path

import torch  # type: ignore[import-not-found,unused-ignore]

from vivace.engine.runners.cuda.cache import cache_name, read_through_cache

GROUP = 32
STEPS = 15


def round_to_four(model: Path, folder: Path, rounded_folder: Path) -> Path:
    """A folder that an engine takes the rounded weights from."""
    from safetensors.torch import save_file  # type: ignore[import-not-found,unused-ignore]

    shape, weights = read_through_cache(model, folder)
    rounded = {
        name: _round(each) if name.endswith("_proj.weight") else each for name, each in weights.items()
    }
    rounded_folder.mkdir(parents=True, exist_ok=True)
    facts = {"shape": json.dumps(dataclasses.asdict(shape))}
    save_file(rounded, str(rounded_folder / cache_name(model)), metadata=facts)
    return rounded_folder


def _round(weight: torch.Tensor) -> torch.Tensor:
    groups = weight.cuda().float().reshape(-1, GROUP)
    least = groups.amin(1, keepdim=True)
    step = ((groups.amax(1, keepdim=True) - least) / STEPS).clamp(min=1e-9)
    back = ((groups - least) / step).round() * step + least
    return back.reshape(weight.shape).to(weight.dtype).cpu()
