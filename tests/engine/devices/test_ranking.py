"""Which runner on which device: a table of machines, and what is said where something better is not used."""

from dataclasses import replace

import pytest

from tests.engine.runners.test_gpu_check import GOOD
from vivace.engine.devices.backend_files import BuiltBackend
from vivace.engine.devices.machine import Machine
from vivace.engine.devices.ranking import engine_devices, rank_runners
from vivace.engine.runners.gpu_check import GpuInfo
from vivace.engine.wire.device import DeviceWish, parse_device
from vivace.errors import StartError

AUTO = DeviceWish("auto")
BARE = replace(GOOD, torch="", torch_cuda=(0, 0), missing=("torch", "triton"), free_bytes=0)


def nvidia(name: str, major: int, minor: int, gigabytes: int = 24, like: GpuInfo = BARE) -> GpuInfo:
    return replace(like, gpu=name, capability=(major, minor), total_bytes=gigabytes << 30)


def built(*capabilities: str, toolkit: tuple[int, int] = (12, 8)) -> BuiltBackend:
    return BuiltBackend("cuda", "/cache/libggml-cuda.so", toolkit, capabilities)


VULKAN = BuiltBackend("vulkan", "/cache/libggml-vulkan.so")
GTX, T4, A100 = nvidia("GTX 1080", 6, 1), nvidia("Tesla T4", 7, 5, 16), nvidia("A100", 8, 0, 80)
RTX3090, L40S, RTX5090 = nvidia("RTX 3090", 8, 6), nvidia("L40S", 8, 9, 48), nvidia("RTX 5090", 12, 0, 32)
B200 = nvidia("B200", 10, 0, 180, like=GOOD)

MACHINES: dict[str, tuple[Machine, list[str], str]] = {
    "no GPU": (Machine(), [], ""),
    "a driver without a GPU": (
        Machine(nvidia=(GpuInfo("580.159", (13, 0), "CUDA error 100"),)),
        [],
        "NVIDIA's driver 580.159 shows no GPU (CUDA error 100).",
    ),
    "sm_61": (Machine(nvidia=(GTX,)), [], "The GTX 1080 is too old for CUDA here: compute capability 6.1"),
    "sm_61 with Vulkan": (
        Machine(nvidia=(GTX,), has_vulkan=True, built={"vulkan": VULKAN}),
        ["llama.cpp on vulkan:0"],
        "too old for CUDA here",
    ),
    "sm_75": (Machine(nvidia=(T4,)), [], "The Tesla T4 is not used: llama.cpp is not built for it."),
    "sm_75, built": (Machine(nvidia=(T4,), built={"cuda": built("7.5")}), ["llama.cpp on cuda:0"], ""),
    "sm_80, built": (Machine(nvidia=(A100,), built={"cuda": built("8.0")}), ["llama.cpp on cuda:0"], ""),
    "sm_86": (
        Machine(nvidia=(RTX3090,)),
        [],
        "The RTX 3090 is not used: llama.cpp is not built for it. Do that",
    ),
    "sm_86, built": (Machine(nvidia=(RTX3090,), built={"cuda": built("8.6")}), ["llama.cpp on cuda:0"], ""),
    "sm_89, built": (Machine(nvidia=(L40S,), built={"cuda": built("8.9")}), ["llama.cpp on cuda:0"], ""),
    "sm_89, built for another GPU": (
        Machine(nvidia=(L40S,), built={"cuda": built("8.6")}),
        [],
        "llama.cpp was built for other GPUs than the L40S (8.6; it has 8.9).",
    ),
    "sm_90": (Machine(nvidia=(GOOD,)), ["our kernels on cuda:0"], ""),
    "sm_90, llama.cpp built too": (
        Machine(nvidia=(GOOD,), built={"cuda": built("9.0")}),
        ["our kernels on cuda:0", "llama.cpp on cuda:0"],
        "",
    ),
    "sm_90 without torch": (
        Machine(nvidia=(BARE,)),
        [],
        "There is an NVIDIA H200, but the extra for it is not installed: torch, triton missing. Add it",
    ),
    "sm_90 without torch, llama.cpp built": (
        Machine(nvidia=(BARE,), built={"cuda": built("9.0")}),
        ["llama.cpp on cuda:0"],
        "the extra for it is not installed",
    ),
    "sm_90, torch for CPUs": (
        Machine(nvidia=(replace(GOOD, torch="2.13.0+cpu", torch_cuda=(0, 0)),)),
        [],
        "torch 2.13.0+cpu is built without CUDA.",
    ),
    "sm_100": (Machine(nvidia=(B200,)), ["our kernels on cuda:0"], ""),
    "sm_120": (Machine(nvidia=(RTX5090,)), [], "The RTX 5090 is not used: llama.cpp is not built for it."),
    "sm_120, built": (Machine(nvidia=(RTX5090,), built={"cuda": built("12.0")}), ["llama.cpp on cuda:0"], ""),
    "sm_90, driver too old": (
        Machine(nvidia=(replace(GOOD, driver="535.54", driver_cuda=(12, 2)),)),
        [],
        "NVIDIA's driver 535.54 is too old: it runs CUDA up to 12.2, torch 2.11.0 needs 13.0.",
    ),
    "sm_86, driver too old for the toolkit": (
        Machine(
            nvidia=(replace(RTX3090, driver="535.54", driver_cuda=(12, 2)),),
            built={"cuda": built("8.6", toolkit=(13, 0))},
        ),
        [],
        "NVIDIA's driver 535.54 is too old: it runs CUDA up to 12.2, and llama.cpp was built with 13.0.",
    ),
    "two different GPUs, the better one second": (
        Machine(nvidia=(RTX3090, replace(GOOD, total_bytes=141 << 30)), built={"cuda": built("8.6", "9.0")}),
        ["our kernels on cuda:1", "llama.cpp on cuda:1", "llama.cpp on cuda:0"],
        "",
    ),
    "two GPUs for llama.cpp, the larger one first": (
        Machine(nvidia=(RTX3090, L40S), built={"cuda": built("8.6", "8.9")}),
        ["llama.cpp on cuda:1", "llama.cpp on cuda:0"],
        "",
    ),
    "macOS arm64": (Machine("Darwin", "arm64"), ["llama.cpp on metal"], ""),
    "macOS x86": (Machine("Darwin", "x86_64"), [], ""),
    "AMD": (
        Machine(other_gpus=("AMD",), has_vulkan=True),
        [],
        "The GPU of AMD is not used: llama.cpp is not built for Vulkan. Do that with `vivace extras add",
    ),
    "AMD without Vulkan": (Machine(other_gpus=("AMD",)), [], "There is no Vulkan on this machine."),
    "AMD with Vulkan": (
        Machine(other_gpus=("AMD",), has_vulkan=True, built={"vulkan": VULKAN}),
        ["llama.cpp on vulkan:0"],
        "",
    ),
    "Intel, which nobody misses": (Machine(other_gpus=("Intel",), has_vulkan=True), [], ""),
}


