"""The engines of one model: one, or one on each GPU, and which of them serves a session.

The first is started at once. What it says of the machine decides whether others follow it. Owns how many
there are, how busy each is, and where a session is placed (`placement` has the rule). Does not own the life
of each (`supervisor`) or the frames of sessions (`loaded_model`).
"""

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import NamedTuple

from vivace.config import Settings
from vivace.engine.wire.frames import Loading, Ready, StatsReply, Tier
from vivace.engine.wire.job import Job, engine_jobs
from vivace.errors import StartError
from vivace.server.backends.native.engines.placement import EngineLoad, EngineState, place
from vivace.server.backends.native.engines.process import EXIT_S, EngineProcess
from vivace.server.backends.native.engines.supervisor import EngineHooks, EngineSupervisor
from vivace.server.conversation.token_log import Session

log = logging.getLogger(__name__)

MIN_SHARED_TOKENS = 32  # a beginning that is worth more than the room on another engine


class Seat(NamedTuple):
    """A place on an engine, for one turn."""

    engine: EngineSupervisor
    process: EngineProcess


class EngineGroup:
    def __init__(self, job: Job, settings: Settings, hooks: EngineHooks) -> None:
        self.job = job
        self._settings = settings
        self._on_loading = hooks.on_loading
        self._hooks = replace(hooks, on_loading=self._take_loading)
        self._engines = [EngineSupervisor(job, self._hooks)]
        self._busy: Counter[tuple[EngineSupervisor, Tier]] = Counter()
        self._is_whole = False  # the other engines that the machine has devices for are started

    def __len__(self) -> int:
        return len(self._engines)

    def __iter__(self) -> Iterator[EngineSupervisor]:
        return iter(self._engines)

    @property
    def processes(self) -> list[EngineProcess]:
        """Return the engine processes that are up."""
        return [engine.process for engine in self._engines if engine.process]

    @property
    def is_ready(self) -> bool:
        """Whether a request would be answered now."""
        return any(engine.is_ready for engine in self._engines)

    @property
    def loading(self) -> Loading | None:
        """Return how far the first engine is that will answer; None where one does, or nothing is known."""
        news = [engine.loading for engine in self._engines if engine.loading]
        return None if self.is_ready else max(news, key=lambda each: each.read_bytes, default=None)

    async def up(self) -> Ready:
        """Wait for an engine that answers; return what it said of itself. `StartError` if none can start."""
        answering = [engine for engine in self._engines if engine.is_ready]
        ready = (await (answering or self._engines)[0].up()).ready.result()
        self._grow(ready)
        return ready

    @asynccontextmanager
    async def seat(self, session: Session, tier: Tier, near: Iterable[Session] = ()) -> AsyncIterator[Seat]:
        """Give the engine that is to serve the session. It counts as busy inside of the block.

        `near` are the sessions that it may begin like.
        """
        engine = self._place(session, near)
        while True:
            self._busy[engine, tier] += 1
            try:
                process = await self._up(engine, session, near)
                if process is not None:
                    yield Seat(engine, process)
                    return
            finally:
                self._busy[engine, tier] -= 1
            engine = self._place(session, near)

    async def _up(
        self, engine: EngineSupervisor, session: Session, near: Iterable[Session]
    ) -> EngineProcess | None:
        """Return its process; None if it cannot start, and another engine is there for the session."""
        try:
            process = await engine.up()
        except StartError:
            if self._place(session, near) is engine:
                raise
            return None
        self._grow(process.ready.result())
        return process

    async def stats(self) -> list[StatsReply | None]:
        """Return what each engine has to do; None for one that does not answer."""
        return await asyncio.gather(*(engine.stats() for engine in self._engines))

    async def close(self, patience_s: float = EXIT_S) -> None:
        self._is_whole = True
        await asyncio.gather(*(engine.close(patience_s) for engine in self._engines))

    def _take_loading(self, _: Loading) -> None:
        if news := self.loading:  # or else nobody waits for it
            self._on_loading(news)

    def _grow(self, ready: Ready) -> None:
        """Start the other engines that this machine has devices for, now that one has told of them."""
        if self._is_whole:
            return
        self._is_whole = True
        jobs = engine_jobs(self._settings, self.job, ready)
        if len(jobs) > 1:
            log.info(
                "%d engines for %s: %s", len(jobs), self.job.model, ", ".join(job.device for job in jobs)
            )
        self._engines += [EngineSupervisor(job, self._hooks) for job in jobs[1:]]

    def _place(self, session: Session, near: Iterable[Session]) -> EngineSupervisor:
        if len(self._engines) == 1:
            return self._engines[0]
        loads = [self._load(engine) for engine in self._engines]
        home = self._index(session)
        if home is not None:
            return self._engines[place(loads, home=home)]
        parent = self._index(session.source.session) if session.source else None
        return self._engines[place(loads, parent=parent, near=self._near(session, near))]

    def _near(self, session: Session, others: Iterable[Session]) -> int | None:
        """Return the engine of the session that this one begins most like. It takes milliseconds."""
        shared = {
            other: session.log.shared_with(other.log)
            for other in others
            if other is not session and self._index(other) is not None
        }
        best = max(shared, key=lambda other: shared[other], default=None)
        return self._index(best) if best and shared[best] >= MIN_SHARED_TOKENS else None

    def _index(self, session: Session) -> int | None:
        """Return which engine has the session open."""
        processes = [engine.process for engine in self._engines]
        return next((at for at, each in enumerate(processes) if each and each is session.open_in), None)

    def _load(self, engine: EngineSupervisor) -> EngineLoad:
        stats = engine.last_stats
        state: EngineState = "ready" if engine.is_ready else "silent" if engine.process else "down"
        free_cells = stats.kv_cells - stats.kv_tokens if stats else 0
        return EngineLoad(state, self._busy[engine, "realtime"], self._busy[engine, "background"], free_cells)
