"""Where the running server of this user is to be found: names and shapes shared by server and clients.

Owns the layout of `settings.run_dir`. Reads and writes nothing: the server writes, clients read.
"""

from pathlib import Path

import msgspec

from vivace.config import Settings

HOST = "127.0.0.1"


class ServerFile(msgspec.Struct, frozen=True):
    """`server.json`: there while a server accepts connections, or after one that was killed."""

    pid: int
    port: int
    version: str
    started: float  # seconds since the epoch
    starter: int = 0  # the pid of the process that it was forked from; 0: none


def lock_file(settings: Settings) -> Path:
    """Return the file that the server locks (flock) as long as it lives."""
    return settings.run_dir / "server.lock"


def server_file(settings: Settings) -> Path:
    return settings.run_dir / "server.json"


def news_file(settings: Settings) -> Path:
    """Return the file with one line for the next command to show, which then removes it."""
    return settings.run_dir / "news.txt"


def log_file(settings: Settings) -> Path:
    return settings.run_dir / "server.log"
