"""A turn in the queue: it becomes the backend's own turn when its place comes up.

Owns the wait. Does not own the order (`queue`), or what was reserved for the turn (`service`).
"""

import asyncio
import logging
from collections.abc import AsyncIterator

from vivace.errors import VivaceError
from vivace.protocol.shapes.events import Usage, Waterfall
from vivace.protocol.shapes.outcomes import Broken, Ended, Outcome, Queued, Started
from vivace.protocol.shapes.refusal import INTERNAL, mistake
from vivace.protocol.shapes.requests import ResponseCreate
from vivace.server.backends.base import Backend, Taker, Turn, TurnHooks
from vivace.server.backends.native.outbox import Outbox
from vivace.server.caller import Caller
from vivace.server.conversation.token_log import StoredResponse
from vivace.server.turns.queue import QueueTicket

log = logging.getLogger(__name__)


class QueuedTurn:
    """Waits for its place, then stands for the backend's turn."""

    def __init__(
        self,
        request: ResponseCreate,
        response_id: str,
        caller: Caller,
        ticket: QueueTicket,
        backend: Backend,
        hooks: TurnHooks,
    ) -> None:
        self.id = response_id
        self.request = request
        self.caller = caller
        self.model = request.model or ""
        self.watch = hooks.watch
        self.place: Queued | None = ticket.place
        self._ticket = ticket
        self._backend = backend
        self._hooks = hooks
        self._inner: Turn | None = None
        self._outbox = Outbox()
        self._is_over = False
        self._answers_now = False  # it is not to think when its place comes up
        self._waiting = asyncio.create_task(self._wait())

    @property
    def stored_response(self) -> StoredResponse | None:
        return self._inner.stored_response if self._inner else None

    @property
    def prompt_usage(self) -> Usage | None:
        return self._inner.prompt_usage if self._inner else None

    def interrupt(self, reason: str = "interrupted", *, is_discarding: bool = False) -> None:
        if self._inner:
            self._inner.interrupt(reason, is_discarding=is_discarding)
        elif not self._is_over:
            self._waiting.cancel()
            self._conclude(Ended(reason, Usage(0, 0, 0), Waterfall()))

    def answer_now(self) -> None:
        self._answers_now = True
        if self._inner:
            self._inner.answer_now()

    async def outcomes(self, taker: Taker | None = None) -> AsyncIterator[Outcome]:
        async for outcome in self._outbox:
            yield outcome
            if isinstance(outcome, Started):
                break
        if self._inner:  # nothing is offered to `taker` before the listener has seen `Started`
            async for outcome in self._inner.outcomes(taker):
                yield outcome

    async def _wait(self) -> None:
        """Wait, then begin. This is a boundary: any error here is the end of the turn."""
        last = self.place.position if self.place else 0
        async for place in self._ticket.wait():
            if place.position != last:
                last = place.position
                self._outbox.put(place)
        try:
            self._inner = self._backend.begin(self.request, self.id, self.caller, self._hooks)
        except VivaceError as error:
            return self._conclude(Broken(error.code, f"{error.message} {error.hint}".rstrip()))
        except Exception:
            log.exception("%s failed", self.id)
            return self._conclude(Broken(INTERNAL, mistake().message))
        if self._answers_now:
            self._inner.answer_now()
        return self._outbox.put(Started())

    def _conclude(self, outcome: Ended | Broken) -> None:
        self._is_over = True
        self._outbox.put(outcome)
        self._hooks.on_over(outcome)
