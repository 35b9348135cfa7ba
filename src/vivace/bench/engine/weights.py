"""Which weights run: the file as downloaded, which the peer gets too, and the ones chosen for this CPU.

Owns the engine's job for each. Does not choose or make weights: `engine.tuning` does.
"""

from dataclasses import dataclass
from pathlib import Path

import msgspec

from vivace.config import Settings
from vivace.engine.tuning.cpu import choose_threads
from vivace.engine.tuning.profile import weights_for
from vivace.engine.wire.job import Job
from vivace.models.store import model_path

KV_DISK_BYTES = 1 << 30


@dataclass(frozen=True)
class Loadable:
    label: str
    job: Job


def as_downloaded(settings: Settings, kv_folder: Path) -> Loadable:
    """Return the downloaded file, with a folder of the bench's own for parked sessions."""
    path = model_path(settings, settings.model)
    job = Job(
        model=settings.model,
        path=str(path),
        context_tokens=settings.context_tokens,
        device="cpu",
        threads=choose_threads(settings.threads),
        kv_folder=str(kv_folder),
        kv_disk_bytes=KV_DISK_BYTES,
    )
    return Loadable(path.name, job)


def as_chosen(settings: Settings, downloaded: Loadable) -> Loadable:
    """Return the weights that tuning chose for this CPU, or the downloaded file."""
    weights = weights_for(settings, Path(downloaded.job.path))
    job = msgspec.structs.replace(
        downloaded.job,
        path=str(weights.path),
        threads=weights.threads or downloaded.job.threads,
        use_extra_bufts=weights.use_extra_bufts,
        step_costs=weights.step_costs,
        chunk_tokens=weights.chunk_tokens,
    )
    layout = "" if weights.use_extra_bufts else ", not repacked"
    return Loadable(weights.path.name + layout, job)
