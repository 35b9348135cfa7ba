"""The engine process: one socket to the server, one loop, no threads.

    python -m vivace.engine.worker FD '{"model": …}'

Reads frames between steps, so an interrupt waits for one step at most. Ends when the socket ends: an engine
never outlives its server. Owns the loop and the process. Does not own what frames mean (`engine`).
"""

import os
import select
import signal
import socket
import sys
import time
from pathlib import Path

import msgspec

from vivace.engine.engine import Engine
from vivace.engine.frames import FromEngine, Ready, engine_unpacker, pack
from vivace.engine.plan import choose_threads
from vivace.engine.runners.base import Runner
from vivace.errors import COULD_NOT_START, VivaceError
from vivace.models.tokenizer import SCRIPTED, script_of

READ_BYTES = 1 << 20
SPIN_COUNT = "100"  # threads soon sleep at a barrier: see bench/threads.py


class Job(msgspec.Struct, frozen=True):
    """What an engine process is started for."""

    model: str  # a catalog name, a path or `scripted:FILE`
    path: str  # of its file; empty for a scripted one
    context_tokens: int
    threads: int = 0


def make_runner(job: Job) -> Runner:
    if job.model.startswith(SCRIPTED):
        from vivace.engine.runners.scripted import Script, ScriptedRunner

        return ScriptedRunner(msgspec.convert(script_of(job.model), Script))
    from vivace.engine.runners.llamacpp import LlamaRunner

    path = Path(job.path)
    return LlamaRunner(path, context_tokens=job.context_tokens, threads=choose_threads(job.threads))


def run(link: socket.socket, job: Job) -> None:
    """Load the model, say `Ready`, then serve until the other side closes."""
    begun = time.perf_counter()
    runner = make_runner(job)

    def send(frame: FromEngine) -> None:
        link.sendall(pack(frame))

    facts = runner.facts
    load_ms = (time.perf_counter() - begun) * 1e3
    send(Ready(job.model, facts.context_tokens, facts.trained_tokens, facts.threads, load_ms, os.getpid()))
    engine, unpacker = Engine(runner, send), engine_unpacker()
    while True:
        while engine.is_idle or select.select([link], [], [], 0)[0]:
            data = link.recv(READ_BYTES)
            if not data:
                return
            for frame in unpacker.feed(data):
                engine.handle(frame)
        engine.step()


def main() -> int:
    fd, text = int(sys.argv[1]), sys.argv[2]
    os.environ.setdefault("GOMP_SPINCOUNT", SPIN_COUNT)  # read when llama.cpp's threads are first loaded
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the server's: it closes the socket when done
    link = socket.socket(fileno=fd)
    try:
        run(link, msgspec.json.decode(text, type=Job))
    except VivaceError as error:
        print(f"{error.message} {error.hint}", file=sys.stderr)
        return COULD_NOT_START
    except (BrokenPipeError, ConnectionResetError):
        return 0
    return 0


if __name__ == "__main__":
    sys.exit(main())
