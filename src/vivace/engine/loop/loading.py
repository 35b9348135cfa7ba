"""Whether loading a model gets on: a thread tells the server, for whatever loads is deep in C meanwhile.

Owns that thread, which ends when the model is loaded. What counts is measured by the system, so every runner
is heard: processor time, and what was read from a disk. A slow disk moves; a disk that is gone does not.
"""

import resource
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from vivace.engine.wire.frames import Loading

BEAT_S = 1.0
MIN_CPU_S = 0.002  # in that time; the thread itself needs a tenth of it


class ProcessActivity:
    """What this process, and those it has waited for, have done so far."""

    def __init__(self) -> None:
        self._cpu_s, self._reads = _activity()

    def has_grown(self) -> bool:
        """Whether anything was done since it was last asked."""
        (cpu_s, reads), before_s, before = _activity(), self._cpu_s, self._reads
        self._cpu_s, self._reads = cpu_s, reads
        return cpu_s - before_s > MIN_CPU_S or reads > before


@contextmanager
def loading_heartbeat(send: Callable[[Loading], None]) -> Iterator[None]:
    """Inside of the block, send a `Loading` every second in which something was done."""
    is_loaded = threading.Event()

    def tell() -> None:
        activity = ProcessActivity()
        while not is_loaded.wait(BEAT_S):
            if activity.has_grown():
                try:
                    send(Loading())
                except OSError:  # the server is gone: the engine's loop will see it
                    return

    thread = threading.Thread(target=tell, name="loading", daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_loaded.set()
        thread.join()


def _activity() -> tuple[float, int]:
    """Seconds of processor time, and reads from disk, as files or as pages of mapped ones."""
    mine, children = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    cpu_s = sum(usage.ru_utime + usage.ru_stime for usage in (mine, children))
    return cpu_s, sum(usage.ru_majflt + usage.ru_inblock for usage in (mine, children))
