"""What adding support for a GPU would do on this machine: install packages, build llama.cpp, or neither.

Owns that decision, a pure function over facts, and its words. Does not install (`vivace.extras`) or build
(`building`).
"""

from dataclasses import dataclass
from typing import Literal

from vivace.engine.devices.backend_files import BackendName
from vivace.engine.devices.machine import Machine
from vivace.engine.devices.ranking import OLDEST_CUDA
from vivace.engine.devices.toolchain import (
    INDEX_NVCC,
    INDEX_NVCC_MB,
    NO_NVCC,
    OLDEST_NVCC,
    Nvcc,
    how_to_install,
)
from vivace.engine.runners.gpu_check import GpuInfo, gpu_problem, serves_kernels
from vivace.errors import StartError

PACKAGES_SIZE = "about 5 GB"
MINUTES = {"cuda": (80, 10), "vulkan": (60, 5)}  # of one core, for a kind of GPU; never fewer than the second


@dataclass(frozen=True)
class Addition:
    """What will be done."""

    way: Literal["packages", "build"]
    words: str  # what it is and why, how long it takes
    capabilities: tuple[str, ...] = ()  # of the GPUs to build for
    nvcc: Nvcc = NO_NVCC  # to build with


def plan_addition(
    name: BackendName,
    machine: Machine,
    nvcc: Nvcc,
    missing: tuple[str, ...],
    cores: int,
    *,
    wants_llama: bool = False,
) -> Addition:
    """Return what adding `name` does here. Raise `StartError` if it cannot be done, with what to install.

    `nvcc` is what was found here, `missing` are the needs of a build for Vulkan that are not met. Someone who
    `wants_llama` gets it where our own kernels run, too.
    """
    if machine.system == "Darwin":
        raise StartError("A Mac needs no extra for its GPU.", "llama.cpp's ordinary build uses Metal there.")
    if name == "vulkan":
        return _plan_vulkan(machine, missing, cores)
    return _plan_cuda(machine, nvcc, cores, wants_llama=wants_llama)


def _plan_cuda(machine: Machine, nvcc: Nvcc, cores: int, *, wants_llama: bool) -> Addition:
    best = max(machine.nvidia, key=lambda gpu: (serves_kernels(gpu.capability), gpu.capability))
    if not best.gpu:
        raise StartError(*(gpu_problem(best) or ("There is no NVIDIA GPU.", "")))
    is_served = serves_kernels(best.capability)
    if is_served and not wants_llama:
        words = (
            f"{_named(best)}: our own kernels run on it. They need PyTorch and Triton, which pip installs "
            f"({PACKAGES_SIZE}, no compiling). Models that they do not know need llama.cpp: --llama-cpp."
        )
        return Addition("packages", words)
    if best.capability < OLDEST_CUDA:
        raise StartError(
            f"{_named(best)} is too old for CUDA here: {_dotted(OLDEST_CUDA)} (Turing) is needed.",
            "Vulkan may run it: `vivace extras add vulkan`.",
        )
    usable = [gpu for gpu in machine.nvidia if gpu.capability >= OLDEST_CUDA]
    chosen = _choose_nvcc(best, nvcc)
    whose = f"nvcc {_dotted(chosen.version)}"
    if chosen == INDEX_NVCC:
        whose += f", which pip downloads with what it needs (about {INDEX_NVCC_MB} MB)"
    why = (
        "llama.cpp will run on it what our own kernels do not know"
        if is_served
        else "our own kernels are for Hopper (9.0), so llama.cpp will use it"
    )
    words = f"{_named(best)}: {why}, built here with {whose}. "
    capabilities = tuple(sorted({_dotted(gpu.capability) for gpu in usable}))
    words += _duration("cuda", cores, len(capabilities))
    return Addition("build", words, capabilities, chosen)


def _choose_nvcc(gpu: GpuInfo, found: Nvcc) -> Nvcc:
    """Return the compiler that was found if it fits, or else that of the package index if the driver does."""
    problem = _nvcc_problem(gpu, found)
    if not problem:
        return found
    if _nvcc_problem(gpu, INDEX_NVCC):
        raise StartError(*problem)
    return INDEX_NVCC


def _nvcc_problem(gpu: GpuInfo, nvcc: Nvcc) -> tuple[str, str] | None:
    if nvcc == NO_NVCC:
        return (
            f"{_named(gpu)}: llama.cpp would use it, but to build it nvcc is needed, NVIDIA's compiler. "
            f"The driver {gpu.driver} runs CUDA up to {_dotted(gpu.driver_cuda)}, and pip has it from 13 on.",
            f"Update the driver, or install nvcc: {how_to_install(('nvcc',))}. "
            "Then run the same command again.",
        )
    oldest = OLDEST_NVCC.get(gpu.capability, (11, 0))
    if nvcc.version < oldest:
        return (
            f"{_named(gpu)} needs nvcc {_dotted(oldest)} or newer; {nvcc.path} is {_dotted(nvcc.version)}.",
            "Install a newer CUDA toolkit from developer.nvidia.com/cuda-downloads; CUDA_HOME may name it.",
        )
    if nvcc.version[0] > gpu.driver_cuda[0]:
        return (
            f"nvcc {_dotted(nvcc.version)} is too new for NVIDIA's driver {gpu.driver}, which runs CUDA "
            f"up to {_dotted(gpu.driver_cuda)}.",
            f"Update the driver, or install CUDA {gpu.driver_cuda[0]} and name it in CUDA_HOME.",
        )
    return None


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


def _duration(name: str, cores: int, kinds: int = 1) -> str:
    of_one, least = MINUTES[name]
    minutes = max(least, round(of_one * kinds / max(1, cores), -1))
    return (
        f"Building takes about {minutes:.0f} minutes on {cores} cores; a build that is stopped goes on later."
    )


def _named(gpu: GpuInfo) -> str:
    return f"{gpu.gpu} (compute capability {_dotted(gpu.capability)})"


def _dotted(version: tuple[int, int]) -> str:
    return f"{version[0]}.{version[1]}"
