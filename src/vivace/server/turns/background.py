"""Background responses: they go on when their client has left, and are told again from any event on.

Owns those that run, and for a while those that have ended. Their events are written down with the response
when it ends, so that they can be told again after a restart too. Does not own turns (`desk`) or routes
(`responses`).
"""

import asyncio
import logging
from collections.abc import AsyncIterator

import msgspec

from vivace.protocol.shapes.events import AnyEvent, Response, ResponseQueued, Terminal
from vivace.protocol.shapes.outcomes import Broken
from vivace.protocol.shapes.refusal import INTERNAL, mistake
from vivace.protocol.writing.writer import ResponseWriter
from vivace.server.backends.base import Caller, Turn
from vivace.server.conversation.token_log import LogContents, StoredResponse
from vivace.server.transport.sse import framed
from vivace.server.turns.activity import Activity
from vivace.server.turns.desk import Desk

MAX_ENDED = 64  # that are still in memory

log = logging.getLogger(__name__)
_encode = msgspec.json.Encoder().encode


class Live:
    """One background response: its turn, and all its events so far."""

    def __init__(self, desk: Desk, turn: Turn) -> None:
        self._desk = desk
        self.turn = turn
        self._writer = ResponseWriter(turn.request, turn.id, turn.model)
        self._events: list[AnyEvent] = self._writer.begin(turn.place)
        self._news = asyncio.Condition()
        self.is_over = False
        self.response: Response = self._events[0].response  # type: ignore[union-attr]

    async def run(self) -> None:
        """The boundary of a background turn: whatever goes wrong here is logged, and ends it."""
        try:
            async for outcome in self.turn.outcomes():
                await self._add(self._writer.take(outcome))
        except Exception:
            log.exception("%s failed", self.turn.id)
            self.turn.interrupt()
            if not self._writer.is_over:
                await self._add(self._writer.take(Broken(INTERNAL, mistake().message)))
        finally:
            await self._tell(is_over=True)

    async def frames(self, after: int = -1) -> AsyncIterator[bytes]:
        """All events with a number above `after`, to the last, as they come."""
        at = after + 1  # events are numbered from 0 without a gap
        while True:
            while at < len(self._events):
                yield framed(self._events[at])
                at += 1
            if self.is_over:
                return
            async with self._news:
                while not self.is_over and at >= len(self._events):
                    await self._news.wait()

    async def cancel(self) -> None:
        """End it, and wait until it is over."""
        self.turn.interrupt("cancelled")
        async with self._news:
            await self._news.wait_for(lambda: self.is_over)

    async def _add(self, events: list[AnyEvent]) -> None:
        for event in events:
            if isinstance(event, Terminal):  # told to nobody before it is written down
                lines = b"\n".join(_encode(each) for each in [*self._events, event])
                event = await self._desk.commit(self.turn, event, lines if self.turn.request.stream else b"")
            if isinstance(event, ResponseQueued):  # it tells of the place only
                self.response = msgspec.structs.replace(self.response, vivace=event.response.vivace)
            else:
                self.response = getattr(event, "response", self.response)
            self._events.append(event)
        await self._tell(is_over=self._writer.is_over)

    async def _tell(self, *, is_over: bool) -> None:
        async with self._news:
            self.is_over = is_over
            self._news.notify_all()


class Backgrounds:
    def __init__(self, desk: Desk, activity: Activity) -> None:
        self._desk = desk
        self._activity = activity
        self._lives: dict[str, Live] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def begin(self, turn: Turn) -> Live:
        """Written down before the client hears of it: an id that was given out is never unknown."""
        live = Live(self._desk, turn)
        try:
            await self._desk.library.begin(_promised(turn), live.response)
        except BaseException:
            turn.interrupt()
            raise
        self._lives[turn.id] = live
        self._drop_old()
        task = asyncio.create_task(self._run(live))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return live

    def get(self, response_id: str, caller: Caller) -> Live | None:
        live = self._lives.get(response_id)
        return live if live and live.turn.caller.tenant == caller.tenant else None

    def drop(self, live: Live) -> None:
        self._lives.pop(live.turn.id, None)

    async def _run(self, live: Live) -> None:
        with self._activity.answering():
            await live.run()

    def _drop_old(self) -> None:
        over = [live for live in self._lives.values() if live.is_over]
        for live in over[: max(0, len(over) - MAX_ENDED)]:
            self.drop(live)


def _promised(turn: Turn) -> StoredResponse:
    return StoredResponse(
        turn.id,
        tenant=turn.caller.tenant,
        connection="",
        is_stored=True,
        model=turn.model,
        told=LogContents(),
        session=None,
        input=turn.request.items,
    )
