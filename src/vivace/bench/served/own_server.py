"""The server that is measured: one of its own, in a folder of its own, gone when the bench is.

Owns its life. It is started as users' servers are, with the same code; of what is the user's only the models
are used, and those are read.
"""

import contextlib
import resource
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import msgspec

from vivace.bench.child import Child
from vivace.client.warm import ServerAddress, ensure_server, read_status
from vivace.config import Settings
from vivace.errors import ServerGone, StartError
from vivace.models.tokenizer import SCRIPTED
from vivace.testing.scripted import Script

IDLE_MINUTES = 10.0  # if the bench is killed, its server ends by itself
READY_S = 300.0  # a busy machine loads ten times slower
EXIT_S = 20.0  # its engine may have sessions to park
POLL_S = 0.02
OPEN_FILES = 4096


@dataclass
class BenchServer:
    settings: Settings
    address: ServerAddress
    folder: Path
    _numbers: Iterator[int]

    def script(self, **fields: Any) -> str:
        """Return the name of a model that plays this script."""
        file = self.folder / f"script-{next(self._numbers)}.json"
        file.write_bytes(msgspec.json.encode(Script(**fields)))
        return f"{SCRIPTED}{file}"

    def file(self, name: str) -> Path:
        return self.folder / f"{next(self._numbers)}-{name}"


@contextmanager
def open_server(settings: Settings, model: str) -> Iterator[BenchServer]:
    """Run a server with `model` loaded until the block ends."""
    _allow_open_files()
    with tempfile.TemporaryDirectory(prefix="vivace-bench-wire-") as name:
        folder = Path(name)
        own = settings.having(
            cache_dir=folder / "cache",
            state_dir=folder / "state",
            model=model,
            port=0,
            idle_minutes=IDLE_MINUTES,
            kv_disk_gib=0.0,  # what an earlier run left on disk would make a cold start warm
            tune="never",
            allow_scripted=True,
        )
        with running(own) as address:
            yield BenchServer(own, address, folder, count(1))


@contextmanager
def running(settings: Settings) -> Iterator[ServerAddress]:
    """Run a server with these settings and its model loaded until the block ends."""
    child = _start(settings)
    try:
        yield _address(settings, child)
    finally:
        child.process.terminate()
        child.end(timeout_s=EXIT_S)


def _start(settings: Settings) -> Child:
    """Start it as `client.warm` does, but as our child. Ctrl-C does not reach it."""
    options: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.DEVNULL}
    child = Child("vivace.server", start_new_session=True, **options)
    assert child.process.stdin is not None
    with contextlib.suppress(BrokenPipeError), child.process.stdin as pipe:  # it ended at once
        pipe.write(settings.for_child())
    return child


def _address(settings: Settings, child: Child) -> ServerAddress:
    """Return the server's address when its model is loaded."""
    deadline = time.monotonic() + READY_S
    while not _is_ready(settings):
        if child.process.poll() is not None:
            raise child.why_it_ended("The bench's server")
        if time.monotonic() > deadline:
            raise StartError("The bench's server did not load its model.", "See `vivace doctor`.")
        time.sleep(POLL_S)
    return ensure_server(settings)


def _is_ready(settings: Settings) -> bool:
    try:
        status = read_status(settings)
    except ServerGone:
        return False
    return status is not None and status.engine.is_ready


def _allow_open_files() -> None:
    """Raise the limit of open files to the most allowed; the server inherits it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = OPEN_FILES if hard == resource.RLIM_INFINITY else min(OPEN_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
