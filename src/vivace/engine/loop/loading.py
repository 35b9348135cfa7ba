"""A heartbeat while a model is loaded: a thread tells the server that loading gets on, and how far it is.

Owns that thread, which ends when the model is loaded. Progress is processor time or reads from disk, as the
system counts them, so it works for every runner. A slow disk makes progress; one that is gone does not. How
much of the model is read is known where the runner tells it.
"""

import resource
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from vivace.engine.runners.base import TellRead
from vivace.engine.wire.frames import Loading

BEAT_S = 0.5
MIN_CPU_S = 0.002  # in that time; the thread itself needs a tenth of it


class ProcessActivity:
    """Processor time and disk reads of this process and of children that it has waited for."""

    def __init__(self) -> None:
        self._cpu_s, self._reads = _activity()

    def has_grown(self) -> bool:
        """Return whether the process was active since the last call."""
        (cpu_s, reads), before_s, before = _activity(), self._cpu_s, self._reads
        self._cpu_s, self._reads = cpu_s, reads
        return cpu_s - before_s > MIN_CPU_S or reads > before


@contextmanager
def loading_heartbeat(send: Callable[[Loading], None]) -> Iterator[TellRead]:
    """Send a `Loading` for every beat of the block in which this process was active.

    Give what is to be called with the bytes that are read: the next beat has them. Only the thread sends.
    """
    is_loaded, news = threading.Event(), Loading()

    def tell(read_bytes: int, total_bytes: int) -> None:
        nonlocal news
        news = Loading(read_bytes, total_bytes)

    def beat() -> None:
        activity = ProcessActivity()
        while not is_loaded.wait(BEAT_S):
            if activity.has_grown():
                try:
                    send(news)
                except OSError:  # the server is gone: the engine's loop will see it
                    return

    thread = threading.Thread(target=beat, name="loading", daemon=True)
    thread.start()
    try:
        yield tell
    finally:
        is_loaded.set()
        thread.join()


def _activity() -> tuple[float, int]:
    """Return seconds of processor time and the number of disk reads so far, children included."""
    mine, children = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    cpu_s = sum(usage.ru_utime + usage.ru_stime for usage in (mine, children))
    return cpu_s, sum(usage.ru_majflt + usage.ru_inblock for usage in (mine, children))
