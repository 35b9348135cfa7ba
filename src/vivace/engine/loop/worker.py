"""The engine process: one socket to the server, one loop.

    python -m vivace.engine.loop.worker FD '{"model": …}'

Reads frames between passes and inside of long ones, so nobody waits for a pass that is no longer wanted. Ends
when the socket ends: an engine never outlives its server. Owns the loop and the process. Does not own what
frames mean (`engine`).
"""

import gc
import os
import signal
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from vivace.engine.kv.disk_cache import DiskCache
from vivace.engine.loop.engine import Engine
from vivace.engine.loop.link import Link
from vivace.engine.loop.loading import loading_heartbeat
from vivace.engine.loop.warmup import measure_costs
from vivace.engine.runners.base import Runner
from vivace.engine.runners.gpu_check import MIN_CAPABILITY, DetectGpu, GpuInfo, check_gpu, detect_gpu
from vivace.engine.speculation.costs import StepCosts
from vivace.engine.tuning.cpu import SPIN_COUNT, choose_threads
from vivace.engine.wire.frames import Ready
from vivace.engine.wire.job import Job
from vivace.errors import COULD_NOT_START, StartError, VivaceError
from vivace.models.folder import ELSEWHERE
from vivace.models.tokenizer import SCRIPTED, script_of


def _print_stderr(words: str) -> None:
    print(words, file=sys.stderr)


def is_scripted(job: Job) -> bool:
    """Return whether the job's model is a script; raise if it may not be one."""
    if not job.model.startswith(SCRIPTED):
        return False
    if not job.allow_scripted:
        raise StartError(
            f"{job.model} is a script, and this engine may not play one.",
            "Scripted models are for tests: set allow_scripted to use one.",
        )
    return True


def make_runner(
    job: Job, detect_gpu: DetectGpu = detect_gpu, on_gpu_refused: Callable[[str], None] = _print_stderr
) -> Runner:
    """Load the job's runner. Call `on_gpu_refused` with the reason if there is a GPU that cannot be used."""
    if is_scripted(job):
        from vivace.testing.scripted import Script, ScriptedRunner

        return ScriptedRunner(msgspec.convert(script_of(job.model), Script))
    if Path(job.path).is_dir():
        check_folder_can_run(job, detect_gpu)
        return make_gpu_runner(job, detect_gpu)
    if job.device == "cuda" or (job.device == "auto" and sys.platform == "linux"):
        try:
            return make_gpu_runner(job, detect_gpu)
        except StartError as error:
            if job.device == "cuda":
                raise
            if detect_gpu().driver:
                on_gpu_refused(f"{error.message} {error.hint}")
    from vivace.engine.runners.llamacpp import LlamaRunner

    return LlamaRunner(
        Path(job.path),
        context_tokens=job.context_tokens,
        session_tokens=job.session_tokens,
        threads=choose_threads(job.threads),
        use_extra_bufts=job.use_extra_bufts,
    )


def check_folder_can_run(job: Job, detect_gpu: DetectGpu) -> None:
    """Raise unless the GPU engine can run: llama.cpp cannot load a folder instead."""
    found = detect_gpu() if job.device != "cpu" else GpuInfo()
    try:
        check_gpu(found)
    except StartError as error:
        why = error.message if job.device != "cpu" else 'The device is "cpu" in config.toml.'
        remedy = f" {error.hint}" if found.capability >= MIN_CAPABILITY else ""
        raise StartError(
            f"{Path(job.path).name} is a folder of safetensors, which needs the GPU engine. {why}",
            f"{ELSEWHERE}{remedy}",
        ) from error


def make_gpu_runner(job: Job, detect_gpu: DetectGpu) -> Runner:
    from vivace.engine.runners.cuda.load import GpuOptions, open_runner

    options = GpuOptions(
        context_tokens=job.gpu_context_tokens,
        session_tokens=job.session_tokens,
        weight_bits=job.weight_bits,
        kv_bits=job.kv_bits,
        folder=Path(job.gpu_folder) if job.gpu_folder else None,
        prefill=job.gpu_prefill,
    )
    return open_runner(Path(job.path), options, detect_gpu)


def step_costs(job: Job, runner: Runner) -> StepCosts:
    """Return the job's costs if the CPU computes, since they were measured there; else measure them."""
    known = job.step_costs if runner.info.device == "cpu" else {}
    return StepCosts(known or runner.known_costs() or measure_costs(runner))


def make_disk_cache(job: Job, runner: Runner) -> DiskCache | None:
    if not job.kv_folder or not job.kv_disk_bytes:
        return None
    try:
        return DiskCache(Path(job.kv_folder), kv_format=runner.info.kv_format, limit_bytes=job.kv_disk_bytes)
    except Exception as error:  # noqa: BLE001 - whatever is on the disk, an engine can do without
        print(f"KV cannot be kept on disk: {error!r}", file=sys.stderr)
        return None


def run(link: Link, job: Job) -> None:
    """Load the model, say `Ready`, then serve until the other side closes."""
    begun = time.perf_counter()
    reasons: list[str] = []
    with loading_heartbeat(link.send):
        runner = make_runner(job, on_gpu_refused=reasons.append)
        engine = Engine(
            runner, link.send, step_costs(job, runner), make_disk_cache(job, runner), job.chunk_tokens
        )
    gc.freeze()  # what is loaded now stays: no search for garbage in it while somebody waits for a token
    info = runner.info
    link.send(
        Ready(
            model=job.model,
            context_tokens=info.context_tokens,
            trained_tokens=info.trained_tokens,
            limit_tokens=info.limit_tokens,
            yarn_factor=info.yarn_factor,
            threads=info.threads,
            load_ms=(time.perf_counter() - begun) * 1e3,
            pid=os.getpid(),
            device=info.device,
            why_no_gpu=" ".join(reasons),
        )
    )
    serve(engine, link)
    if link.error:
        raise link.error


def serve(engine: Engine, link: Link) -> None:
    """Do what frames ask for, one pass at a time, until the other side closes."""
    while not link.is_closed:
        for frame in link.receive(engine.idle_work() if engine.is_idle else 0.0):
            engine.handle(frame)
        if not engine.is_idle and not link.is_closed:
            engine.step(link.peek)
    for frame in link.receive(0.0):  # they came before the end, in the middle of a pass
        engine.handle(frame)
    engine.close()


def play_script(link: socket.socket, job: Job) -> bool:
    """Play the job's script without an engine, if it asks for that. Return whether it did."""
    if not is_scripted(job) or not script_of(job.model).get("is_engineless"):
        return False
    from vivace.testing.player import Player

    Player(link, job.model).play()
    return True


def main() -> int:
    fd, text = int(sys.argv[1]), sys.argv[2]
    os.environ.setdefault("GOMP_SPINCOUNT", SPIN_COUNT)  # read when llama.cpp's threads are first loaded
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the server's: it closes the socket when done
    link = socket.socket(fileno=fd)
    try:
        job = msgspec.json.decode(text, type=Job)
        if not play_script(link, job):
            run(Link(link), job)
    except VivaceError as error:
        print(f"{error.message} {error.hint}", file=sys.stderr)
        return COULD_NOT_START
    except (BrokenPipeError, ConnectionResetError):
        return 0
    return 0


if __name__ == "__main__":
    sys.exit(main())
