"""What an engine process is started for: the one argument of its command line besides its socket.

Owns the shape of a job, how one is made for a model on this machine, and about how much memory it takes. Does
not start anything.
"""

from collections.abc import Sequence
from pathlib import Path

import msgspec

from vivace.config import Settings
from vivace.engine.tuning.cpu import choose_threads, memory_bytes
from vivace.engine.tuning.profile import weights_for
from vivace.engine.wire.device import parse_device
from vivace.engine.wire.frames import Ready
from vivace.models.store import shards_of
from vivace.models.tokenizer import SCRIPTED

MEMORY_SHARE = 0.6  # of the machine's memory that all loaded models may take, unless the settings say
KV_MEMORY_SHARE = 1 / 8  # of the free memory, for parked KV of a GPU, unless the settings say
PROCESS_BYTES = 300 * 2**20  # of an engine besides weights and KV
MIN_KV_BYTES = 24 * 1024  # of one token: SmolLM2-135M has 23 KB
TOKENS_PER_FILE = 40_000  # of KV that take about as much as the file: Qwen2.5-Coder 1.5B has 39,000

PARK_S = 5.0  # an engine whose socket ends begins no new file of KV after this; then it writes what waits


class Job(msgspec.Struct, frozen=True):
    """What an engine process is started for."""

    model: str  # a catalog name, a path or `scripted:FILE`
    path: str  # of its file, or of its folder of safetensors; empty for a scripted one
    context_tokens: int
    session_tokens: int = 0  # 0: what the model was trained for
    threads: int = 0
    use_extra_bufts: bool = True
    step_costs: dict[int, float] = {}  # ms of a pass by its size, if they were measured before
    chunk_tokens: int = 0  # that prefill likes best, if that was measured
    kv_folder: str = ""  # where KV is parked; empty: nowhere
    kv_disk_bytes: int = 0
    kv_memory_bytes: int = 0  # host memory for parked KV of a GPU
    device: str = "auto"  # what computes, as the setting says it
    gpu_devices: list[str] = []  # of a machine with several GPUs, if they were looked at before
    gpu_name: str = ""  # how the GPU is called that alone is visible to the process: cuda:1
    backend_dir: str = ""  # the cache in which parts of llama.cpp for GPUs may be
    weight_bits: int = 8  # on the GPU: 8, 16 or 4
    kv_bits: int = 16  # on the GPU: 16 or 8
    gpu_folder: str = ""  # where kernels that were compiled for the GPU are kept; empty: nowhere
    allow_scripted: bool = False  # the model may be a script
    gpu_prefill: str = ""  # "bf16" or "fp8"; empty: what goes with the weights
    gpu_context_tokens: int = 0  # KV cells on the GPU; 0: what half of its free memory holds


def worker_module(job: Job) -> str:
    """Return the module that the engine's process runs."""
    is_scripted = job.allow_scripted and job.model.startswith(SCRIPTED)
    return "vivace.testing.worker" if is_scripted else "vivace.engine.loop.worker"


def engine_jobs(settings: Settings, first: Job, ready: Ready) -> list[Job]:
    """Return the jobs of all engines of a model, the first one's first, by what that one says of the machine.

    One for each GPU that can run the same, or for those that `gpus` names; `cpu_engines` on the CPU.
    """
    if ready.device == "cpu":
        return [first] * settings.cpu_engines
    if parse_device(settings.device).index is not None or ready.device != "cuda":
        return [first]
    found = ready.gpu_devices or [first.device]
    named = [f"cuda:{index}" for index in settings.gpus.split(",")]
    count = len(found) if settings.gpus == "auto" else int(named[0].removeprefix("cuda:"))
    chosen = named if len(named) > 1 else found[:count]
    share = first.kv_memory_bytes // max(1, len(chosen))  # the disk's folder is one for all of them
    others = (msgspec.structs.replace(first, device=each, kv_memory_bytes=share) for each in chosen[1:])
    return [first, *others]


def _first_device(settings: Settings) -> str:
    """Return the device of the first engine: the first of the GPUs that the user named."""
    if "," in settings.gpus and settings.device in ("auto", "cuda"):
        return f"cuda:{settings.gpus.split(',')[0]}"
    return settings.device


def compute_alike(one: Job, other: Job) -> bool:
    """Return whether both jobs load the same weights in the same way. Their costs may differ."""
    ways = [(job.path, job.use_extra_bufts, choose_threads(job.threads)) for job in (one, other)]
    return ways[0] == ways[1]


def make_job(settings: Settings, name: str, path: Path | None) -> Job:
    """Return how to run the model here: as tuning found best for its file, where it was tuned."""
    weights = weights_for(settings, path) if path else None
    return Job(
        model=name,
        path=str(weights.path) if weights else "",
        context_tokens=settings.context_tokens,
        session_tokens=settings.session_tokens,
        threads=_share_of_threads(settings, weights.threads) if weights else 1,
        use_extra_bufts=weights.use_extra_bufts if weights else True,
        step_costs=weights.step_costs if weights else {},
        chunk_tokens=weights.chunk_tokens if weights else 0,
        device=_first_device(settings),
        weight_bits=settings.weight_bits,
        kv_bits=settings.kv_bits,
        gpu_folder=str(settings.cache_dir / "gpu"),
        backend_dir=str(settings.cache_dir),
        gpu_context_tokens=settings.gpu_context_tokens,
        allow_scripted=settings.allow_scripted,
        kv_folder=str(settings.kv_dir),
        kv_disk_bytes=int(settings.kv_disk_gib * 2**30),
        kv_memory_bytes=int(settings.kv_memory_gib * 2**30) or int(KV_MEMORY_SHARE * memory_bytes()[1]),
    )


def _share_of_threads(settings: Settings, threads: int) -> int:
    """Return the threads of one engine, where several share the CPU."""
    if settings.cpu_engines == 1:
        return threads
    return max(1, choose_threads(threads) // settings.cpu_engines)


def needed_bytes(path: str, context_tokens: int) -> int:
    """Return about how much memory an engine takes: weights, KV and the process. A script takes nothing."""
    if not path:
        return 0
    where = Path(path)
    files = where.rglob("*") if where.is_dir() else shards_of(where)
    return weights_with_kv_bytes(sum(file.stat().st_size for file in files if file.is_file()), context_tokens)


def weights_with_kv_bytes(weights_bytes: int, context_tokens: int, kv_token_bytes: int = 0) -> int:
    """Return about how much memory an engine with weights of this size takes, with its KV.

    `kv_token_bytes`: of KV for one token; 0: guessed by the weights.
    """
    kv_token_bytes = kv_token_bytes or max(MIN_KV_BYTES, weights_bytes // TOKENS_PER_FILE)
    return weights_bytes + context_tokens * kv_token_bytes + PROCESS_BYTES


def fits_beside(path: str, loaded: Sequence[str], context_tokens: int, limit_bytes: int) -> bool:
    """Return whether memory holds one more model beside those loaded. `limit_bytes` for all; 0: a share."""
    total, available = memory_bytes()
    needed = needed_bytes(path, context_tokens)
    together = needed + sum(needed_bytes(each, context_tokens) for each in loaded)
    return needed <= available and together <= (limit_bytes or int(MEMORY_SHARE * total))
