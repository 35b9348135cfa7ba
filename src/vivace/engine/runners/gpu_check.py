"""Check whether this machine's GPU can run our kernels; if not, say why and what to do about it.

Owns the detection (`detect_gpu` imports torch only if the driver shows a suitable GPU) and the messages, and
what gives memory back. Does not load a model, and does not know which models can run (`cuda.checkpoint`).
"""

import ctypes
import gc
import importlib.util
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from vivace.errors import StartError

PACKAGES = ("torch", "triton", "gguf", "safetensors")  # of the extra `cuda`
MIN_CAPABILITY = (9, 0)  # Hopper: clusters, bulk copies, launches that overlap
KERNEL_MAJORS = (9, 10)  # Hopper and its successors for servers; 12 (RTX 50) has half of their shared memory
BY_LLAMA = "llama.cpp runs it, on the CPU; on the GPU behind `vivace extras add cuda --llama-cpp`."
_ON_THE_CPU = 'Or set device to "cpu" in config.toml.'
_MAJOR, _MINOR, _SHARED_BYTES = 75, 76, 97  # of cuDeviceGetAttribute
_DRIVER_FILE = Path("/sys/module/nvidia/version")


@dataclass(frozen=True)
class GpuInfo:
    """The GPU and the software for it. The defaults describe a machine without an NVIDIA driver."""

    driver: str = ""  # its version; empty: no driver
    driver_cuda: tuple[int, int] = (0, 0)  # the newest CUDA that the driver can run
    error: str = ""  # why the driver shows no GPU
    gpu: str = ""
    capability: tuple[int, int] = (0, 0)
    shared_bytes: int = 0  # shared memory that one block may use
    missing: tuple[str, ...] = ()  # packages that are not installed
    torch: str = ""
    torch_cuda: tuple[int, int] = (0, 0)  # the CUDA that torch was built for; 0, 0: built without
    free_bytes: int = 0
    total_bytes: int = 0


def serves_kernels(capability: tuple[int, int]) -> bool:
    """Return whether our kernels are written for GPUs of this compute capability."""
    return capability[0] in KERNEL_MAJORS


def check_gpu(found: GpuInfo) -> None:
    """Raise `StartError` if our kernels cannot run on this machine."""
    if problem := gpu_problem(found):
        raise StartError(*problem)


def gpu_problem(found: GpuInfo) -> tuple[str, str] | None:
    """Return why our kernels cannot run on this GPU, and what to do; None if they can."""
    if not found.driver:
        return "There is no NVIDIA driver on this machine.", f"Install it for an NVIDIA GPU. {_ON_THE_CPU}"
    if not found.gpu:
        return (
            f"NVIDIA's driver {found.driver} shows no GPU ({found.error or 'none is there'}).",
            f"`nvidia-smi` should list it; after an update of the driver, restart. {_ON_THE_CPU}",
        )
    if not serves_kernels(found.capability):
        return (
            f"Our kernels are not for the {found.gpu}: compute capability {_dotted(found.capability)}, "
            f"{_dotted(MIN_CAPABILITY)} (Hopper) is needed.",
            'llama.cpp can use it: `vivace extras add cuda`. Or set device to "cpu" in config.toml.',
        )
    if found.missing:
        return (
            f"There is an {found.gpu}, but the extra for it is not installed: "
            f"{', '.join(found.missing)} missing.",
            "Add it with `vivace extras add cuda`.",
        )
    if found.torch_cuda == (0, 0):
        return f"torch {found.torch} is built without CUDA.", "Install the build of torch for CUDA."
    if found.driver_cuda[0] < found.torch_cuda[0]:
        return (
            f"NVIDIA's driver {found.driver} is too old: it runs CUDA up to {_dotted(found.driver_cuda)}, "
            f"torch {found.torch} needs {_dotted(found.torch_cuda)}.",
            f"Update the driver, or install torch for CUDA {found.driver_cuda[0]}.",
        )
    return None


