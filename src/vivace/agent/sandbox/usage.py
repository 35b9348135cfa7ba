"""What the processes of a sandbox use together, as the kernel tells it to those outside.

Owns the walk over the processes, and the memory that no process shows: shared memory that is written and not
mapped (memfd, System V, folders in memory, what waits in a socket). Of that the kernel tells only a sum for
the whole machine, so its growth counts, less what programs outside hold. Limits on a single process are set
from inside (`limited`); how many there are, and what they hold together, can only be seen from outside, where
none of them can stop us.
"""

import contextlib
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from vivace.agent.sandbox.looking import mounts

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
SCARCE = 0.05  # of the machine's memory that is left: then what no program shows counts, of any kind
_NUMBERS = re.compile(rb"^(MemTotal|MemAvailable|Shmem): +(\d+) kB", re.MULTILINE)
_SHARED = re.compile(rb"^(?:RssShmem|Pss_Shmem): +(\d+) kB", re.MULTILINE)


@dataclass(frozen=True)
class Usage:
    processes: int  # without bubblewrap's own
    memory_bytes: int  # resident; pages that two processes share count twice
    own_bytes: int  # of that, what is in no file and not shared
    pids: frozenset[int]


def usage_of(bubblewrap_pid: int, most_processes: int) -> Usage:
    """Count what runs below bubblewrap. Stop counting when there are more than `most_processes`."""
    processes, memory_bytes, own_bytes = -1, 0, 0  # bubblewrap's own first process inside is not counted
    waiting = children_of(bubblewrap_pid)
    pids = {bubblewrap_pid}
    while waiting and processes <= most_processes:
        pid = waiting.pop()
        pids.add(pid)
        processes += 1
        resident, own = _resident_bytes(pid)
        memory_bytes += resident
        own_bytes += own
        waiting += children_of(pid)
    return Usage(max(0, processes), memory_bytes, own_bytes, frozenset(pids))


def children_of(pid: int) -> list[int]:
    """Return the children of all threads of a process; none if it is gone."""
    found: list[int] = []
    with contextlib.suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(OSError):
                found += map(int, (task / "children").read_bytes().split())
    return found


def _resident_bytes(pid: int) -> tuple[int, int]:
    """Return what a process has in memory, and how much of it is neither in a file nor shared."""
    try:
        _, resident, shared, *_ = Path(f"/proc/{pid}/statm").read_bytes().split()
    except (OSError, ValueError):
        return 0, 0
    return int(resident) * PAGE_BYTES, (int(resident) - int(shared)) * PAGE_BYTES


# ---- memory that no process shows -------------------------------------------------------------------


@dataclass(frozen=True)
class Memory:
    """What the kernel says of the whole machine."""

    total_bytes: int
    available_bytes: int
    shared_bytes: int  # in folders in memory, memfds, System V segments and the like


def memory_of_machine() -> Memory:
    """Return the memory of the machine; zeros where it is not told."""
    with contextlib.suppress(OSError):
        found = dict(_NUMBERS.findall(Path("/proc/meminfo").read_bytes()))
        names = (b"MemTotal", b"MemAvailable", b"Shmem")
        return Memory(*(int(found.get(name, 0)) << 10 for name in names))
    return Memory(0, 0, 0)


class MemoryWatch:
    """Tells whether a sandbox uses more memory than it may, seen or unseen.

    What counts is the growth over the least that the machine used since the sandbox began. What programs
    outside hold is summed up only when the machine's sum has grown that much.
    """

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._least = self._now = memory_of_machine()

    def may_exceed(self, usage: Usage) -> bool:
        """Return whether the machine's sums have grown so much that it is worth a closer look."""
        now, least = memory_of_machine(), self._least
        self._least = Memory(
            now.total_bytes,
            max(now.available_bytes, least.available_bytes),
            min(now.shared_bytes, least.shared_bytes),
        )
        self._now = now
        grown_bytes = now.shared_bytes - self._least.shared_bytes
        return (
            self._is_over(usage.memory_bytes)
            or self._is_over(usage.own_bytes + grown_bytes)
            or self._is_scarce
        )

    def exceeds(self, usage: Usage) -> bool:
        """Look closer: it takes up to a millisecond for each program outside."""
        if self._is_over(usage.memory_bytes):
            return True
        if self._is_scarce:  # buffers of sockets and pipes are in no program's figures either
            used_bytes = self._now.total_bytes - self._now.available_bytes
            return self._is_over(used_bytes - _resident_everywhere())
        return self._is_over(usage.own_bytes + self._now.shared_bytes - _shared_outside(usage.pids))

    def _is_over(self, used_bytes: int) -> bool:
        return used_bytes > self._most_bytes

    @property
    def _is_scarce(self) -> bool:
        """Return whether the machine has hardly any memory left, and had it when the sandbox began."""
        now = self._now
        is_low = 0 < now.available_bytes < SCARCE * now.total_bytes
        return is_low and self._is_over(self._least.available_bytes - now.available_bytes)


def _resident_everywhere() -> int:
    pids = [int(each.name) for each in Path("/proc").iterdir() if each.name.isdigit()]
    return sum(_resident_bytes(pid)[0] for pid in pids)


def _shared_outside(pids: frozenset[int]) -> int:
    """Return how much shared memory programs outside of a sandbox have, as far as it can be told.

    Of this user's programs each page counts once, divided among those that share it. Of others only the
    largest share of each user is known for certain.
    """
    mine = 0
    others: dict[int, int] = {}
    for each in Path("/proc").iterdir():
        if not each.name.isdigit() or int(each.name) in pids:
            continue
        with contextlib.suppress(OSError):
            try:
                mine += _shared_bytes(each / "smaps_rollup")
            except PermissionError:
                user = each.stat().st_uid
                others[user] = max(others.get(user, 0), _shared_bytes(each / "status"))
    return mine + sum(others.values()) + sum(_folders_in_memory())


def _shared_bytes(file: Path) -> int:
    found = _SHARED.search(file.read_bytes())
    return int(found[1]) << 10 if found else 0


def _folders_in_memory() -> Iterator[int]:
    """Yield what each folder in memory holds, of this machine."""
    seen: set[int] = set()
    for point, kind in mounts():
        if kind == "tmpfs":
            with contextlib.suppress(OSError):
                disk, device = os.statvfs(point), Path(point).stat().st_dev
                if device not in seen:
                    seen.add(device)
                    yield (disk.f_blocks - disk.f_bfree) * disk.f_frsize
