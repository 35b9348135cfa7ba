"""An engine that is always there: the process is started, watched, and started again when it dies.

It is asked for a sign of life every second, which it gives in the middle of its work too. One that owes an
answer is not ready, and no turn begins on it; one that owes it for a minute is ended, and its turns go on in
the next.

Owns when an engine process lives. Does not own the turns that ran on it: they learn of the death and submit
themselves again (`backend`).
"""

import asyncio
import contextlib
import logging
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from vivace.engine.wire.frames import Loading, StatsReply
from vivace.engine.wire.job import Job
from vivace.errors import StartError
from vivace.server.backends.native.engines.process import EXIT_S, EngineProcess

START_ATTEMPTS = 2
CALM_S = 60.0  # deaths longer ago than this are forgiven
FIRST_DELAY_S, LONGEST_DELAY_S = 0.1, 5.0
RETRY_AFTER_S = 1.0  # an engine that could not start is not tried again sooner
STATS_S = 1.0
BEAT_S = 1.0  # between two questions
SILENT_S = 1.5  # an engine that owes an answer for so long is not ready
HUNG_S = 60.0  # and after this it is ended

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class EngineHooks:
    """Who is told what happens to engines."""

    on_restart: Callable[[], None] = lambda: None
    on_loading: Callable[[Loading], None] = lambda _: None  # as more of the model is read


NO_HOOKS = EngineHooks()


class EngineSupervisor:
    def __init__(self, job: Job, hooks: EngineHooks = NO_HOOKS) -> None:
        self.job = job
        self._hooks = hooks
        self._deaths: deque[float] = deque(maxlen=8)
        self._failed_at = 0.0
        self._current: EngineProcess | None = None
        self.last_stats: StatsReply | None = None  # of the process that is up
        self.loading: Loading | None = None  # how far it is, while a process loads the model and says so
        self._is_closing = False
        self._responsive = asyncio.Event()  # the engine owes no answer, or there is none that could
        self._responsive.set()
        self._beating: asyncio.Task[None] | None = None
        self._cleanups: set[asyncio.Task[None]] = set()
        self._coming = self._come_up()

    @property
    def process(self) -> EngineProcess | None:
        """Return the engine process that has said `Ready`, or None."""
        return self._current

    @property
    def is_ready(self) -> bool:
        """Return whether a request would be answered now."""
        return self._current is not None and self._responsive.is_set()

    async def up(self) -> EngineProcess:
        """Wait for an engine that is ready and answers; `StartError` if it cannot start."""
        while True:
            has_failed = self._coming.done() and not self._current
            if has_failed and time.monotonic() - self._failed_at > RETRY_AFTER_S:
                self._coming = self._come_up()
            process = await asyncio.shield(self._coming)
            if self._responsive.is_set():
                return process
            await self._responsive.wait()

    async def stats(self) -> StatsReply | None:
        if not self._current:
            return None
        try:
            return await asyncio.wait_for(self._current.stats(), STATS_S)
        except (TimeoutError, EOFError):
            return None

    async def close(self, patience_s: float = EXIT_S) -> None:
        """End the engine. If it answers, it may finish its work first, for `patience_s`."""
        self._is_closing = True
        self._coming.cancel()
        if self._beating:
            self._beating.cancel()
        with contextlib.suppress(asyncio.CancelledError, StartError):
            await self._coming
        if self._current:
            await self._current.close(patience_s if self._responsive.is_set() else EXIT_S)
            self._current = None

    def _come_up(self) -> asyncio.Task[EngineProcess]:
        task = asyncio.create_task(self._start_process())
        task.add_done_callback(lambda done: done.cancelled() or done.exception())  # seen, even if none waits
        return task

    async def _start_process(self) -> EngineProcess:
        await asyncio.sleep(self._delay_s())
        for attempt in range(1, START_ATTEMPTS + 1):
            process = EngineProcess(self._on_death, self._take_loading)
            try:
                ready = await process.begin(self.job)
            except StartError as error:
                self._failed_at, self.loading = time.monotonic(), None
                log.error("%s", error.message)
                if attempt == START_ATTEMPTS:
                    raise
            except BaseException:
                await process.close()
                raise
            else:
                self._current, self.loading = process, None
                self._responsive.set()
                self._beating = asyncio.create_task(self._beat(process))
                log.info("engine %d is ready after %.0f ms", ready.pid, ready.load_ms)
                return process
        raise AssertionError("an attempt succeeds or raises")

    def _take_loading(self, news: Loading) -> None:
        self.loading = news
        self._hooks.on_loading(news)

    async def _beat(self, process: EngineProcess) -> None:
        """Ask for a sign of life again and again, until there is none."""
        while not process.is_dead:
            answer = asyncio.ensure_future(process.stats())
            answer.add_done_callback(lambda done: done.cancelled() or done.exception())  # seen: it may die
            try:
                await asyncio.wait([answer], timeout=SILENT_S)
                if not answer.done():
                    self._responsive.clear()
                    log.warning("the engine does not answer")
                    await asyncio.wait([answer], timeout=HUNG_S - SILENT_S)
                    if not answer.done():
                        log.error("the engine did not answer for %.0f s; ending it", HUNG_S)
                        process.kill()
                        return
                    self._responsive.set()
                if not answer.cancelled() and not answer.exception():
                    self.last_stats = answer.result()
            finally:
                answer.cancel()
            await asyncio.sleep(BEAT_S)

    def _on_death(self) -> None:
        """Start another process. Called before the turns learn of the death, so that they wait for it."""
        dead, self._current, self.last_stats = self._current, None, None
        self._responsive.set()  # whoever waits for its answer waits for the next one now
        self._deaths.append(time.monotonic())
        log.error("the engine died; starting another")
        self._hooks.on_restart()
        if not self._is_closing:
            self._coming = self._come_up()
        if dead:
            cleanup = asyncio.create_task(dead.close())
            self._cleanups.add(cleanup)
            cleanup.add_done_callback(self._cleanups.discard)

    def _delay_s(self) -> float:
        """Return how long to wait before a start: nothing after one death, then twice as long each time."""
        recent = sum(1 for death in self._deaths if time.monotonic() - death < CALM_S)
        return 0.0 if recent < 2 else min(FIRST_DELAY_S * 2 ** (recent - 2), LONGEST_DELAY_S)
