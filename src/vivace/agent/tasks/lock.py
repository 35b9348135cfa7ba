"""Who holds a task's lock: the file that is locked names the process.

Owns that line. Light to import: a process names itself before anything else. Does not own the lock (`store`).
"""

import os
from pathlib import Path


def write_holder(lock: int) -> None:
    """Write down that this process holds the lock, which is open as `lock`."""
    os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)


def read_holder(path: Path) -> int | None:
    """Return the process that wrote itself down last, or None if there is none."""
    try:
        return int(path.read_text("ascii"))
    except (OSError, ValueError):
        return None
