"""The tuner's interface to this machine: free disk and memory, load, child processes, progress.

Owns how each is obtained, so that tests can replace it. Does not decide anything.
"""

import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from vivace.engine.tuning.children.child import Child
from vivace.engine.tuning.cpu import memory_bytes
from vivace.models.progress import Progress, Silent

SAMPLE_S = 0.3
_STAT = Path("/proc/stat")


def _free_bytes(folder: Path) -> int:
    return shutil.disk_usage(folder).free


def _available_bytes() -> int:
    return memory_bytes()[1]


def _busy_share() -> float:
    """Return the share of the CPUs that others use now; 0 where the system does not report it."""
    if not _STAT.exists():
        return 0.0
    before = _cpu_ticks()
    time.sleep(SAMPLE_S)
    all_ticks, idle_ticks = (b - a for a, b in zip(before, _cpu_ticks(), strict=True))
    return 1 - idle_ticks / all_ticks if all_ticks > 0 else 0.0


def _cpu_ticks() -> tuple[int, int]:
    """Return all ticks of all CPUs so far, and the idle ones (waiting for a disk included)."""
    ticks = [int(word) for word in _STAT.read_text().split("\n", 1)[0].split()[1:]]
    return sum(ticks), ticks[3] + ticks[4]


@dataclass(frozen=True)
class Host:
    progress: Progress = field(default_factory=Silent)
    free_bytes: Callable[[Path], int] = _free_bytes  # on the disk of a folder
    available_bytes: Callable[[], int] = _available_bytes  # of memory
    busy_share: Callable[[], float] = _busy_share  # of the CPUs, now
    start_child: Callable[[], Child] = Child
    on_step: Callable[[int, int], None] = lambda _number, _total: None  # step `number` of `total` begins

    @contextmanager
    def step(self, label: str, total_bytes: int = 0) -> Iterator[None]:
        """Show one step of the work while the block runs."""
        self.progress.begin(label, total_bytes)
        try:
            yield
        finally:
            self.progress.end()
