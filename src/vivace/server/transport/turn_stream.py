"""A turn over HTTP in an API other than Responses: as a stream of its events, or drained into one answer.

Owns when a turn that breaks is a status and when an error in the stream, and how a stream lives through a
wait: a held call, a long prefill, the queue. Does not own what is sent: each API has its `Frames`.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, Protocol

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from vivace.errors import RequestRefused, VivaceError
from vivace.protocol.shapes.outcomes import Broken, ModelProgress, Outcome, Queued, Started
from vivace.protocol.shapes.refusal import mistake
from vivace.protocol.shapes.requests import ResponseCreate
from vivace.server.caller import Caller
from vivace.server.transport.answers import error_response
from vivace.server.transport.sse import FAILED_STATUS, FrameStream, interrupted_when_gone
from vivace.server.turns.activity import Activity
from vivace.server.turns.service import Admitted

log = logging.getLogger(__name__)

PATIENCE_S = 2.0  # for the first text; until then an error can still be a status

Begin = Callable[[ResponseCreate, Caller], Awaitable[Admitted]]


class Frames(Protocol):
    """What an API sends of a turn."""

    @property
    def is_over(self) -> bool: ...

    def begin(self, place: Queued | None) -> bytes: ...

    def frame(self, outcome: Outcome) -> bytes: ...

    def beat(self) -> bytes:
        """Return what is sent when there was nothing else of the answer for a while."""
        ...

    def error(self, error: VivaceError) -> bytes: ...


class TurnWriter(Protocol):
    def write(self, outcome: Outcome) -> Any: ...


class TurnStream(Response):
    """Sends each frame as soon as it exists."""

    def __init__(
        self,
        admitted: Admitted,
        outcomes: AsyncIterator[Outcome],
        frames: Frames,
        activity: Activity,
        *,
        patience_s: float,
        beat_s: float,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__()
        self._turn = admitted.turn
        self._extra = {**admitted.headers, **(headers or {})}
        self._listener = Listener(outcomes)
        self._api = frames
        self._activity = activity
        self._patience_s = patience_s
        self._beat_s = beat_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            with self._activity.answering():
                async with interrupted_when_gone(self._turn, receive):
                    opening = await self._opening()
                    if opening and isinstance(opening[-1], Broken):
                        response = error_response(error_of(opening[-1]), scope)
                    else:
                        response = self._stream(opening)
                    await response(scope, receive, send)
        finally:
            self._listener.close()

    def _stream(self, opening: list[Outcome]) -> Response:
        nobody = Activity()  # it is counted already
        return FrameStream(self._frames(opening), nobody, lambda: None, self._extra)

    async def _opening(self) -> list[Outcome]:
        """Return the outcomes up to the first text, as far as they come soon."""
        loop = asyncio.get_running_loop()
        end = loop.time() + self._patience_s
        opening: list[Outcome] = []
        while not opening or is_wait(opening[-1]):
            outcome = await self._listener.next(end - loop.time())
            if outcome is None:
                break
            opening.append(outcome)
        return opening

    async def _frames(self, opening: list[Outcome]) -> AsyncIterator[bytes]:
        """Give the frames. This is the boundary of a stream: errors are logged and answered."""
        try:
            yield self._api.begin(self._turn.place)
            if frame := b"".join(map(self._frame, opening)):
                yield frame
            loop = asyncio.get_running_loop()
            sent_at = loop.time()
            while not self._api.is_over:
                heard = await self._listener.next(sent_at + self._beat_s - loop.time())
                if frame := self._api.beat() if heard is None else self._frame(heard):
                    yield frame
                    if heard is None or not is_wait(heard):
                        sent_at = loop.time()
        except Exception:
            log.exception("%s failed", self._turn.id)
            yield self._api.error(mistake())

    def _frame(self, outcome: Outcome) -> bytes:
        frame = self._api.frame(outcome)
        return self._api.error(error_of(outcome)) if isinstance(outcome, Broken) else frame


class Listener:
    """A turn's outcomes, for a reader that waits only for a limited time."""

    def __init__(self, outcomes: AsyncIterator[Outcome]) -> None:
        self._outcomes = outcomes
        self._coming: asyncio.Future[Outcome] | None = None

    async def next(self, within_s: float) -> Outcome | None:
        """Return the next outcome, or None if none comes in time; the next call then waits on for it."""
        # Not `wait_for`: cancelling what it awaits would end the turn's generator.
        self._coming = self._coming or asyncio.ensure_future(anext(self._outcomes))
        await asyncio.wait({self._coming}, timeout=max(0.0, within_s))
        if not self._coming.done():
            return None
        outcome, self._coming = self._coming.result(), None
        return outcome

    def close(self) -> None:
        if self._coming:
            self._coming.cancel()


async def drained(outcomes: AsyncIterator[Outcome], writer: TurnWriter, scope: Scope) -> Response | None:
    """Write all outcomes. Return the answer to a turn that broke; None: the writer has the whole answer."""
    async for outcome in outcomes:
        if isinstance(outcome, Broken):
            return error_response(error_of(outcome), scope)
        writer.write(outcome)
    return None


def is_wait(outcome: Outcome) -> bool:
    """Return whether the outcome says nothing of the answer."""
    return isinstance(outcome, Queued | ModelProgress | Started)


def error_of(broken: Broken) -> RequestRefused:
    return RequestRefused(broken.message, code=broken.code, status=FAILED_STATUS.get(broken.code, 500))
