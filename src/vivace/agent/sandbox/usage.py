"""What the processes of a sandbox use together, as the kernel tells it to those outside.

Owns the walk over the processes. Limits on a single process are set from inside (`limited`); how many there
are, and what they hold together, can only be seen from outside, where none of them can stop us.
"""

import contextlib
import os
from dataclasses import dataclass
from pathlib import Path

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True)
class Usage:
    processes: int  # without bubblewrap's own
    memory_bytes: int  # resident; pages that two processes share count twice


def usage_of(bubblewrap_pid: int, most_processes: int) -> Usage:
    """Count what runs below bubblewrap. Stop counting when there are more than `most_processes`."""
    processes, memory_bytes = -1, 0  # bubblewrap's own first process inside is not counted
    waiting = children_of(bubblewrap_pid)
    while waiting and processes <= most_processes:
        pid = waiting.pop()
        processes += 1
        memory_bytes += _resident_bytes(pid)
        waiting += children_of(pid)
    return Usage(max(0, processes), memory_bytes)


def children_of(pid: int) -> list[int]:
    """Return the children of all threads of a process; none if it is gone."""
    found: list[int] = []
    with contextlib.suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(OSError):
                found += map(int, (task / "children").read_bytes().split())
    return found


def _resident_bytes(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_bytes().split()[1]) * PAGE_BYTES
    except (OSError, IndexError):
        return 0
