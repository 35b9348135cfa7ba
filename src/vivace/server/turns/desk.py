"""The front desk: every turn of every route begins here, and is written down here before its end is told.

Owns the order: which backend, whether the key may, whether there is room, then the backend's own `begin`.
What was taken from the limits and the queue is given back when the turn is over, however it ended. Does not
own events or transports.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from weakref import WeakKeyDictionary

import msgspec

from vivace.errors import VivaceError
from vivace.protocol.shapes.events import ResponseError, ResponseFailed, Terminal, Usage, Waterfall
from vivace.protocol.shapes.outcomes import Broken, Ended, Outcome, Queued, Started
from vivace.protocol.shapes.refusal import INTERNAL, Refusal, mistake, model_not_found
from vivace.protocol.shapes.requests import ResponseCreate
from vivace.protocol.writing.writer import new_response_id
from vivace.server.backends.base import Backend, Caller, Taker, Turn, TurnHooks
from vivace.server.backends.native.backend import not_found
from vivace.server.backends.native.outbox import Outbox
from vivace.server.conversation.library import Library
from vivace.server.conversation.token_log import LogContents, StoredResponse
from vivace.server.transport.keys import Keys
from vivace.server.turns.limits import Limits, RateRefused, Reservation, estimate_tokens
from vivace.server.turns.queue import Ticket, TurnQueue
from vivace.server.watch.turn_watch import TurnWatch, Watch

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Admitted:
    """A turn that was accepted, and the headers of its answer: what is left of the caller's limits."""

    turn: Turn
    headers: Mapping[str, str]


class Desk:
    def __init__(
        self,
        backends: Sequence[Backend],
        library: Library,
        limits: Limits,
        queue: TurnQueue,
        keys: Keys,
        watch: Watch,
    ) -> None:
        self._backends = backends
        self.library = library
        self._limits = limits
        self._queue = queue
        self._keys = keys
        self._watch = watch
        self._previous: WeakKeyDictionary[Turn, StoredResponse] = WeakKeyDictionary()
        self._is_closing = False

    async def begin(self, request: ResponseCreate, caller: Caller, response_id: str = "") -> Admitted:
        """Accept a request, or raise why not."""
        if self._is_closing:
            raise Refusal("The server is shutting down.", "Try again.", code="shutting_down", status=503)
        if caller.secret_hash and not await self._keys.find_hashed(caller.secret_hash):
            raise Refusal("This key was removed.", code="invalid_api_key", status=401)
        previous = None
        if request.previous_response_id:
            previous = await self.library.find(request.previous_response_id, caller)
            if previous is None:
                raise not_found(request.previous_response_id)
            request.model = request.model or previous.model
        request.model = request.model or self._backends[0].models()[0]
        backend = await self._backend(request.model, caller)
        tokens = estimate_tokens(_size(request), request.max_output_tokens)
        try:
            reservation = self._limits.reserve(caller.account, request.tier, tokens)
            try:
                ticket = self._queue.enter(request.tier, caller.key, float(tokens))
            except RateRefused as error:
                reservation.settle(0)
                error.headers = reservation.headers | error.headers
                raise
        except VivaceError as error:
            self._watch.refused(error, request.tier)
            raise
        response_id = response_id or new_response_id()

        def begin(hooks: TurnHooks) -> Turn:
            if ticket.is_running:
                return backend.begin(request, response_id, caller, hooks)
            return WaitingTurn(request, response_id, caller, ticket, backend, hooks)

        watch = self._watch.began(response_id, request, caller)
        turn = self._admit(begin, watch, previous, reservation, ticket)
        return Admitted(turn, reservation.headers)

    async def commit(self, turn: Turn, event: Terminal, events: bytes = b"") -> Terminal:
        """Write a response down before its end is told; if that cannot be done, it has failed."""
        error: VivaceError
        try:
            await self.library.commit(turn.known or self._known(turn), event.response, events)
            return event
        except VivaceError as refused:
            error = refused
        except Exception:
            log.exception("%s is not stored", turn.id)
            error = mistake()
        if isinstance(event, ResponseFailed):
            return event
        problem = ResponseError(error.code, f"{error.message} {error.hint}".rstrip())
        response = msgspec.structs.replace(
            event.response, status="failed", error=problem, incomplete_details=None
        )
        return ResponseFailed(
            response=response, sequence_number=event.sequence_number, stream_id=event.stream_id
        )

    def models(self) -> list[str]:
        return list(dict.fromkeys(name for backend in self._backends for name in backend.models()))

    def close_door(self) -> None:
        """Accept no more turns."""
        self._is_closing = True

    async def stop_turns(self) -> None:
        self.close_door()
        await asyncio.gather(*(backend.stop_turns() for backend in self._backends))

    async def _backend(self, model: str, caller: Caller) -> Backend:
        for backend in self._backends:
            if backend.serves(model, caller):
                return backend
        for backend in self._backends:
            await backend.discover()
            if backend.serves(model, caller):
                return backend
        if not caller.is_owner:
            raise model_not_found(model)
        return self._backends[0]  # says what is wrong with the name

    def _admit(
        self,
        begin: Callable[[TurnHooks], Turn],
        watch: TurnWatch,
        previous: StoredResponse | None,
        reservation: Reservation,
        ticket: Ticket,
    ) -> Turn:
        """Begin the turn, or let it wait. The response that it continues stays known until it is over."""

        def give_back(used: int) -> None:
            reservation.settle(used)
            ticket.leave(float(used))
            self.library.release(previous)

        def over(outcome: Ended | Broken) -> None:
            give_back(outcome.usage.total_tokens if isinstance(outcome, Ended) else 0)
            watch.ended(outcome)

        self.library.hold(previous)
        try:
            turn = begin(TurnHooks(over, watch))
        except BaseException:
            give_back(0)
            watch.withdraw()
            raise
        if previous:
            self._previous[turn] = previous
        return turn

    def _known(self, turn: Turn) -> StoredResponse:
        """Of a turn that has no log here: an upstream's, or one that never came to its prompt."""
        parent = self._previous.get(turn)
        known = StoredResponse(
            turn.id,
            tenant=turn.caller.tenant,
            connection=turn.caller.connection,
            is_stored=turn.request.is_stored,
            model=turn.model,
            told=LogContents(),
            session=None,
            parent=parent,
            follows=parent is not None and parent.session is None,
            input=turn.request.items,
        )
        return self.library.keep(known)


