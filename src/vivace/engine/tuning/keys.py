"""Names for a model file, this machine and llama.cpp, which together say what a measurement holds for.

Owns the names of the files that tuning makes. Light: every command that uses a model asks whether one is
there. Does not know what is in them (`profile`).
"""

import hashlib
import os
import platform
from pathlib import Path

from vivace.config import Settings
from vivace.engine.tuning.cpu import choose_threads, cpu_features
from vivace.models import store

LIBRARY = "llama-cpp-python"
BLOCK_BYTES = 1 << 16
MACHINE_DIGITS = 12


def profile_path(settings: Settings, path: Path) -> Path:
    """Return the path of the profile for this model file, machine and llama.cpp."""
    return store.tuned_dir(settings) / f"{file_prefix(path)}.{machine_key()}.{library_version()}.json"


def journal_path(settings: Settings, path: Path) -> Path:
    """Return the path where an unfinished tuning keeps its measurements."""
    return profile_path(settings, path).with_suffix(".unfinished")


def file_prefix(path: Path) -> str:
    """Return the prefix of all file names that tuning makes for the model file at `path`."""
    return f"{path.resolve().stem}.{fingerprint(path)}"


def fingerprint(path: Path) -> str:
    """Hash the file's size, beginning, middle and end: tells models apart in a millisecond."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        digest.update(str(size).encode())
        for at in (0, size // 2, max(0, size - BLOCK_BYTES)):
            file.seek(at)
            digest.update(file.read(BLOCK_BYTES))
    return digest.hexdigest()[: store.FINGERPRINT_DIGITS]


def machine_key() -> str:
    """Hash what decides how fast a format is: the CPU, and how much of it we may use."""
    cores = [choose_threads(), usable_cpus()]
    facts = [platform.system(), platform.machine(), _cpu_name(), *cpu_features(), *map(str, cores)]
    return hashlib.sha256("\n".join(facts).encode()).hexdigest()[:MACHINE_DIGITS]


def usable_cpus() -> int:
    """Return how many logical CPUs this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def library_version() -> str:
    from importlib.metadata import version  # takes a tenth of an engine's start: not before it is asked for

    return version(LIBRARY)


def _cpu_name() -> str:
    """Return the name of the first CPU; on ARM its part number. On macOS it is among the features."""
    cpuinfo = Path("/proc/cpuinfo")
    if not cpuinfo.exists():
        return ""
    with cpuinfo.open() as lines:
        for line in lines:
            if line.startswith(("model name", "CPU part")):
                return line.split(":", 1)[-1].strip()
    return ""
