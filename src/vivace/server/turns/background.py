"""Background responses: they go on when their client has left, and can be streamed again from any event.

Owns those that run, and for a while those that have ended. Their events are stored with the response when it
ends, so that they can be streamed again after a restart too. Does not own turns (`service`) or routes
(`routes.responses`).
"""

import asyncio
import logging
from collections.abc import AsyncIterator

import msgspec

from vivace.protocol.shapes.events import AnyEvent, Response, ResponseInProgress, ResponseQueued, Terminal
from vivace.protocol.shapes.outcomes import Broken
from vivace.protocol.shapes.refusal import INTERNAL, mistake
from vivace.protocol.writing.writer import ResponseWriter
from vivace.server.backends.base import Turn
from vivace.server.caller import Caller
from vivace.server.conversation.token_log import LogContents, StoredResponse
from vivace.server.transport.sse import framed
from vivace.server.turns.activity import Activity
from vivace.server.turns.service import TurnService

MAX_ENDED = 64  # that are still in memory

log = logging.getLogger(__name__)
_encode = msgspec.json.Encoder().encode


class BackgroundResponse:
    """One background response: its turn, and all its events so far."""

    def __init__(self, service: TurnService, turn: Turn) -> None:
        self._service = service
        self.turn = turn
        self._writer = ResponseWriter(turn.request, turn.id, turn.model)
        self._events: list[AnyEvent] = self._writer.begin(turn.place)
        self._changed = asyncio.Condition()
        self.is_over = False
        self.response: Response = self._events[0].response  # type: ignore[union-attr]

    async def run(self) -> None:
        """Run the turn to its end. This is a boundary: an error is logged and ends the response."""
        try:
            async for outcome in self.turn.outcomes():
                await self._add(self._writer.write(outcome))
        except Exception:
            log.exception("%s failed", self.turn.id)
            self.turn.interrupt()
            if not self._writer.is_over:
                await self._add(self._writer.write(Broken(INTERNAL, mistake().message)))
        finally:
            await self._notify(is_over=True)

    async def frames(self, after: int = -1) -> AsyncIterator[bytes]:
        """Give all events with a number above `after`, to the last, as they come."""
        at = after + 1  # events are numbered from 0 without a gap
        while True:
            while at < len(self._events):
                yield framed(self._events[at])
                at += 1
            if self.is_over:
                return
            async with self._changed:
                while not self.is_over and at >= len(self._events):
                    await self._changed.wait()

    async def cancel(self) -> None:
        """End it, and wait until it is over."""
        self.turn.interrupt("cancelled")
        async with self._changed:
            await self._changed.wait_for(lambda: self.is_over)

    async def _add(self, events: list[AnyEvent]) -> None:
        for event in events:
            if isinstance(event, Terminal):  # nobody gets it before it is stored
                lines = b"\n".join(_encode(each) for each in [*self._events, event])
                event = await self._service.commit(
                    self.turn, event, lines if self.turn.request.stream else b""
                )
            if (
                isinstance(event, ResponseQueued | ResponseInProgress) and event.response.vivace
            ):  # only that is new
                self.response = msgspec.structs.replace(self.response, vivace=event.response.vivace)
            else:
                self.response = getattr(event, "response", self.response)
            self._events.append(event)
        await self._notify(is_over=self._writer.is_over)

    async def _notify(self, *, is_over: bool) -> None:
        async with self._changed:
            self.is_over = is_over
            self._changed.notify_all()


class BackgroundResponses:
    def __init__(self, service: TurnService, activity: Activity) -> None:
        self._service = service
        self._activity = activity
        self._lives: dict[str, BackgroundResponse] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def begin(self, turn: Turn) -> BackgroundResponse:
        """Store a background response, then run it: an id that a client was given is never unknown."""
        live = BackgroundResponse(self._service, turn)
        try:
            await self._service.library.begin(_promised(turn), live.response)
        except BaseException:
            turn.interrupt()
            raise
        self._lives[turn.id] = live
        self._drop_old()
        task = asyncio.create_task(self._run(live))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return live

    def get(self, response_id: str, caller: Caller) -> BackgroundResponse | None:
        live = self._lives.get(response_id)
        return live if live and live.turn.caller.tenant == caller.tenant else None

    def drop(self, live: BackgroundResponse) -> None:
        self._lives.pop(live.turn.id, None)

    async def _run(self, live: BackgroundResponse) -> None:
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
        log_contents=LogContents(),
        session=None,
        input=turn.request.items,
    )