class WaitingTurn:
    """A turn that stands in line; the backend's own turn from when it may begin."""

    def __init__(
        self,
        request: ResponseCreate,
        response_id: str,
        caller: Caller,
        ticket: Ticket,
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
        self._waiting = asyncio.create_task(self._wait())

    @property
    def known(self) -> StoredResponse | None:
        return self._inner.known if self._inner else None

    def interrupt(self, reason: str = "interrupted", *, is_discarding: bool = False) -> None:
        if self._inner:
            self._inner.interrupt(reason, is_discarding=is_discarding)
        elif not self._is_over:
            self._waiting.cancel()
            self._conclude(Ended(reason, Usage(0, 0, 0), Waterfall()))

    async def outcomes(self, taker: Taker | None = None) -> AsyncIterator[Outcome]:
        async for outcome in self._outbox:
            yield outcome
            if isinstance(outcome, Started):
                break
        if self._inner:  # nothing is offered to `taker` before the listener has seen `Started`
            async for outcome in self._inner.outcomes(taker):
                yield outcome

    async def _wait(self) -> None:
        """The boundary of a turn in line: whatever goes wrong when it is to begin is told as its end."""
        told = self.place.position if self.place else 0
        async for place in self._ticket.wait():
            if place.position != told:
                told = place.position
                self._outbox.put(place)
        try:
            self._inner = self._backend.begin(self.request, self.id, self.caller, self._hooks)
        except VivaceError as error:
            return self._conclude(Broken(error.code, f"{error.message} {error.hint}".rstrip()))
        except Exception:
            log.exception("%s failed", self.id)
            return self._conclude(Broken(INTERNAL, mistake().message))
        return self._outbox.put(Started())

    def _conclude(self, outcome: Ended | Broken) -> None:
        self._is_over = True
        self._outbox.put(outcome)
        self._hooks.on_over(outcome)


def _size(request: ResponseCreate) -> int:
    """About how many bytes the model is to read."""
    size = len(request.instructions or "")
    for item in request.items:
        size += len(item.text) + len(item.call_text) + len(item.output_text)
    return size
