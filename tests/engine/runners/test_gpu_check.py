"""Which runner computes: each machine that cannot says why in one sentence, and what to do about it."""

from dataclasses import replace
from pathlib import Path

import pytest

from vivace.engine.devices.machine import Machine
from vivace.engine.loop.opening import open_runner
from vivace.engine.loop.worker import step_costs
from vivace.engine.runners.gpu_check import GpuInfo, check_gpu, check_memory, detect_gpu
from vivace.engine.wire.job import Job
from vivace.errors import StartError

GOOD = GpuInfo(
    driver="580.159",
    driver_cuda=(13, 0),
    gpu="NVIDIA H200",
    capability=(9, 0),
    shared_bytes=227 << 10,
    torch="2.11.0",
    torch_cuda=(13, 0),
    free_bytes=139 << 30,
    total_bytes=141 << 30,
)

BAD = {
    "no driver": (GpuInfo(), "There is no NVIDIA driver on this machine.", "Install it"),
    "no GPU": (
        GpuInfo(driver="580.159", driver_cuda=(13, 0), error="CUDA error 100"),
        "NVIDIA's driver 580.159 shows no GPU (CUDA error 100).",
        "nvidia-smi",
    ),
    "old GPU": (
        replace(GOOD, gpu="NVIDIA GeForce RTX 3090", capability=(8, 6)),
        "Our kernels are not for the NVIDIA GeForce RTX 3090: compute capability 8.6, "
        "9.0 (Hopper) is needed.",
        "`vivace extras add cuda`",
    ),
    "missing extra": (
        replace(GOOD, missing=("torch", "gguf")),
        "There is an NVIDIA H200, but the extra for it is not installed: torch, gguf missing.",
        "Add it with `vivace extras add cuda`.",
    ),
    "torch for CPUs": (
        replace(GOOD, torch="2.13.0+cpu", torch_cuda=(0, 0)),
        "torch 2.13.0+cpu is built without CUDA.",
        "Install the build of torch for CUDA.",
    ),
    "old driver": (
        replace(GOOD, driver="535.54", driver_cuda=(12, 2)),
        "NVIDIA's driver 535.54 is too old: it runs CUDA up to 12.2, torch 2.11.0 needs 13.0.",
        "Update the driver, or install torch for CUDA 12.",
    ),
}


def test_a_good_machine_is_taken() -> None:
    """Nothing is said of a machine that can."""
    check_gpu(GOOD)
    check_gpu(replace(GOOD, driver_cuda=(13, 2)))
    check_memory(GOOD, weight_bytes=5 << 30, kv_bytes=1 << 30, shared_bytes=200 << 10)


@pytest.mark.parametrize("case", BAD)
def test_a_machine_that_cannot_says_why(case: str) -> None:
    """One sentence that says what was found, and one that says what to do."""
    found, message, hint = BAD[case]
    with pytest.raises(StartError) as raised:
        check_gpu(found)
    assert raised.value.message == message
    assert hint in raised.value.hint


def test_too_little_memory() -> None:
    """What is free, what is needed, and how to need less."""
    small = replace(GOOD, free_bytes=2 * 10**9, total_bytes=8 * 10**9)
    with pytest.raises(StartError, match=r"has 2\.0 GB of its 8\.0 GB free; this model needs 5\.5 GB"):
        check_memory(small, weight_bytes=4_500_000_000, kv_bytes=1_000_000_000, shared_bytes=0)
    with pytest.raises(StartError, match=r"has 99 KB of shared memory a block; .* need 157 KB"):
        check_memory(replace(GOOD, shared_bytes=99 << 10), weight_bytes=0, kv_bytes=0, shared_bytes=157 << 10)


def test_the_cpu_takes_over(smol: Path) -> None:
    """By itself the engine goes on without the GPU, with one line; insisted upon, it does not start."""
    machine = Machine(nvidia=(BAD["old driver"][0],))
    opened = open_runner(Job("smol", str(smol), context_tokens=256, threads=1), lambda: machine)
    opened.runner.close()
    assert opened.runner.info.device == "cpu"
    line = opened.why_no_gpu
    assert line.startswith("NVIDIA's driver 535.54 is too old")
    assert line.endswith("Update the driver, or install torch for CUDA 12.")
    insisting = Job("smol", str(smol), context_tokens=256, device="cuda")
    with pytest.raises(StartError, match="too old"):
        open_runner(insisting, lambda: machine)


def test_where_there_is_no_gpu_nothing_is_said(smol: Path) -> None:
    """Most machines have none, and nobody there misses it."""
    opened = open_runner(Job("smol", str(smol), context_tokens=256, threads=1), Machine)
    opened.runner.close()
    assert opened.why_no_gpu == ""


def test_a_wish_for_the_cpu_asks_nothing(smol: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With device = "cpu" nobody looks for a GPU, and nothing is said."""

    def never() -> Machine:
        raise AssertionError("nobody should look")

    runner = open_runner(Job("smol", str(smol), context_tokens=256, threads=1, device="cpu"), never).runner
    assert step_costs(Job("smol", "", 256, step_costs={1: 5.0}), runner).ms(1) == 5.0
    runner.close()
    assert capsys.readouterr().err == ""


def test_looking_never_fails() -> None:
    """Whatever machine the tests run on, it is described."""
    found = detect_gpu()
    assert isinstance(found.driver, str)
