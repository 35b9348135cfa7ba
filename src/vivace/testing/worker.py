"""The engine process of a scripted model: a real engine on a scripted runner, or a script played without one.

    python -m vivace.testing.worker FD '{"model": "scripted:…", "allow_scripted": true, …}'

Owns which of the two. Everything else of the process is the engine's own (`engine.loop.worker`).
"""

import socket

import msgspec

from vivace.child_python import exit_at_once
from vivace.engine.loop.opening import Opened
from vivace.engine.loop.worker import main, run
from vivace.engine.runners.base import TellRead
from vivace.engine.wire.job import Job
from vivace.models.tokenizer import script_of
from vivace.testing.player import Player
from vivace.testing.scripted import Script, ScriptedRunner
from vivace.testing.scripted_rows import ScriptedRowsRunner


def work(connected: socket.socket, job: Job) -> None:
    if script_of(job.model).get("is_engineless"):
        Player(connected, job.model).play()
    else:
        run(connected, job, open_scripted)


def open_scripted(job: Job, *, tell: TellRead) -> Opened:
    script = msgspec.convert(script_of(job.model), Script)
    return Opened((ScriptedRowsRunner if script.rows else ScriptedRunner)(script, tell))


if __name__ == "__main__":
    exit_at_once(main(work))
