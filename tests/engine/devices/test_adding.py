"""`vivace extras add cuda` and `add vulkan`: which way it is on a machine, or what to install first."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.engine.devices.test_ranking import B200, BARE, GTX, L40S, RTX3090, RTX5090, T4
from vivace.engine.devices.adding import plan_addition
from vivace.engine.devices.backend_files import BackendName
from vivace.engine.devices.machine import Machine
from vivace.engine.devices.toolchain import INDEX_NVCC, NO_NVCC, Nvcc, how_to_install, missing_for_vulkan
from vivace.engine.runners.gpu_check import GpuInfo
from vivace.errors import StartError

NVCC = Nvcc("/usr/local/cuda/bin/nvcc", (12, 8))


@pytest.mark.parametrize(
    ("machine", "way", "capabilities", "words"),
    [
        (
            Machine(nvidia=(BARE,)),
            "packages",
            (),
            "NVIDIA H200 (compute capability 9.0): our own kernels run",
        ),
        (Machine(nvidia=(B200,)), "packages", (), "B200 (compute capability 10.0): our own kernels"),
        (Machine(nvidia=(RTX3090, BARE)), "packages", (), "NVIDIA H200"),
        (
            Machine(nvidia=(RTX3090,)),
            "build",
            ("8.6",),
            "so llama.cpp will use it, built here with nvcc 12.8.",
        ),
        (Machine(nvidia=(RTX3090, L40S, GTX)), "build", ("8.6", "8.9"), "about 20 minutes on 8 cores"),
        (Machine(nvidia=(RTX5090,)), "build", ("12.0",), "RTX 5090 (compute capability 12.0)"),
        (Machine(nvidia=(T4,)), "build", ("7.5",), "about 10 minutes on 8 cores"),
    ],
)
def test_cuda(machine: Machine, way: str, capabilities: tuple[str, ...], words: str) -> None:
    """Our kernels where they run, or else llama.cpp, built for the GPUs that are there."""
    addition = plan_addition("cuda", machine, NVCC, (), 8)
    assert (addition.way, addition.capabilities) == (way, capabilities)
    assert words in addition.words


@pytest.mark.parametrize(
    ("gpu", "found"), [(RTX3090, NO_NVCC), (RTX5090, Nvcc("nvcc", (12, 4))), (T4, Nvcc("nvcc", (14, 0)))]
)
def test_a_compiler_that_does_not_fit_comes_with_the_build(gpu: GpuInfo, found: Nvcc) -> None:
    """Where the driver is for CUDA 13: nothing has to be installed by hand."""
    addition = plan_addition("cuda", Machine(nvidia=(gpu,)), found, (), 8)
    assert addition.nvcc == INDEX_NVCC
    assert "nvcc 13.2, which pip downloads with what it needs (about 600 MB)" in addition.words


def test_a_compiler_that_fits_is_used() -> None:
    addition = plan_addition("cuda", Machine(nvidia=(RTX3090,)), NVCC, (), 8)
    assert addition.nvcc == NVCC


@pytest.mark.parametrize("machine", [Machine(nvidia=(BARE,)), Machine(nvidia=(BARE, RTX3090))])
def test_llama_cpp_beside_our_kernels(machine: Machine) -> None:
    """For models that they do not know, if one asks for it; who does not is told how."""
    addition = plan_addition("cuda", machine, NO_NVCC, (), 16, wants_llama=True)
    assert addition.way == "build"
    assert "9.0" in addition.capabilities
    assert "llama.cpp will run on it what our own kernels do not know" in addition.words
    assert "--llama-cpp" in plan_addition("cuda", machine, NO_NVCC, (), 16).words


@pytest.mark.parametrize(
    ("name", "machine", "nvcc", "message", "hint"),
    [
        ("cuda", Machine(), NVCC, "There is no NVIDIA driver on this machine.", "Install it"),
        ("cuda", Machine(nvidia=(GTX,)), NVCC, "is too old for CUDA here", "`vivace extras add vulkan`"),
        (
            "cuda",
            Machine(nvidia=(replace(RTX3090, driver="535.54", driver_cuda=(12, 2)),)),
            NO_NVCC,
            "nvcc is needed, NVIDIA's compiler. The driver 535.54 runs CUDA up to 12.2",
            "Update the driver, or install nvcc: ",
        ),
        (
            "cuda",
            Machine(nvidia=(replace(RTX5090, driver_cuda=(12, 8)),)),
            Nvcc("nvcc", (12, 4)),
            "needs nvcc 12.8 or newer; nvcc is 12.4",
            "",
        ),
        (
            "cuda",
            Machine(nvidia=(replace(RTX3090, driver="535.54", driver_cuda=(12, 2)),)),
            Nvcc("nvcc", (13, 0)),
            "nvcc 13.0 is too new for NVIDIA's driver 535.54, which runs CUDA up to 12.2.",
            "CUDA_HOME",
        ),
        ("cuda", Machine("Darwin", "arm64"), NVCC, "A Mac needs no extra for its GPU.", "Metal"),
        ("vulkan", Machine("Darwin", "arm64"), NVCC, "A Mac needs no extra for its GPU.", "Metal"),
    ],
)
def test_a_machine_that_cannot_is_told_what_to_do(
    name: BackendName, machine: Machine, nvcc: Nvcc, message: str, hint: str
) -> None:
    """Before anything is downloaded."""
    with pytest.raises(StartError) as refused:
        plan_addition(name, machine, nvcc, (), 8)
    assert message in refused.value.message
    assert hint in refused.value.hint


def test_vulkan() -> None:
    """What it is for, how long it takes, and that CUDA would be faster where it would."""
    addition = plan_addition("vulkan", Machine(other_gpus=("AMD",)), NO_NVCC, (), 4)
    assert addition.words.startswith(
        "llama.cpp with Vulkan, for the GPU of AMD. Building takes about 20 minutes"
    )
    assert "extras add cuda" in plan_addition("vulkan", Machine(nvidia=(L40S,)), NO_NVCC, (), 4).words
    with pytest.raises(StartError, match="is missing here: glslc, spirv"):
        plan_addition("vulkan", Machine(), NO_NVCC, ("glslc", "spirv"), 4)


@pytest.mark.parametrize(("version", "missing"), [(239, ("newer headers",)), (272, ()), (309, ())])
def test_old_headers_of_vulkan_are_named(tmp_path: Path, version: int, missing: tuple[str, ...]) -> None:
    """Before half an hour of shaders: ggml does not compile with those of Debian 12."""
    for header in ("vulkan/vulkan.hpp", "vulkan/vulkan_core.h", "spirv/unified1/spirv.hpp"):
        file = tmp_path / "include" / header
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"#define VK_HEADER_VERSION {version}\n")
    (tmp_path / "glslc").write_text("#!/bin/sh\n")
    (tmp_path / "glslc").chmod(0o755)
    environ = {"PATH": str(tmp_path), "VULKAN_SDK": str(tmp_path)}
    assert missing_for_vulkan(environ) == missing
    assert missing_for_vulkan(environ | {"PATH": ""}) == ("glslc", *missing)
    assert "vulkan.lunarg.com" in how_to_install(("newer headers",))
