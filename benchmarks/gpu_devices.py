"""What this machine's GPU is to us: the facts, the ranking, and the words, without loading a model.

    python3 benchmarks/gpu_devices.py

Looks from this process, from one that may see only `cuda:0`, and from one that names a GPU that is not there.
Each stage says its own error. For machines with an NVIDIA GPU; takes a few seconds.
"""

import os
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "src"))

from vivace.engine.devices.adding import plan_addition
from vivace.engine.devices.machine import Machine, detect_machine
from vivace.engine.devices.ranking import engine_devices, rank_runners
from vivace.engine.devices.toolchain import NO_NVCC, Nvcc, find_nvcc
from vivace.engine.wire.device import parse_device
from vivace.errors import StartError

NARROWED = """
import os, sys
sys.path.insert(0, {source!r})
from vivace.engine.wire.job import Job
from vivace.engine.loop.opening import with_one_gpu
job = with_one_gpu(Job("m", "", context_tokens=256, device={device!r}), os.environ)
from vivace.engine.runners.gpu_check import detect_gpus
print(job.gpu_name, os.environ["CUDA_VISIBLE_DEVICES"], [gpu.gpu or gpu.error for gpu in detect_gpus()])
"""


def stage(title: str, work: Callable[[], object]) -> None:
    began = time.perf_counter()
    try:
        answer = work()
    except StartError as error:
        answer = f"refused: {error.message} {error.hint}"
    except Exception:  # noqa: BLE001 - the other stages still tell something
        answer = traceback.format_exc()
    print(f"{title:<28} {time.perf_counter() - began:5.2f} s  {answer}", flush=True)


def child(code: str, **environ: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | environ, capture_output=True, text=True
    )
    return (done.stdout + done.stderr[-500:]).strip()


def main() -> None:
    cache, source = Path("/nonexistent"), str(Path(__file__).parent.parent / "src")
    machine = detect_machine(cache)
    for index, gpu in enumerate(machine.nvidia):
        print(f"cuda:{index} {gpu}")
    print(
        f"{machine.system} {machine.architecture}, others {machine.other_gpus}, Vulkan {machine.has_vulkan}"
    )
    for device in ("auto", "cuda", "cuda:0", "cuda:9", "vulkan", "metal", "cpu"):
        stage(f"ranking for {device}", partial(_words, machine, device))
    nvcc = find_nvcc()
    stage("nvcc", lambda: nvcc)
    stage("extras add cuda", lambda: plan_addition("cuda", machine, nvcc, (), os.cpu_count() or 1))
    stage("extras add cuda, no nvcc", lambda: plan_addition("cuda", machine, NO_NVCC, (), 16))
    stage("extras add cuda, nvcc 13", lambda: plan_addition("cuda", machine, Nvcc("nvcc", (13, 0)), (), 16))
    for device in ("cuda:0", "cuda:9"):
        stage(
            f"a process with {device}",
            partial(child, NARROWED.format(source=source, device=device)),
        )
    code = NARROWED.format(source=source, device="cuda:0")
    stage("with CUDA_VISIBLE_DEVICES=0", lambda: child(code, CUDA_VISIBLE_DEVICES="0"))


def _words(machine: Machine, device: str) -> str:
    ranking = rank_runners(machine, parse_device(device))
    devices = engine_devices(machine, ranking.choices[0])
    return f"{', '.join(map(str, ranking.choices))} | engines on {devices} | {ranking.why_no_gpu or '-'}"


if __name__ == "__main__":
    main()
