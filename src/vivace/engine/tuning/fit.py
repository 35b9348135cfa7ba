"""What this machine can run of a model that is not here yet: whether it fits, and about how fast.

A token's weights are read once from memory, so tokens a second are about bandwidth by bytes read. Owns that
estimate and the measured bandwidth, which is kept on disk. What tuning has measured of a model that is here
takes the estimate's place.
"""

import contextlib
import ctypes
import subprocess
import threading
import time
from typing import NamedTuple, Protocol

import msgspec

from vivace.config import Settings
from vivace.engine.runners.limits import CHECKPOINT_BYTES, STATES_BYTES
from vivace.engine.tuning.cpu import choose_threads, memory_bytes
from vivace.engine.tuning.keys import machine_key
from vivace.engine.tuning.profile import tuned
from vivace.engine.wire.job import MEMORY_SHARE, weights_with_kv_bytes
from vivace.errors import ModelUnavailable
from vivace.models import store
from vivace.models.catalog import Memory, ModelCard
from vivace.programs import find_program

MEASURED_BYTES = 64 << 20  # by each thread: more than any cache it has for itself
MEASURED_SECONDS = 0.15
GPU_SECONDS = 5.0  # for nvidia-smi to answer
GPU_SHARE = 0.6  # of a GPU's bandwidth that decoding reaches: the default model on an H200
MIXTURE_SECONDS = 0.004  # of a GPU's token besides its bytes: a mixture's many small kernels on an A100
_CLOCK_KHZ, _BUS_BITS = 36, 37  # of the memory, for cuDeviceGetAttribute


class Machine(msgspec.Struct, frozen=True):
    """What decides which models run here."""

    key: str
    memory_bytes: int
    bytes_per_second: float  # of weights that are read while a token is made
    measured_with: str  # a model's name; "": plain reading of memory, which no model exceeds
    gpu_bytes: int = 0
    gpu_bytes_per_second: float = 0.0  # by its clock and bus; 0: not known


class Weighed(Protocol):
    """What decides how a model does: a card, a recommendation, a choice."""

    @property
    def size_bytes(self) -> int: ...
    @property
    def active_share(self) -> float: ...
    @property
    def kv_token_bytes(self) -> int: ...
    @property
    def memory(self) -> Memory: ...


class Fit(NamedTuple):
    """How a model would do on this machine."""

    needed_bytes: int
    room_bytes: int
    tokens_per_second: float  # 0: not known
    is_on_gpu: bool
    is_measured: bool = False

    @property
    def fits(self) -> bool:
        return self.needed_bytes <= self.room_bytes

    @property
    def words(self) -> str:
        """Return it in a few words for a list."""
        if not self.fits:
            return f"too large: {self.needed_bytes / 1e9:.1f} of {self.room_bytes / 1e9:.1f} GB"
        if not self.tokens_per_second:
            return "fits the GPU"
        return f"{self.speed} on the GPU" if self.is_on_gpu else self.speed

    @property
    def speed(self) -> str:
        """Return the tokens a second in words, which say whether they were measured."""
        digits = 0 if self.tokens_per_second >= 3 else 1
        return f"{'' if self.is_measured else 'about '}{self.tokens_per_second:.{digits}f} tok/s"


def fit(machine: Machine, model: Weighed, context_tokens: int, measured: float = 0.0) -> Fit:
    """Return how a model would do. `measured`: tokens a second that it makes here on the CPU, if known."""
    needed = weights_with_kv_bytes(model.size_bytes, context_tokens, model.kv_token_bytes)
    needed += STATES_BYTES if model.memory == "checkpoints" else 0
    read_bytes = max(1.0, model.size_bytes * model.active_share)
    if needed <= machine.gpu_bytes:
        per_second = GPU_SHARE * machine.gpu_bytes_per_second
        besides = MIXTURE_SECONDS if model.active_share < 1 else 0.0
        speed = 1 / (read_bytes / per_second + besides) if per_second else 0.0
        return Fit(needed, machine.gpu_bytes, speed, is_on_gpu=True)
    needed += CHECKPOINT_BYTES if model.memory != "exact" else 0  # beside a GPU they are not in its memory
    speed, room = measured or machine.bytes_per_second / read_bytes, int(MEMORY_SHARE * machine.memory_bytes)
    return Fit(needed, room, speed, is_on_gpu=False, is_measured=bool(measured))


