"""What the engine derives from this machine: how many threads, and which CPU features it has.

Built once at start, shown by `vivace doctor`. Does not read settings or the environment.
"""

import os
import platform
import subprocess
from pathlib import Path

from vivace.programs import find_program

SPIN_COUNT = "100"  # threads soon sleep at a barrier: see benchmarks/engine/threads.py
_TOPOLOGY = Path("/sys/devices/system/cpu")
_CGROUP_QUOTA = Path("/sys/fs/cgroup/cpu.max")


def choose_threads(wanted: int = 0) -> int:
    """Return one thread for each fast physical core: a pass waits for its slowest thread."""
    if wanted > 0:
        return wanted
    if platform.system() == "Darwin":
        return _sysctl("hw.perflevel0.physicalcpu") or _sysctl("hw.physicalcpu") or os.cpu_count() or 1
    allowed = sorted(os.sched_getaffinity(0))
    return max(1, min(_fast_cores(allowed), _quota(len(allowed))))


def cpu_features() -> list[str]:
    """Return the CPU features that decide which kernels llama.cpp may use."""
    if platform.system() == "Darwin":
        brand = _run_sysctl("machdep.cpu.brand_string")
        return [brand] if brand else []
    x86 = ["avx2", "avx512f", "avx512_vnni", "avx_vnni", "amx_int8", "f16c", "fma"]
    arm = ["asimddp", "i8mm", "sve", "sve2", "bf16", "asimdhp"]
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.lower().startswith(("flags", "features")):
            present = set(line.split(":", 1)[1].split())
            return [feature for feature in x86 + arm if feature in present]
    return []


def memory_bytes() -> tuple[int, int]:
    """Return total and available memory."""
    page = os.sysconf("SC_PAGE_SIZE")
    total = page * os.sysconf("SC_PHYS_PAGES")
    meminfo = Path("/proc/meminfo")
    if meminfo.exists():
        for line in meminfo.read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return total, int(line.split()[1]) * 1024
    return total, total


def _fast_cores(allowed: list[int]) -> int:
    """Count physical cores among the allowed CPUs, without the slow ones of a mixed processor."""
    cores: dict[str, int] = {}
    for cpu in allowed:
        folder = _TOPOLOGY / f"cpu{cpu}"
        siblings = _read(folder / "topology/thread_siblings_list") or str(cpu)
        capacity = int(_read(folder / "cpu_capacity") or _read(folder / "cpufreq/cpuinfo_max_freq") or 0)
        cores[siblings] = max(cores.get(siblings, 0), capacity)
    fastest = max(cores.values())
    return sum(1 for capacity in cores.values() if capacity >= 0.7 * fastest)


def _quota(default: int) -> int:
    """Return how many CPUs' time a container may use."""
    words = _read(_CGROUP_QUOTA).split()
    if len(words) == 2 and words[0] != "max":
        return max(1, int(words[0]) // int(words[1]))
    return default


def _read(file: Path) -> str:
    try:
        return file.read_text().strip()
    except OSError:
        return ""


def _sysctl(name: str) -> int:
    text = _run_sysctl(name)
    return int(text) if text.isdigit() else 0


def _run_sysctl(name: str) -> str:
    program = find_program("sysctl") or "/usr/sbin/sysctl"
    done = subprocess.run([program, "-n", name], capture_output=True, text=True, check=False)
    return done.stdout.strip()
