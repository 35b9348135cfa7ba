"""Opens the runner of a job: the best that this machine has, or the next one where that fails.

Owns the order of trying and what is said of those that were not used. Does not judge machines
(`devices.ranking`) or load weights (`runners`).
"""

import os
import sys
from collections.abc import Callable, MutableMapping, Sequence
from pathlib import Path
from typing import NamedTuple, NoReturn, Protocol

import msgspec

from vivace.child_python import module_command
from vivace.engine.devices.machine import DetectMachine, Machine, detect_machine
from vivace.engine.devices.ranking import Ranking, RunnerChoice, engine_devices, rank_runners
from vivace.engine.runners.base import Runner, TellRead
from vivace.engine.runners.gpu_check import GpuInfo, check_gpu, free_gpu_memory, gpu_problem, serves_kernels
from vivace.engine.tuning.cpu import choose_threads
from vivace.engine.wire.device import parse_device
from vivace.engine.wire.job import Job
from vivace.errors import StartError
from vivace.models.folder import ELSEWHERE
from vivace.models.tokenizer import SCRIPTED

VISIBLE, ORDER = "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"


class Opened(NamedTuple):
    runner: Runner
    place: str = ""  # which runner on which device, for people
    why_no_gpu: str = ""  # why nothing better computes
    gpu_devices: Sequence[str] = ()  # GPUs that could run the same, this one first


class OpenJob(Protocol):
    def __call__(self, job: Job, *, tell: TellRead) -> Opened: ...


Restart = Callable[[str, list[str]], NoReturn]  # the process, with one GPU; and all that could be used


def with_one_gpu(job: Job, environ: MutableMapping[str, str]) -> Job:
    """Let this process see only the NVIDIA GPU that the job names, before CUDA is first asked for any.

    The GPU is then the first one of the process. An index counts those that were visible before.
    """
    wish = parse_device(job.device)
    if wish.kind != "cuda" or wish.index is None:
        return job
    visible = [name for name in environ.get(VISIBLE, "").split(",") if name]
    if visible and wish.index >= len(visible):
        raise StartError(
            f"There is no GPU {job.device}: {VISIBLE} names {len(visible)}.",
            "`vivace doctor` shows what is here.",
        )
    environ[VISIBLE] = visible[wish.index] if visible else str(wish.index)
    environ.setdefault(ORDER, "PCI_BUS_ID")
    return msgspec.structs.replace(job, device="cuda", gpu_name=job.device)


def restart_with_gpu(job: Job, device: str, devices: list[str]) -> NoReturn:
    """Start this process anew for that GPU: CUDA reads which ones are visible only once."""
    again = msgspec.structs.replace(job, device=device, gpu_devices=devices)
    command = module_command("vivace.engine.loop.worker", sys.argv[1], msgspec.json.encode(again).decode())
    os.execv(command[0], command)


def open_runner(
    job: Job,
    detect: DetectMachine | None = None,
    restart: Restart | None = None,
    tell: TellRead = lambda _read, _total: None,
) -> Opened:
    """Load the job's runner. Raise `StartError` if nothing that the job allows can run it."""
    if job.model.startswith(SCRIPTED):
        raise StartError(
            f"{job.model} is a script, and this engine may not play one.",
            "Scripted models are for tests: set allow_scripted to use one.",
        )
    wish = parse_device(job.device)
    machine = Machine() if wish.kind == "cpu" else (detect or _detect(job))()
    if Path(job.path).is_dir():
        check_folder_can_run(job, machine)
    ranking = rank_runners(machine, wish)
    if Path(job.path).is_dir():
        ranking = Ranking(tuple(each for each in ranking.choices if each.runner == "kernels"), ())
    return _open_first(job, machine, ranking, restart, tell)


def _detect(job: Job) -> DetectMachine:
    return lambda: detect_machine(Path(job.backend_dir))


def _open_first(
    job: Job, machine: Machine, ranking: Ranking, restart: Restart | None, tell: TellRead
) -> Opened:
    """Open the first choice that works; say why those before it did not."""
    reasons = [ranking.why_no_gpu]
    for at, choice in enumerate(ranking.choices, 1):
        devices = job.gpu_devices or engine_devices(machine, choice)
        if choice.kind == "cuda" and choice.index:  # a process computes with the first GPU that it sees
            if restart:
                restart(choice.device, devices)
            restart_with_gpu(job, choice.device, devices)
        try:
            runner = _open(job, choice, machine, tell)
        except StartError as error:
            if at == len(ranking.choices):
                raise
            reasons.append(f"{error.message} {error.hint}")
        else:
            gpu = machine.nvidia[choice.index].gpu if choice.kind == "cuda" else ""
            place = runner.info.place or f"our kernels on {gpu} ({job.gpu_name or choice.device})"
            why = " ".join(filter(None, reasons))
            return Opened(runner, place, why, devices if choice.kind == "cuda" else [])
        free_gpu_memory()  # of what has failed: the next one may want it
    raise AssertionError("a ranking has a choice, and the last one works or raises")


def _open(job: Job, choice: RunnerChoice, machine: Machine, tell: TellRead) -> Runner:
    if choice.runner == "kernels":
        return open_kernels(job, machine, tell)
    from vivace.engine.runners.llamacpp import LlamaGpu, LlamaRunner

    gpu = None
    if choice.kind != "cpu":
        from vivace.engine.runners.ggml import find_device, load_library

        if choice.kind == "cuda" or choice.kind == "vulkan":
            load_library(Path(machine.built[choice.kind].library))
        device = find_device(choice.kind, choice.index)
        gpu = LlamaGpu(device, choice.kind, job.gpu_name or choice.device, job.gpu_context_tokens)
    return LlamaRunner(
        Path(job.path),
        context_tokens=job.context_tokens,
        session_tokens=job.session_tokens,
        threads=choose_threads(job.threads),
        use_extra_bufts=job.use_extra_bufts,
        gpu=gpu,
        tell=tell,
    )


def check_folder_can_run(job: Job, machine: Machine) -> None:
    """Raise unless our kernels can run: llama.cpp cannot load a folder instead."""
    found = next((gpu for gpu in machine.nvidia if not gpu_problem(gpu)), machine.nvidia[0])
    is_wished = parse_device(job.device).kind in ("auto", "cuda")
    try:
        check_gpu(found if is_wished else GpuInfo())
    except StartError as error:
        why = error.message if is_wished else f'The device is "{job.device}" in config.toml.'
        remedy = f" {error.hint}" if is_wished and serves_kernels(found.capability) else ""
        raise StartError(
            f"{Path(job.path).name} is a folder of safetensors, which needs the GPU engine. {why}",
            f"{ELSEWHERE}{remedy}",
        ) from error


def open_kernels(job: Job, machine: Machine, tell: TellRead) -> Runner:
    from vivace.engine.runners.cuda.load import GpuOptions
    from vivace.engine.runners.cuda.load import open_runner as open_on_gpu

    options = GpuOptions(
        context_tokens=job.gpu_context_tokens,
        session_tokens=job.session_tokens,
        weight_bits=job.weight_bits,
        kv_bits=job.kv_bits,
        folder=Path(job.gpu_folder) if job.gpu_folder else None,
        prefill=job.gpu_prefill,
        host_bytes=job.kv_memory_bytes,
    )
    return open_on_gpu(Path(job.path), options, lambda: machine.nvidia[0], tell)