def measured_speed(settings: Settings, name: str) -> float:
    """Return the tokens a second that tuning measured of a model that is here, or 0."""
    card = next((card for card in store.present_cards(settings) if card.name == name), None)
    profile = tuned(settings, store.card_path(settings, card)) if card else None
    cost_ms = profile.step_costs.get(1, 0.0) if profile else 0.0
    return 1000 / cost_ms if cost_ms else 0.0


def fit_here(settings: Settings, card: ModelCard) -> Fit:
    """Return how a model would do on this machine."""
    return fit(this_machine(settings), card, settings.context_tokens, measured_speed(settings, card.name))


def check_fits(found: Fit, card: ModelCard) -> None:
    """Raise ModelUnavailable if the model has too little room."""
    if not found.fits:
        raise ModelUnavailable(
            f"{card.name} would need {found.needed_bytes / 1e9:.1f} GB of memory; "
            f"models may take {found.room_bytes / 1e9:.1f} GB here.",
            f"Choose a smaller one from `vivace models`, or `vivace models pull {card.name} --anyway`.",
        )


def this_machine(settings: Settings) -> Machine:
    """Return what this machine has. Its bandwidth is the best that was measured: others may be busy now."""
    key, tuned_speed = machine_key(), _speed_of_tuned(settings)
    gpu_bytes = _gpu_bytes(settings)
    gpu = (gpu_bytes, _gpu_bandwidth() if gpu_bytes else 0.0)
    if tuned_speed:
        return Machine(key, memory_bytes()[0], *tuned_speed, *gpu)
    file = settings.cache_dir / "bandwidth.json"
    best: dict[str, float] = {}
    with contextlib.suppress(OSError, msgspec.MsgspecError):
        best = msgspec.json.decode(file.read_bytes(), type=dict[str, float])
    bandwidth = max(best.get(key, 0.0), read_bandwidth(choose_threads(settings.threads)))
    with contextlib.suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(msgspec.json.encode(best | {key: bandwidth}))
    return Machine(key, memory_bytes()[0], bandwidth, "", *gpu)


def read_bandwidth(threads: int) -> float:
    """Return the bytes a second that this number of threads reads from memory together.

    By the time that each thread runs: what other programs take of the CPU is not the memory's.
    """
    import numpy as np

    arrays = [np.ones(MEASURED_BYTES // 8, dtype=np.int64) for _ in range(threads)]
    speeds = [0.0] * threads
    end = time.perf_counter() + MEASURED_SECONDS

    def read(number: int) -> None:
        count, began = 0, time.thread_time()
        while not count or time.perf_counter() < end:
            arrays[number].max()  # numpy lets the other threads run meanwhile
            count += 1
        speeds[number] = count * MEASURED_BYTES / (time.thread_time() - began)

    workers = [threading.Thread(target=read, args=(number,)) for number in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return sum(speeds)


def _speed_of_tuned(settings: Settings) -> tuple[float, str] | None:
    """Return the bytes a second of a model that was measured here, the largest one, and its name."""
    found = []
    for card in store.present_cards(settings):
        path = store.card_path(settings, card)
        profile = tuned(settings, path)
        if profile and profile.step_costs.get(1):
            size_bytes = profile.made_bytes or card.size_bytes
            found.append((size_bytes, size_bytes * 1000 / profile.step_costs[1], card.name))
    return max(found)[1:] if found else None


def _gpu_bytes(settings: Settings) -> int:
    """Return the memory of the NVIDIA GPU that may be used, or 0."""
    if settings.device == "cpu" or not (program := find_program("nvidia-smi")):
        return 0
    query = [program, "--query-gpu=memory.total", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(query, capture_output=True, text=True, timeout=GPU_SECONDS, check=True)
        return int(done.stdout.split()[0]) << 20
    except (OSError, subprocess.SubprocessError, ValueError, IndexError):
        return 0


def _gpu_bandwidth() -> float:
    """Return the bytes a second of the first NVIDIA GPU's memory, which moves data twice a clock, or 0."""
    device, clock_khz, bus_bits = ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
    try:
        driver = ctypes.CDLL("libcuda.so.1")
        failed = driver.cuInit(0) or driver.cuDeviceGet(ctypes.byref(device), 0)
        failed = failed or driver.cuDeviceGetAttribute(ctypes.byref(clock_khz), _CLOCK_KHZ, device)
        failed = failed or driver.cuDeviceGetAttribute(ctypes.byref(bus_bits), _BUS_BITS, device)
    except (OSError, AttributeError):
        return 0.0
    return 0.0 if failed else 2 * clock_khz.value * 1000.0 * bus_bits.value / 8
