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

from vivace.child_python import exit_at_once
from vivace.engine.kv.parked_cache import ParkedCache
from vivace.engine.loop.engine import Engine
from vivace.engine.loop.link import Link
from vivace.engine.loop.loading import loading_heartbeat
from vivace.engine.loop.opening import OpenJob, open_runner, with_one_gpu
from vivace.engine.loop.warmup import row_costs, start_costs
from vivace.engine.runners.base import HostMemoryRunner, Runner
from vivace.engine.speculation.costs import StepCosts
from vivace.engine.tuning.cpu import SPIN_COUNT
from vivace.engine.wire.frames import Ready
from vivace.engine.wire.job import Job
from vivace.errors import COULD_NOT_START, VivaceError

Work = Callable[[socket.socket, Job], None]


def step_costs(job: Job, runner: Runner) -> StepCosts:
    """Return the job's costs if the CPU computes, since they were measured there; else those of a start."""
    known = (job.step_costs if runner.info.device == "cpu" else {}) or runner.known_costs()
    return StepCosts(known) if known else start_costs(runner)


def make_parked_cache(job: Job, runner: Runner) -> ParkedCache | None:
    allocate = runner.allocate if isinstance(runner, HostMemoryRunner) else None
    if not job.kv_folder or not (job.kv_disk_bytes or allocate):
        return None
    try:
        return ParkedCache(
            Path(job.kv_folder),
            kv_format=runner.info.kv_format,
            limit_bytes=job.kv_disk_bytes,
            allocate=allocate,
            can_cut=runner.info.memory == "exact",
        )
    except Exception as error:  # noqa: BLE001 - whatever is on the disk, an engine can do without
        print(f"KV cannot be parked: {error!r}", file=sys.stderr)
        return None


def run(connected: socket.socket, job: Job, open_job: OpenJob = open_runner) -> None:
    """Load the model, say `Ready`, then serve until the other side closes."""
    link = Link(connected)
    begun = time.perf_counter()
    with loading_heartbeat(link.send) as tell:
        opened = open_job(job, tell=tell)
        runner = opened.runner
        engine = Engine(
            runner,
            link.send,
            step_costs(job, runner),
            make_parked_cache(job, runner),
            job.chunk_tokens,
            row_costs(runner),
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
            why_no_gpu=opened.why_no_gpu,
            place=opened.place,
            gpu_devices=list(opened.gpu_devices),
        )
    )
    serve(engine, link)
    if link.error:
        raise link.error


def serve(engine: Engine, link: Link) -> None:
    """Do what frames ask for, one pass at a time, until the other side closes."""
    while not link.is_closed:
        for frame in link.receive(engine.idle_work(link.peek) if engine.is_idle else 0.0):
            engine.handle(frame)
        if not engine.is_idle and not link.is_closed:
            engine.step(link.peek)
    for frame in link.receive(0.0):  # they came before the end, in the middle of a pass
        engine.handle(frame)
    engine.close()


def main(work: Work = run) -> int:
    """Do the job of the command line. `work` is what a process for scripts does instead."""
    fd, text = int(sys.argv[1]), sys.argv[2]
    os.environ.setdefault("GOMP_SPINCOUNT", SPIN_COUNT)  # read when llama.cpp's threads are first loaded
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the server's: it closes the socket when done
    link = socket.socket(fileno=fd)
    try:
        job = with_one_gpu(msgspec.json.decode(text, type=Job), os.environ)
        work(link, job)
    except VivaceError as error:
        print(f"{error.message} {error.hint}", file=sys.stderr)
        return COULD_NOT_START
    except (BrokenPipeError, ConnectionResetError):
        return 0
    return 0


if __name__ == "__main__":
    exit_at_once(main())
