"""What must be on this machine to build llama.cpp for a GPU, and how to install what is missing.

Owns finding compilers and the words about them. Does not install anything and does not build (`building`).
"""

import os
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass

from vivace.programs import find_program

NVCC_PLACES = ("/usr/local/cuda/bin", "/opt/cuda/bin")
OLDEST_NVCC = {(8, 9): (11, 8), (9, 0): (11, 8), (10, 0): (12, 8), (12, 0): (12, 8)}  # by the GPU
OLDEST_HEADERS = 272  # of Vulkan 1.3: those of Debian 12 and Ubuntu 22.04 lack what ggml asks for
_HEADERS = {"vulkan/vulkan.hpp": "headers", "spirv/unified1/spirv.hpp": "spirv"}
_NEEDS = ("nvcc", "glslc", "headers", "spirv")
_PACKAGES = {  # by package manager: those that bring each need, in the order of _NEEDS
    "apt-get": ("nvidia-cuda-toolkit", "glslc", "libvulkan-dev", "spirv-headers"),
    "dnf": ("cuda-toolkit", "glslc", "vulkan-headers vulkan-loader-devel", "spirv-headers-devel"),
    "zypper": ("cuda-toolkit", "shaderc", "vulkan-devel", "spirv-headers"),
    "pacman": ("cuda", "shaderc", "vulkan-headers vulkan-icd-loader", "spirv-headers"),
}
_COMMANDS = {"pacman": "sudo pacman -S"}


@dataclass(frozen=True)
class Nvcc:
    """NVIDIA's compiler; the defaults say that there is none."""

    path: str = ""
    version: tuple[int, int] = (0, 0)


NO_NVCC = Nvcc()
# What a build gets for itself from the package index, with its libraries: for any driver for CUDA 13.
INDEX_NVCC, INDEX_NVCC_MB = Nvcc("", (13, 2)), 600


def find_nvcc(environ: dict[str, str] | None = None) -> Nvcc:
    """Return the compiler of CUDA_HOME, of the path, or of the usual places."""
    env = os.environ if environ is None else environ
    homes = [f"{env[name]}/bin" for name in ("CUDA_HOME", "CUDA_PATH") if env.get(name)]
    places = os.pathsep.join([*homes, env.get("PATH", ""), *NVCC_PLACES])
    found = find_program("nvcc", environ={"PATH": places})
    if not found:
        return NO_NVCC
    try:
        said = subprocess.run([found, "--version"], capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return NO_NVCC
    match = re.search(r"release (\d+)\.(\d+)", said.stdout)
    return Nvcc(found, (int(match[1]), int(match[2]))) if match else NO_NVCC


def missing_for_vulkan(environ: Mapping[str, str] = os.environ) -> tuple[str, ...]:
    """Return the needs that are not met: glslc, headers, newer headers, spirv."""
    compiler = (environ.get("CXX", "") or "c++").split()
    compiler[:1] = [find_program(compiler[0], environ=environ) or compiler[0]]
    include = [f"-I{environ['VULKAN_SDK']}/include"] if environ.get("VULKAN_SDK") else []

    def fails(probe: str) -> bool:
        command = [*compiler, *include, "-x", "c++", "-E", "-"]
        try:
            return bool(
                subprocess.run(
                    command, input=probe, text=True, capture_output=True, timeout=20, check=False
                ).returncode
            )
        except (OSError, subprocess.SubprocessError):
            return True

    missing = [] if find_program("glslc", environ=environ) else ["glslc"]
    missing += [
        need for header, need in _HEADERS.items() if fails(f"#if !__has_include(<{header}>)\n#error\n#endif")
    ]
    if "headers" not in missing and fails(
        f"#include <vulkan/vulkan_core.h>\n#if VK_HEADER_VERSION < {OLDEST_HEADERS}\n#error\n#endif"
    ):
        missing.append("newer headers")
    return tuple(missing)


def how_to_install(needs: tuple[str, ...]) -> str:
    """Return the command that installs the needs here, or how to find them."""
    for manager, packages in _PACKAGES.items():
        if "newer headers" not in needs and find_program(manager):
            names = " ".join(packages[_NEEDS.index(need)] for need in needs)
            return f"{_COMMANDS.get(manager, f'sudo {manager} install')} {names}"
    if needs == ("nvcc",):
        return "the CUDA toolkit from developer.nvidia.com/cuda-downloads"
    sdk = "the Vulkan SDK from vulkan.lunarg.com, and set VULKAN_SDK as it says"
    return f"{sdk} (headers of 1.3.{OLDEST_HEADERS} or newer)" if "newer headers" in needs else sdk
