"""What adding support for a GPU would do on this machine: install packages, build llama.cpp, or neither.

Owns that decision, a pure function over facts, and its words. Does not install (`vivace.extras`) or build
(`building`).
"""

from dataclasses import dataclass
from typing import Literal

from vivace.engine.devices.backend_files import BackendName
from vivace.engine.devices.machine import Machine
from vivace.engine.devices.ranking import OLDEST_CUDA
from vivace.engine.devices.toolchain import OLDEST_NVCC, Nvcc, how_to_install
from vivace.engine.runners.gpu_check import GpuInfo, gpu_problem, serves_kernels
from vivace.errors import StartError

PACKAGES_SIZE = "about 5 GB"
MINUTES = {"cuda": (240, 10), "vulkan": (60, 5)}  # of one core; never fewer than the second


@dataclass(frozen=True)
class Addition:
    """What will be done."""

    way: Literal["packages", "build"]
    words: str  # what it is and why, how long it takes
    capabilities: tuple[str, ...] = ()  # of the GPUs to build for


def plan_addition(
    name: BackendName, machine: Machine, nvcc: Nvcc, missing: tuple[str, ...], cores: int
) -> Addition:
    """Return what adding `name` does here. Raise `StartError` if it cannot be done, with what to install.

    `missing` are the needs of a build for Vulkan that are not met.
    """
    if machine.system == "Darwin":
        raise StartError("A Mac needs no extra for its GPU.", "llama.cpp's ordinary build uses Metal there.")
    return _plan_cuda(machine, nvcc, cores) if name == "cuda" else _plan_vulkan(machine, missing, cores)


def _plan_cuda(machine: Machine, nvcc: Nvcc, cores: int) -> Addition:
    best = max(machine.nvidia, key=lambda gpu: (serves_kernels(gpu.capability), gpu.capability))
    if not best.gpu:
        raise StartError(*(gpu_problem(best) or ("There is no NVIDIA GPU.", "")))
    if serves_kernels(best.capability):
        words = (
            f"{_named(best)}: our own kernels run on it. They need PyTorch and Triton, which pip installs "
            f"({PACKAGES_SIZE}, no compiling)."
        )
        return Addition("packages", words)
    if best.capability < OLDEST_CUDA:
        raise StartError(
            f"{_named(best)} is too old for CUDA here: {_dotted(OLDEST_CUDA)} (Turing) is needed.",
            "Vulkan may run it: `vivace extras add vulkan`.",
        )
    usable = [gpu for gpu in machine.nvidia if gpu.capability >= OLDEST_CUDA]
    _check_nvcc(best, nvcc)
    words = (
        f"{_named(best)}: our own kernels are for Hopper (9.0), so llama.cpp will use it, built here with "
        f"nvcc {_dotted(nvcc.version)}. {_duration('cuda', cores)}"
    )
    capabilities = tuple(sorted({_dotted(gpu.capability) for gpu in usable}))
    return Addition("build", words, capabilities)


def _check_nvcc(gpu: GpuInfo, nvcc: Nvcc) -> None:
    if not nvcc.path:
        raise StartError(
            f"{_named(gpu)}: llama.cpp would use it, but to build it nvcc is needed, NVIDIA's compiler.",
            f"Install it: {how_to_install(('nvcc',))}. Then run the same command again.",
        )
    oldest = OLDEST_NVCC.get(gpu.capability, (11, 0))
    if nvcc.version < oldest:
        raise StartError(
            f"{_named(gpu)} needs nvcc {_dotted(oldest)} or newer; {nvcc.path} is {_dotted(nvcc.version)}.",
            "Install a newer CUDA toolkit from developer.nvidia.com/cuda-downloads; CUDA_HOME may name it.",
        )
    if nvcc.version[0] > gpu.driver_cuda[0]:
        raise StartError(
            f"nvcc {_dotted(nvcc.version)} is too new for NVIDIA's driver {gpu.driver}, which runs CUDA "
            f"up to {_dotted(gpu.driver_cuda)}.",
            f"Update the driver, or install CUDA {gpu.driver_cuda[0]} and name it in CUDA_HOME.",
        )


def _plan_vulkan(machine: Machine, missing: tuple[str, ...], cores: int) -> Addition:
    if missing:
        raise StartError(
            f"To build llama.cpp for Vulkan, this is missing here: {', '.join(missing)}.",
            f"Install it: {how_to_install(missing)}. Then run the same command again.",
        )
    whose = f"for the GPU of {' and '.join(machine.other_gpus)}" if machine.other_gpus else "for any GPU"
    better = ""
    if any(gpu.capability >= OLDEST_CUDA for gpu in machine.nvidia):
        better = " CUDA is faster on the NVIDIA GPU here: `vivace extras add cuda`."
    return Addition("build", f"llama.cpp with Vulkan, {whose}. {_duration('vulkan', cores)}{better}")


def _duration(name: str, cores: int) -> str:
    of_one, least = MINUTES[name]
    minutes = max(least, round(of_one / max(1, cores), -1))
    return (
        f"Building takes about {minutes:.0f} minutes on {cores} cores; a build that is stopped goes on later."
    )


def _named(gpu: GpuInfo) -> str:
    return f"{gpu.gpu} (compute capability {_dotted(gpu.capability)})"


def _dotted(version: tuple[int, int]) -> str:
    return f"{version[0]}.{version[1]}"