@pytest.mark.parametrize("case", MACHINES)
def test_a_machine_gets_its_best_runner(case: str) -> None:
    """By itself: the best first, the CPU always last, and one sentence of what would be better."""
    machine, choices, why = MACHINES[case]
    ranking = rank_runners(machine, AUTO)
    assert [str(choice) for choice in ranking.choices] == [*choices, "llama.cpp on cpu"]
    assert (why in ranking.why_no_gpu) if why else ranking.why_no_gpu == ""


@pytest.mark.parametrize(
    ("machine", "device", "message"),
    [
        (Machine(), "cuda", "There is no NVIDIA driver on this machine."),
        (Machine(nvidia=(RTX3090,)), "cuda", "The RTX 3090 is not used: llama.cpp is not built for it."),
        (Machine(nvidia=(GOOD,)), "cuda:1", "There is no GPU cuda:1. There are: cuda:0 NVIDIA H200."),
        (Machine(), "vulkan", "There is no Vulkan on this machine."),
        (Machine(has_vulkan=True), "vulkan:1", "llama.cpp is not built for Vulkan."),
        (Machine("Darwin", "arm64"), "vulkan", "On a Mac llama.cpp uses Metal, not Vulkan."),
        (Machine(), "metal", "Metal is there on Macs only."),
        (Machine("Darwin", "x86_64"), "metal", "Metal is used on Macs with Apple's chips only."),
    ],
)
def test_a_device_that_is_not_there_is_refused(machine: Machine, device: str, message: str) -> None:
    """A named device is insisted upon: what is wrong is said, and that the CPU would do."""
    with pytest.raises(StartError) as refused:
        rank_runners(machine, parse_device(device))
    assert refused.value.message == message
    assert refused.value.hint.endswith('Or set device to "cpu" in config.toml.')


def test_a_wish_is_met_without_falling_back_to_the_cpu() -> None:
    """The kind is insisted upon, the runner is not: llama.cpp may take what our kernels refuse."""
    machine = Machine(
        nvidia=(GOOD, RTX3090), has_vulkan=True, built={"cuda": built("9.0", "8.6"), "vulkan": VULKAN}
    )

    def ranked(device: str) -> list[str]:
        return [str(choice) for choice in rank_runners(machine, parse_device(device)).choices]

    assert ranked("cuda") == ["our kernels on cuda:0", "llama.cpp on cuda:0", "llama.cpp on cuda:1"]
    assert ranked("cuda:1") == ["llama.cpp on cuda:1"]
    assert ranked("vulkan:1") == ["llama.cpp on vulkan:1"]
    assert ranked("cpu") == ["llama.cpp on cpu"]


def test_gpus_that_run_the_same_get_an_engine_each() -> None:
    """The best one first; one that would need another runner is left out."""
    machine = Machine(nvidia=(RTX3090, GOOD, GOOD), built={"cuda": built("8.6")})
    best = rank_runners(machine, AUTO).choices[0]
    assert engine_devices(machine, best) == ["cuda:1", "cuda:2"]
    assert engine_devices(machine, rank_runners(machine, DeviceWish("cpu")).choices[0]) == ["cpu"]
