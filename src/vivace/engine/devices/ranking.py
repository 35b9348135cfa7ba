"""Which runner on which device: one pure function over a machine's facts and the user's wish.

Owns the order (our kernels, llama.cpp with CUDA, with Vulkan, with Metal, on the CPU) and why something
better is not used. Does not look at the machine (`machine`) or load anything.
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple

from vivace.engine.devices.machine import Machine
from vivace.engine.runners.gpu_check import GpuInfo, gpu_problem, serves_kernels
from vivace.engine.wire.device import DeviceWish
from vivace.errors import StartError

OLDEST_CUDA = (7, 5)  # Turing: tensor cores for flash attention, and the oldest that CUDA 13 compiles for
RunnerName = Literal["kernels", "llama.cpp"]
ON_THE_CPU = 'Or set device to "cpu" in config.toml.'
DOCTOR = "`vivace doctor` shows what is here."


@dataclass(frozen=True)
class RunnerChoice:
    """A runner on a device."""

    runner: RunnerName
    kind: Literal["cuda", "vulkan", "metal", "cpu"]
    index: int = 0  # among the devices of its kind

    @property
    def device(self) -> str:
        return f"{self.kind}:{self.index}" if self.kind in ("cuda", "vulkan") else self.kind

    def __str__(self) -> str:
        return f"{'our kernels' if self.runner == 'kernels' else 'llama.cpp'} on {self.device}"


CPU = RunnerChoice("llama.cpp", "cpu")


class Refusal(NamedTuple):
    """Why a better runner is not used, and what to do about it."""

    message: str
    hint: str


class Ranking(NamedTuple):
    choices: tuple[RunnerChoice, ...]  # the best first; a later one is used where an earlier one fails
    refusals: tuple[Refusal, ...]  # of what would be better than all of them

    @property
    def why_no_gpu(self) -> str:
        return " ".join(f"{each.message} {each.hint}".strip() for each in self.refusals)


def rank_runners(machine: Machine, wish: DeviceWish) -> Ranking:
    """Return what may run a model here, best first. Raise `StartError` if the wish cannot be met."""
    if wish.kind == "cpu":
        return Ranking((CPU,), ())
    parts = {"cuda": _rank_cuda, "vulkan": _rank_vulkan, "metal": _rank_metal}
    if wish.kind != "auto":
        ranking = parts[wish.kind](machine, wish.index)
        if not ranking.choices:
            raise StartError(ranking.refusals[0].message, f"{ranking.refusals[0].hint} {ON_THE_CPU}".strip())
        return ranking
    ranked = {kind: rank(machine, None) for kind, rank in parts.items()}
    choices = tuple(choice for ranking in ranked.values() for choice in ranking.choices)
    refusals = ranked["cuda"].refusals if machine.nvidia[0].driver else ()
    if not choices and "AMD" in machine.other_gpus:  # Intel's are mostly integrated: the CPU is as fast
        refusals += ranked["vulkan"].refusals
    return Ranking((*choices, CPU), refusals)


def engine_devices(machine: Machine, best: RunnerChoice) -> list[str]:
    """Return the devices that can run the same as `best`, itself first: an engine each."""
    if best.kind != "cuda":
        return [best.device]
    alike = [
        choice.device
        for index in range(len(machine.nvidia))
        for choice in _choices_of(machine, index)
        if choice.runner == best.runner
    ]
    return [best.device, *(device for device in alike if device != best.device)]


def _rank_cuda(machine: Machine, index: int | None) -> Ranking:
    gpus = machine.nvidia
    if not gpus[0].gpu:
        problem = gpu_problem(gpus[0])
        assert problem
        return Ranking((), (Refusal(problem[0], problem[1].replace(f" {ON_THE_CPU}", "")),))
    if index is not None and index >= len(gpus):
        names = ", ".join(f"cuda:{at} {gpu.gpu}" for at, gpu in enumerate(gpus))
        return Ranking((), (Refusal(f"There is no GPU cuda:{index}. There are: {names}.", ""),))
    wanted = range(len(gpus)) if index is None else [index]
    choices = [choice for at in wanted for choice in _choices_of(machine, at)]
    choices.sort(key=lambda choice: _order(choice, gpus[choice.index]))
    best = max(wanted, key=lambda at: (serves_kernels(gpus[at].capability), gpus[at].capability))
    return Ranking(tuple(choices), tuple(_refusals(machine, gpus[best], choices)))


def _order(choice: RunnerChoice, gpu: GpuInfo) -> tuple[bool, int, int]:
    """Our kernels first, then the GPU with most memory, then the first of them."""
    return choice.runner != "kernels", -gpu.total_bytes, choice.index


def _choices_of(machine: Machine, index: int) -> list[RunnerChoice]:
    """Return what can run on one NVIDIA GPU."""
    gpu = machine.nvidia[index]
    choices = [] if gpu_problem(gpu) else [RunnerChoice("kernels", "cuda", index)]
    if not llama_problem(machine, gpu):
        choices.append(RunnerChoice("llama.cpp", "cuda", index))
    return choices


def _refusals(machine: Machine, gpu: GpuInfo, choices: list[RunnerChoice]) -> list[Refusal]:
    if any(choice.runner == "kernels" for choice in choices):
        return []
    if serves_kernels(gpu.capability):
        problem = gpu_problem(gpu)
        return [Refusal(*problem)] if problem else []
    problem = llama_problem(machine, gpu)
    return [Refusal(*problem)] if problem else []


def llama_problem(machine: Machine, gpu: GpuInfo) -> tuple[str, str] | None:
    """Return why llama.cpp cannot use this NVIDIA GPU by CUDA, and what to do; None if it can."""
    if gpu.capability < OLDEST_CUDA:
        return (
            f"The {gpu.gpu} is too old for CUDA here: compute capability {_dotted(gpu.capability)}, "
            f"{_dotted(OLDEST_CUDA)} (Turing) is needed.",
            "Vulkan may run it: `vivace extras add vulkan`.",
        )
    built = machine.built.get("cuda")
    if built is None:
        return (
            f"The {gpu.gpu} is not used: llama.cpp is not built for it.",
            "Do that with `vivace extras add cuda`.",
        )
    if built.capabilities and _dotted(gpu.capability) not in built.capabilities:
        return (
            f"llama.cpp was built for other GPUs than the {gpu.gpu} ({', '.join(built.capabilities)}; "
            f"it has {_dotted(gpu.capability)}).",
            "Build it again with `vivace extras add cuda`.",
        )
    if gpu.driver_cuda[0] < built.toolkit[0]:
        return (
            f"NVIDIA's driver {gpu.driver} is too old: it runs CUDA up to {_dotted(gpu.driver_cuda)}, "
            f"and llama.cpp was built with {_dotted(built.toolkit)}.",
            "Update the driver, or build it again with an older CUDA: `vivace extras add cuda`.",
        )
    return None


def _rank_vulkan(machine: Machine, index: int | None) -> Ranking:
    if machine.system == "Darwin":
        return Ranking((), (Refusal("On a Mac llama.cpp uses Metal, not Vulkan.", 'Set device to "metal".'),))
    if not machine.has_vulkan:
        hint = (
            "Install your GPU's driver for Vulkan, and its loader (Debian: libvulkan1, mesa-vulkan-drivers)."
        )
        return Ranking((), (Refusal("There is no Vulkan on this machine.", hint),))
    if "vulkan" not in machine.built:
        whose = (
            f"The GPU of {' and '.join(machine.other_gpus)} is not used: llama.cpp"
            if machine.other_gpus
            else "llama.cpp"
        )
        return Ranking(
            (), (Refusal(f"{whose} is not built for Vulkan.", "Do that with `vivace extras add vulkan`."),)
        )
    return Ranking((RunnerChoice("llama.cpp", "vulkan", index or 0),), ())


def _rank_metal(machine: Machine, _index: int | None) -> Ranking:
    if machine.system != "Darwin":
        return Ranking((), (Refusal("Metal is there on Macs only.", DOCTOR),))
    if not machine.has_metal:
        return Ranking((), (Refusal("Metal is used on Macs with Apple's chips only.", DOCTOR),))
    return Ranking((RunnerChoice("llama.cpp", "metal"),), ())


def _dotted(version: tuple[int, int]) -> str:
    return f"{version[0]}.{version[1]}"
