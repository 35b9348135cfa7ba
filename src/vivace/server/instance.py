"""One server per user and machine: the lock, the port and the file that says where it is.

Owns `server.lock` and `server.json`. The lock is the system's (flock): it is free the moment its holder is
gone, however it went. Light to import: a server that finds the lock taken leaves at once.
"""

import contextlib
import fcntl
import os
import socket
import time

import msgspec

from vivace import __version__
from vivace.config import Settings
from vivace.errors import StartError
from vivace.protocol.rundir import HOST, ServerFile, lock_file, server_file


class Instance:
    """Held by the one server. Ends with the process, or with `release`."""

    def __init__(self, settings: Settings, descriptor: int, starter: int) -> None:
        self._path = server_file(settings)
        self._descriptor = descriptor
        self._starter = starter

    def announce(self, port: int) -> None:
        """Say where we are, now that we accept connections."""
        aside = self._path.with_name(f".server-{os.getpid()}.json")
        file = ServerFile(os.getpid(), port, __version__, time.time(), self._starter)
        aside.write_bytes(msgspec.json.encode(file))
        aside.replace(self._path)

    def release(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            self._path.unlink()
        os.close(self._descriptor)


def acquire_instance(settings: Settings, starter: int = 0) -> Instance | None:
    """Acquire the right to be this user's server. Return None if another process has it.

    `starter`: the pid of the process that was started to start this one.
    """
    try:
        settings.run_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
        settings.run_dir.chmod(0o700)
        descriptor = os.open(lock_file(settings), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise StartError(
            f"The folder {settings.run_dir} cannot be used: {error.strerror}.",
            "Make it writable, or set VIVACE_STATE_DIR to another folder.",
        ) from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return Instance(settings, descriptor, starter)


def bind(port: int, *, or_another: bool) -> socket.socket:
    """Return a listening socket on loopback: at this port, or at any free one if that is allowed."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((HOST, port))
    except (OSError, OverflowError) as error:
        if not or_another:
            listener.close()
            raise StartError(
                f"Port {port} cannot be used: {error}.",
                "Another program may listen there; give another --port, or none to take a free one.",
            ) from error
        listener.bind((HOST, 0))
    listener.set_inheritable(False)
    return listener
