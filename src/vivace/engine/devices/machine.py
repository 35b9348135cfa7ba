"""What this machine has to compute with: GPUs, drivers, and the parts of llama.cpp that were built for them.

Owns gathering the facts. Does not judge them (`ranking`).
"""

import ctypes
import platform
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from vivace.engine.devices.backend_files import BackendName, BuiltBackend, find_built
from vivace.engine.runners.gpu_check import GpuInfo, detect_gpus

VENDORS = {"0x1002": "AMD", "0x8086": "Intel"}  # of PCI
_CARDS = Path("/sys/class/drm")


@dataclass(frozen=True)
class Machine:
    """The facts. The defaults describe a Linux machine without any GPU."""

    system: str = "Linux"  # or Darwin
    architecture: str = "x86_64"
    nvidia: tuple[GpuInfo, ...] = (GpuInfo(),)  # never empty: the first says why there is none
    other_gpus: tuple[str, ...] = ()  # makers of GPUs that Vulkan may reach
    has_vulkan: bool = False  # its loader is installed
    built: Mapping[BackendName, BuiltBackend] = field(default_factory=dict)

    @property
    def has_metal(self) -> bool:
        """Return whether llama.cpp's ordinary build uses the GPU here. On Intel Macs the CPU is faster."""
        return self.system == "Darwin" and self.architecture == "arm64"


DetectMachine = Callable[[], Machine]


def detect_machine(cache_dir: Path) -> Machine:
    if sys.platform == "darwin":
        return Machine("Darwin", platform.machine())
    return Machine(
        platform.system(),
        platform.machine(),
        detect_gpus(),
        find_other_gpus(_CARDS),
        _has_vulkan(),
        find_built(cache_dir),
    )


def find_other_gpus(cards: Path) -> tuple[str, ...]:
    """Return the makers of this machine's GPUs that are not NVIDIA's, as the kernel lists them."""
    found = set()
    for file in sorted(cards.glob("card*/device/vendor")):
        try:
            found.add(VENDORS.get(file.read_text("ascii").strip(), ""))
        except OSError:
            continue
    return tuple(sorted(found - {""}))


def _has_vulkan() -> bool:
    try:
        ctypes.CDLL("libvulkan.so.1")
    except OSError:
        return False
    return True
