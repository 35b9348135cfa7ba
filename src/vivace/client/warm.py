"""The warm server of this user: find it, start it if there is none, read its status, stop it.

Owns the client's side of `run_dir`: which server is trusted, and how a new one is started. A server is
trusted only if what answers on the port gives the pid that `server.json` names.
Everything here blocks, for a millisecond when the server runs; call it again after `ServerGone`.
"""

import contextlib
import fcntl
import os
import signal
import subprocess
import time
from collections.abc import Callable
from typing import BinaryIO

import msgspec

from vivace import __version__
from vivace.child_python import module_command
from vivace.client import http
from vivace.config import Settings
from vivace.errors import ServerGone, StartError
from vivace.protocol.rundir import HOST, ServerFile, lock_file, log_file, server_file
from vivace.protocol.shapes.status import Health, ServerStatus

START_S = 30.0
STOP_S = 15.0
POLL_S = 0.02
RESTART_S = 0.25  # after a start that found another one in place
MAX_LOG_BYTES = 5_000_000
LOG_LINES = 15

Progress = Callable[[str], None]


class ServerAddress(msgspec.Struct, frozen=True):
    port: int
    token: str
    pid: int

    @property
    def url(self) -> str:
        """Return the base URL for OpenAI's SDKs."""
        return f"http://{HOST}:{self.port}/v1"

    @property
    def socket_url(self) -> str:
        return f"ws://{HOST}:{self.port}/v1/responses"


def ensure_server(settings: Settings, progress: Progress = lambda _: None) -> ServerAddress:
    """Return the address of this user's server. Start one in the background if none runs."""
    if address := _usable(settings, progress):
        return address
    progress("Starting the server…")
    deadline = time.monotonic() + START_S
    child, next_start = _spawn(settings), 0.0
    while time.monotonic() < deadline:
        if address := _usable(settings, progress, child.pid):
            child.returncode = child.poll() or 0  # it is to outlive us: Popen shall not warn of that
            return address
        if child.poll():
            raise _did_not_start(settings, f"It ended with exit code {child.returncode}.")
        if child.returncode == 0:  # another one was in place; it may be about to be ready, or to end
            next_start = next_start or time.monotonic() + RESTART_S
            if time.monotonic() >= next_start:
                child, next_start = _spawn(settings), 0.0
        time.sleep(POLL_S)
    child.returncode = child.poll() or 0
    raise _did_not_start(settings, f"It is not ready after {START_S:.0f} s.")


def find_server(settings: Settings) -> tuple[ServerFile, Health] | None:
    """Return the server that runs, of any version, or None."""
    try:
        file = msgspec.json.decode(server_file(settings).read_bytes(), type=ServerFile)
        status, body = http.get(file.port, "/healthz")
        health = msgspec.json.decode(body, type=Health)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return None
    return (file, health) if status == 200 and health.pid == file.pid else None


def running_server(settings: Settings) -> ServerAddress:
    """Return the address of the server that runs. Start none: raise `ServerGone` if there is none."""
    if not (found := find_server(settings)):
        raise ServerGone("The server has ended.", "Start it again: `vivace web`, or any other command.")
    return ServerAddress(found[0].port, _read_token(settings), found[0].pid)


def read_status(settings: Settings) -> ServerStatus | None:
    """Return the status of the running server, or None if none runs."""
    if not (found := find_server(settings)):
        return None
    try:
        status, body = http.get(found[0].port, "/v1/vivace/status", _read_token(settings), timeout_s=5.0)
    except OSError as error:
        raise ServerGone("The server did not answer.", "See `vivace status`.") from error
    if status != 200:
        raise ServerGone(f"The server answered with status {status}.", "Stop it with `vivace stop`.")
    return msgspec.json.decode(body, type=ServerStatus)


def stop_server(settings: Settings, *, is_hurried: bool = False) -> int | None:
    """Stop the running server and wait until it is gone. Return its pid, or None if none ran.

    Running answers may finish first, unless `is_hurried`.
    """
    if not (found := find_server(settings)):
        return None
    pid = found[0].pid
    deadline = time.monotonic() + settings.drain_seconds + STOP_S
    signals = 2 if is_hurried else 1
    while not _is_lock_free(settings):
        if signals:
            signals -= 1
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
        if time.monotonic() > deadline:
            raise StartError(f"The server (pid {pid}) does not stop.", f"End it with `kill -9 {pid}`.")
        time.sleep(POLL_S)
    return pid


def _usable(settings: Settings, progress: Progress, starter: int = -1) -> ServerAddress | None:
    """Return the running server if it has our version or we started it. Stop one of another version."""
    if not (found := find_server(settings)):
        return None
    file, health = found
    if health.version != __version__ and file.starter != starter:
        progress(f"Replacing the server of version {health.version}…")
        stop_server(settings)
        return None
    return ServerAddress(file.port, _read_token(settings), file.pid)


def _spawn(settings: Settings) -> "subprocess.Popen[bytes]":
    """Start a server that outlives us: its own session, no terminal, output to the log.

    The server descends from nobody; what is returned ends when it is ready.
    """
    with _open_log(settings) as output:
        child = subprocess.Popen(
            module_command("vivace.server", "--detached"),
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=output,
            start_new_session=True,
            cwd="/",
        )
    assert child.stdin is not None
    with contextlib.suppress(BrokenPipeError), child.stdin as pipe:  # it ended at once; its log says why
        pipe.write(settings.for_child(without="upstreams"))
    return child


def _open_log(settings: Settings) -> BinaryIO:
    path = log_file(settings)
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with contextlib.suppress(FileNotFoundError):
            if path.stat().st_size > MAX_LOG_BYTES:
                path.replace(path.with_suffix(".log.1"))
        return path.open("ab")
    except OSError as error:
        raise StartError(
            f"The server's log {path} cannot be written: {error.strerror}.",
            "Make its folder writable, or set VIVACE_STATE_DIR to another one.",
        ) from error


def _did_not_start(settings: Settings, why: str) -> StartError:
    path = log_file(settings)
    lines = path.read_text("utf-8", "replace").splitlines()[-LOG_LINES:]
    return StartError("\n".join([f"The server did not start. {why}", *lines]), f"Its log: {path}")


def _read_token(settings: Settings) -> str:
    try:
        return settings.token_file.read_text("ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise StartError(
            f"The token file {settings.token_file} cannot be read: {error}.",
            "Run `vivace stop`; the next start makes a new one.",
        ) from error


def _is_lock_free(settings: Settings) -> bool:
    descriptor = os.open(lock_file(settings), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(descriptor)
    return True