def check_memory(found: GpuInfo, *, weight_bytes: int, kv_bytes: int, shared_bytes: int) -> None:
    """Raise `StartError` if this model does not fit on this GPU."""
    if shared_bytes > found.shared_bytes:
        raise StartError(
            f"The {found.gpu} has {found.shared_bytes >> 10} KB of shared memory a block; "
            f"this model's kernels need {shared_bytes >> 10} KB.",
            'Set device to "cpu" in config.toml.',
        )
    needed = weight_bytes + kv_bytes
    if needed > found.free_bytes:
        raise StartError(
            f"The {found.gpu} has {_gb(found.free_bytes)} of its {_gb(found.total_bytes)} free; "
            f"this model needs {_gb(needed)}, {_gb(kv_bytes)} of it for the KV.",
            "Set a smaller gpu_context_tokens or kv_bits = 8 in config.toml, or end other programs there.",
        )


def detect_gpu() -> GpuInfo:
    """Return the first of this machine's GPUs, or why there is none."""
    return detect_gpus()[0]


def detect_gpus() -> tuple[GpuInfo, ...]:
    """Return every NVIDIA GPU that the driver shows; where it shows none, one entry that says why.

    Import torch only if the first GPU is one that our kernels serve: it takes two seconds.
    """
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return (GpuInfo(),)
    version = ctypes.c_int()
    driver.cuDriverGetVersion(ctypes.byref(version))
    name = _DRIVER_FILE.read_text().strip() if _DRIVER_FILE.exists() else "of unknown version"
    cuda = (version.value // 1000, version.value % 1000 // 10)
    count = ctypes.c_int()
    if status := driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count)):
        return (GpuInfo(name, cuda, f"CUDA error {status}"),)
    if not count.value:
        return (GpuInfo(name, cuda),)
    found = [_query_gpu(driver, index, GpuInfo(name, cuda)) for index in range(count.value)]
    if any(serves_kernels(gpu.capability) and not gpu.missing for gpu in found):
        found = _with_torch(found)
    return tuple(found)


def _query_gpu(driver: ctypes.CDLL, index: int, known: GpuInfo) -> GpuInfo:
    device, total = ctypes.c_int(), ctypes.c_size_t()
    driver.cuDeviceGet(ctypes.byref(device), index)
    name = ctypes.create_string_buffer(256)
    driver.cuDeviceGetName(name, 256, device)
    driver.cuDeviceTotalMem_v2(ctypes.byref(total), device)

    def attribute(which: int) -> int:
        value = ctypes.c_int()
        driver.cuDeviceGetAttribute(ctypes.byref(value), which, device)
        return value.value

    return replace(
        known,
        gpu=name.value.decode(errors="replace"),
        capability=(attribute(_MAJOR), attribute(_MINOR)),
        shared_bytes=attribute(_SHARED_BYTES),
        missing=tuple(each for each in PACKAGES if importlib.util.find_spec(each) is None),
        total_bytes=total.value,
    )


def _with_torch(found: list[GpuInfo]) -> list[GpuInfo]:
    """Return the GPUs with what torch knows: its own version, and the free memory of those it can use."""
    import torch  # type: ignore[import-not-found,unused-ignore]

    torch_cuda = tuple(map(int, (torch.version.cuda or "0.0").split(".")[:2]))
    known = [
        replace(gpu, torch=torch.__version__, torch_cuda=(torch_cuda[0], torch_cuda[1])) for gpu in found
    ]
    if not torch.cuda.is_available():
        return known
    free, total = torch.cuda.mem_get_info()  # of the first: another one is the first in its own process
    return [replace(known[0], free_bytes=free, total_bytes=total), *known[1:]]


DetectGpu = Callable[[], GpuInfo]


def _dotted(version: tuple[int, int]) -> str:
    return f"{version[0]}.{version[1]}"


def _gb(count: int) -> str:
    return f"{count / 1e9:.1f} GB"


def free_gpu_memory() -> None:
    """Give back what a runner that nobody holds any more has left on the GPU: its parts know each other."""
    gc.collect()
    if torch := sys.modules.get("torch"):
        torch.cuda.empty_cache()
