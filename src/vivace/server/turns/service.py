"""Where every turn of every route begins, and where its response is stored before its last event is sent.

Owns the order: which backend, whether the key may, whether there is room, then the backend's own `begin`.
What was reserved in the limits and the queue is given back when the turn is over, however it ended. Does not
own events or transports.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from weakref import WeakKeyDictionary

import msgspec

from vivace.errors import VivaceError
from vivace.protocol.shapes.events import ResponseError, ResponseFailed, Terminal
from vivace.protocol.shapes.outcomes import Broken, Ended
from vivace.protocol.shapes.refusal import Refusal, mistake, model_not_found, previous_not_found
from vivace.protocol.shapes.requests import ResponseCreate
from vivace.protocol.writing.writer import new_response_id
from vivace.server.backends.base import Backend, Turn, TurnHooks
from vivace.server.caller import Caller
from vivace.server.conversation.library import Library
from vivace.server.conversation.token_log import LogContents, StoredResponse
from vivace.server.transport.access.keys import Keys
from vivace.server.turns.limits import Limits, RateRefused, Reservation, estimate_tokens
from vivace.server.turns.queue import QueueTicket, TurnQueue
from vivace.server.turns.queued_turn import QueuedTurn
from vivace.server.watch.turn_watch import TurnWatch, Watch

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Admitted:
    """A turn that was accepted, and the headers of its answer: what is left of the caller's limits."""

    turn: Turn
    headers: Mapping[str, str]


class TurnService:
    def __init__(
        self,
        backends: Sequence[Backend],
        library: Library,
        limits: Limits,
        queue: TurnQueue,
        keys: Keys,
        watch: Watch,
        alias: Callable[[str], str | None] = lambda _: None,  # what an unknown name stands for
    ) -> None:
        self._backends = backends
        self.library = library
        self._limits = limits
        self._queue = queue
        self._keys = keys
        self._watch = watch
        self._alias = alias
        self._previous: WeakKeyDictionary[Turn, StoredResponse] = WeakKeyDictionary()
        self._is_closing = False

    async def begin(self, request: ResponseCreate, caller: Caller, response_id: str = "") -> Admitted:
        """Accept a request, or raise a `VivaceError` that says why not."""
        if self._is_closing:
            raise Refusal("The server is shutting down.", "Try again.", code="shutting_down", status=503)
        if caller.secret_hash and not await self._keys.find_hashed(caller.secret_hash):
            raise Refusal("This key was removed.", code="invalid_api_key", status=401)
        previous = None
        if request.previous_response_id:
            previous = await self.library.find(request.previous_response_id, caller)
            if previous is None:
                raise previous_not_found(request.previous_response_id)
            request.model = request.model or previous.model
        request.model, backend = await self._find(request.model, caller)
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
            return QueuedTurn(request, response_id, caller, ticket, backend, hooks)

        watch = self._watch.began(response_id, request, caller)
        turn = self._admit(begin, watch, previous, reservation, ticket)
        return Admitted(turn, reservation.headers)

    async def commit(self, turn: Turn, event: Terminal, events: bytes = b"") -> Terminal:
        """Store a response before its last event is sent. Return that event, or a failed one instead."""
        error: VivaceError
        try:
            await self.library.commit(turn.stored_response or self._unlogged(turn), event.response, events)
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

    def stop_accepting(self) -> None:
        """Accept no more turns."""
        self._is_closing = True

    async def stop_turns(self) -> None:
        self.stop_accepting()
        await asyncio.gather(*(backend.stop_turns() for backend in self._backends))

    async def count_tokens(self, request: ResponseCreate, caller: Caller) -> int:
        """Return how long the prompt of a request would be. Nothing is generated, and no place taken."""
        request.model, backend = await self._find(request.model, caller)
        counted = await backend.count_tokens(request)
        return estimate_tokens(_size(request), 0) if counted is None else counted

    async def _find(self, name: str | None, caller: Caller) -> tuple[str, Backend]:
        """Return the model that is meant, and who serves it."""
        name = name or self._backends[0].models()[0]
        if backend := await self._backend(name, caller):
            return name, backend
        model = self._alias(name)
        if model and (backend := await self._backend(model, caller)):
            return model, backend
        if not caller.is_owner:
            raise model_not_found(name)
        return name, self._backends[0]  # says what is wrong with the name

    async def _backend(self, model: str, caller: Caller) -> Backend | None:
        for backend in self._backends:
            if backend.serves(model, caller):
                return backend
        for backend in self._backends:
            await backend.discover()
            if backend.serves(model, caller):
                return backend
        return None

    def _admit(
        self,
        begin: Callable[[TurnHooks], Turn],
        watch: TurnWatch,
        previous: StoredResponse | None,
        reservation: Reservation,
        ticket: QueueTicket,
    ) -> Turn:
        """Begin the turn, or let it wait. Hold the response that it continues until it is over."""

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

    def _unlogged(self, turn: Turn) -> StoredResponse:
        """Make the stored response of a turn without a log: an upstream's, or one that had no prompt yet."""
        parent = self._previous.get(turn)
        known = StoredResponse(
            turn.id,
            tenant=turn.caller.tenant,
            connection=turn.caller.connection,
            is_stored=turn.request.is_stored,
            model=turn.model,
            log_contents=LogContents(),
            session=None,
            parent=parent,
            follows=parent is not None and parent.session is None,
            input=turn.request.items,
        )
        return self.library.keep(known)


def _size(request: ResponseCreate) -> int:
    """Return about how many bytes the model will read."""
    size = len(request.instructions or "")
    if request.infill:
        size += len(request.infill.prefix) + len(request.infill.suffix or "")
    for item in request.items:
        size += len(item.text) + len(item.call_text) + len(item.output_text)
    return size
