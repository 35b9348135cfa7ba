"""The GPU itself: what it is called, and how fast its memory is when nothing else is asked of it.

Owns two measurements and the facts. Runs in the bench's own process and gives all memory back.
"""

import platform
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from vivace import __version__
from vivace.agent.git import run_git
from vivace.engine.runners.gpu_check import detect_gpu

COPY_BYTES = 4 << 30
ROUNDS = 5
PACKAGES = ("torch", "triton", "transformers", "llama-cpp-python", "vllm")


def describe_gpu() -> dict[str, Any]:
    found = detect_gpu()
    return {
        "name": found.gpu,
        "driver": found.driver,
        "compute_capability": ".".join(map(str, found.capability)),
        "memory_gb": round(found.total_bytes / 1e9, 1),
    }


def describe_versions() -> dict[str, str]:
    found = {"vivace": __version__, "python": platform.python_version(), "commit": _commit()}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def _commit() -> str:
    return (run_git(Path(__file__).parent, "rev-parse", "--short", "HEAD") or b"").decode().strip()


def measure_bandwidth() -> dict[str, float]:
    """Return terabytes a second of a copy (bytes read and written) and of a read."""
    import torch  # type: ignore[import-not-found,unused-ignore]

    source = torch.empty(COPY_BYTES // 4, device="cuda").normal_()
    target = torch.empty_like(source)
    copy_s = _quickest(lambda: target.copy_(source))
    read_s = _quickest(lambda: source.sum())
    source = target = torch.empty(0)
    torch.cuda.empty_cache()
    return {"copy_tb_s": 2 * COPY_BYTES / copy_s / 1e12, "read_tb_s": COPY_BYTES / read_s / 1e12}


def _quickest(what: Any) -> float:
    import torch

    spent = []
    for _ in range(ROUNDS + 1):
        torch.cuda.synchronize()
        begun = time.perf_counter()
        what()
        torch.cuda.synchronize()
        spent.append(time.perf_counter() - begun)
    return min(spent[1:])
