"""Opening a runner: the next one where the best fails, one GPU for a process, and what is said."""

import weakref
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

import pytest

from tests.engine.devices.test_ranking import RTX3090, VULKAN, built
from tests.engine.runners.test_gpu_check import GOOD
from vivace.engine.devices.machine import Machine, find_other_gpus
from vivace.engine.loop.opening import open_runner, with_one_gpu
from vivace.engine.wire.job import Job
from vivace.errors import StartError


def job_on(device: str, smol: Path) -> Job:
    return Job("smol", str(smol), context_tokens=256, threads=1, device=device)


def test_where_the_best_fails_the_next_one_runs(smol: Path) -> None:
    """A library that cannot be loaded is said, and the CPU computes; insisted upon, nothing does."""
    machine = Machine(nvidia=(RTX3090,), has_vulkan=True, built={"cuda": built("8.6"), "vulkan": VULKAN})
    opened = open_runner(job_on("auto", smol), lambda: machine)
    opened.runner.close()
    assert opened.place == "llama.cpp on the CPU"
    assert "llama.cpp could not load /cache/libggml-cuda.so." in opened.why_no_gpu
    assert "llama.cpp could not load /cache/libggml-vulkan.so." in opened.why_no_gpu
    with pytest.raises(StartError, match="could not load"):
        open_runner(job_on("vulkan", smol), lambda: machine)


def test_what_a_runner_that_failed_held_is_given_back(smol: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights that were loaded for nothing would leave no room for the next one."""
    held: list[weakref.ref[object]] = []

    class Weights:
        def __init__(self) -> None:
            self.own = self  # as a runner and its parts know each other
            held.append(weakref.ref(self))

    def fail(*_: object) -> NoReturn:
        weights = Weights()
        raise StartError("Its kernels have left what is no number.", "Please report this.") from ValueError(
            weights
        )

    monkeypatch.setattr("vivace.engine.loop.opening.open_kernels", fail)
    opened = open_runner(job_on("auto", smol), lambda: Machine(nvidia=(GOOD,)))
    opened.runner.close()
    assert opened.place == "llama.cpp on the CPU"
    assert opened.why_no_gpu == "Its kernels have left what is no number. Please report this."
    assert held[0]() is None


def test_a_build_without_metal_says_so(smol: Path) -> None:
    """llama.cpp as pip brought it may lack what a Mac could use."""
    machine = Machine("Darwin", "arm64")
    opened = open_runner(job_on("auto", smol), lambda: machine)
    opened.runner.close()
    assert opened.why_no_gpu.startswith("llama.cpp finds no device metal:0 (it finds none).")


def test_the_process_starts_again_for_another_gpu_than_the_first(smol: Path) -> None:
    """CUDA reads once which GPUs are visible; those that could serve are kept for the server."""
    machine = Machine(
        nvidia=(RTX3090, replace(GOOD, total_bytes=141 << 30), replace(GOOD, total_bytes=80 << 30))
    )

    class RestartedError(Exception):
        pass

    def restart(device: str, devices: list[str]) -> NoReturn:
        raise RestartedError(device, devices)

    with pytest.raises(RestartedError) as restarted:
        open_runner(job_on("auto", smol), lambda: machine, restart)
    assert restarted.value.args == ("cuda:1", ["cuda:1", "cuda:2"])


@pytest.mark.parametrize(
    ("visible", "device", "seen"),
    [("", "cuda:1", "1"), ("2,5", "cuda:1", "5"), ("3", "cuda", "3"), ("", "auto", "")],
)
def test_one_gpu_is_visible(visible: str, device: str, seen: str) -> None:
    """An index counts what the user made visible; without one nothing is changed."""
    environ = {"CUDA_VISIBLE_DEVICES": visible} if visible else {}
    job = with_one_gpu(Job("m", "", context_tokens=256, device=device), environ)
    assert environ.get("CUDA_VISIBLE_DEVICES", "") == seen
    assert (job.device, job.gpu_name) == (("cuda", device) if ":" in device else (device, ""))


def test_a_gpu_that_is_not_visible_is_refused() -> None:
    with pytest.raises(StartError, match="no GPU cuda:2: CUDA_VISIBLE_DEVICES names 2"):
        with_one_gpu(Job("m", "", context_tokens=256, device="cuda:2"), {"CUDA_VISIBLE_DEVICES": "0,1"})


def test_makers_of_gpus_are_read_from_the_kernel(tmp_path: Path) -> None:
    """Those that Vulkan reaches; NVIDIA's are asked otherwise, and a server's own screen is none."""
    for card, vendor in {"card0": "0x1002", "card1": "0x10de", "card2": "0x1a03", "card3": "0x8086"}.items():
        (tmp_path / card / "device").mkdir(parents=True)
        (tmp_path / card / "device" / "vendor").write_text(f"{vendor}\n")
    assert find_other_gpus(tmp_path) == ("AMD", "Intel")
    assert find_other_gpus(tmp_path / "none") == ()
