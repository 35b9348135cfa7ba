"""One WebSocket as a machine without I/O: messages and outcomes in, actions out.

Owns what happens when on a connection, and every frame that is sent on it. Does not own sockets or engines:
the shell (`server.socket`) performs the actions, in their order, and reports what came of them. Every `Start`
is reported as `refused`, or as `begun` and then outcomes to the last; what was begun has one terminal event.

A refused request is answered in its lane's order; a message that is no request is answered at once.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import msgspec

from vivace.errors import VivaceError
from vivace.protocol.actions import Action, Cancel, Close, Send, Start
from vivace.protocol.events import AnyEvent, InterruptAccepted
from vivace.protocol.lanes import Lane, Lanes, Running, continues
from vivace.protocol.memory import Memory
from vivace.protocol.outcomes import Broken, Ended, Outcome, Queued
from vivace.protocol.refusal import ErrorFrame, Refusal, frame_of
from vivace.protocol.requests import (
    MAX_BODY_BYTES,
    ResponseCreate,
    ResponseInterrupt,
    ResponseSteer,
    check_lane,
    parse_cancel,
    parse_create,
    parse_envelope,
    parse_interrupt,
    parse_steer,
)
from vivace.protocol.steering import (
    PendingSteer,
    carrying,
    check_budget,
    following,
    items_of,
    new_steer_id,
    rejected,
    stubs,
)
from vivace.protocol.writer import Numbering, ResponseWriter, new_response_id

MAX_ENDED = 256  # ids of responses that are over and still known to be
NOT_CREATED = "successor_creation_failed"
NOT_ACTIVE = "response_not_active"


class Ending(msgspec.Struct, frozen=True):
    """Why the connection takes no more requests, and closes when nothing runs any more."""

    refusal: Refusal
    close_code: int
    is_leaving: bool  # the server goes: nothing new begins at all


EXPIRED = Ending(
    Refusal(
        "This connection is 60 minutes old and takes no more requests.",
        "Open a new one.",
        code="websocket_connection_limit_reached",
    ),
    close_code=1000,
    is_leaving=False,
)
LEAVING = Ending(
    Refusal("The server is shutting down.", "Try again.", code="shutting_down", status=503),
    close_code=1012,
    is_leaving=True,
)


class Connection:
    def __init__(
        self,
        new_id: Callable[[], str] = new_response_id,
        new_steer_id: Callable[[], str] = new_steer_id,
    ) -> None:
        self._new_id = new_id
        self._new_steer_id = new_steer_id
        self._lanes = Lanes()
        self._memory = Memory()
        self._ended: OrderedDict[str, Numbering] = OrderedDict()  # oldest first
        self._ending: Ending | None = None
        self._is_over = False  # nothing is sent any more

    # ---- from the client --------------------------------------------------------------------------

    def receive(self, text: str) -> list[Action]:
        """A message from the client."""
        if self._is_over:
            return []
        stream_id: str | None = None
        try:
            if len(text) > MAX_BODY_BYTES:
                raise Refusal("The message is too large.", code="request_too_large", status=413)
            envelope = parse_envelope(text)
            stream_id = _lane_of(envelope.stream_id, is_needed=envelope.type == "response.create")
            match envelope.type:
                case "response.create":
                    return self._create(text, stream_id)
                case "response.cancel":
                    return self._cancel(parse_cancel(text).response_id)
                case "response.interrupt":
                    return self._interrupt(parse_interrupt(text))
                case "response.steer":
                    return self._steer(parse_steer(text), len(text))
                case "response.processed":
                    return []  # Codex has read a response to its end; an error would hit its next turn
                case other:
                    raise Refusal(f"Unknown message type {other!r:.80}.", code="unknown_type", param="type")
        except Refusal as error:
            return [Send(frame_of(error, stream_id))]

    def receive_bytes(self) -> list[Action]:
        if self._is_over:
            return []
        error = Refusal("Messages are JSON in text frames, not binary ones.", code="invalid_frame")
        return [Send(frame_of(error))]

    def _create(self, text: str, stream_id: str | None) -> list[Action]:
        asked: ResponseCreate | ErrorFrame
        if self._ending:
            asked = frame_of(self._ending.refusal, stream_id)
        else:
            self._lanes.check(stream_id, len(text))
            asked = _parsed(text, stream_id)
        lane = self._lanes.find(stream_id)
        is_told_now = lane is None or lane.is_idle or not self._lanes.has_room(len(text))
        if isinstance(asked, ErrorFrame) and is_told_now:
            return [Send(asked)]
        if isinstance(asked, ResponseCreate):
            self._memory.need(asked.previous_response_id)
        return self._advance(self._lanes.put(stream_id, asked, len(text)))

    def _cancel(self, response_id: str) -> list[Action]:
        turn = self._find(response_id)
        return self._stop(turn, is_discarding=False) if turn else []

    def _interrupt(self, asked: ResponseInterrupt) -> list[Action]:
        turn = self._find(asked.response_id)
        if turn is None or turn.ending == "interrupted":
            return []
        assert turn.writer is not None
        accepted = turn.writer.number(InterruptAccepted, response_id=turn.response_id)
        return [Send(accepted), *self._stop(turn, is_discarding=asked.mode == "discard_partial_items")]

    def _stop(self, turn: Running, *, is_discarding: bool) -> list[Action]:
        """Who interrupts a turn wants nothing to follow it by itself."""
        assert turn.writer is not None
        steers, turn.steers = turn.steers, []
        actions: list[Action] = [*_failures(steers, NOT_ACTIVE, "The response was interrupted.")]
        if not turn.ending:
            turn.writer.is_discarding = is_discarding
            actions.append(Cancel(turn.response_id, "interrupted", is_discarding))
        turn.ending = "interrupted"
        return actions

    def _find(self, response_id: str) -> Running | None:
        """The turn of this id; None if it ended while the message was on its way: its end is the answer."""
        turn = self._lanes.running.get(response_id)
        if turn and turn.writer:
            return turn
        if response_id in self._ended:
            return None
        raise Refusal(
            f"No response {response_id:.80} runs here.",
            code="response_not_found",
            status=404,
            param="response_id",
        )

    def _steer(self, asked: ResponseSteer, size: int) -> list[Action]:
        parent_id = asked.previous_response_id
        turn = self._lanes.running.get(parent_id)
        numbering = turn.writer.numbering if turn and turn.writer else self._ended.get(parent_id, Numbering())
        try:
            items = items_of(asked)
            turn = self._steerable(parent_id)
            check_budget(turn.steers, self._pending_steers(), size)
        except Refusal as error:
            return [Send(rejected(asked, error, numbering))]
        steer = PendingSteer(self._new_steer_id(), parent_id, asked.input, items, size, numbering)
        turn.steers.append(steer)
        actions: list[Action] = [Send(steer.accepted())]
        if not turn.ending:
            turn.ending = "steered"
            actions.append(Cancel(parent_id, "steered"))
        return actions

    def _steerable(self, response_id: str) -> Running:
        turn = self._lanes.running.get(response_id)
        if turn is None and response_id in self._ended:
            raise Refusal("The response is over.", code="response_already_completed")
        if turn is None or turn.writer is None:
            raise Refusal("No such response runs on this connection.", code="response_not_found")
        if not turn.request.is_generating:
            raise Refusal("Nothing is said that could be steered.", code="steering_not_supported")
        if turn.ending == "interrupted":
            raise Refusal("The response is being interrupted.", code=NOT_ACTIVE)
        if self._ending:
            raise Refusal(self._ending.refusal.message, code=NOT_ACTIVE)
        return turn

    def _pending_steers(self) -> list[PendingSteer]:
        held = [steer for lane in self._lanes.all() for steers in lane.held.values() for steer in steers]
        return held + [steer for turn in self._lanes.running.values() for steer in turn.steers + turn.carried]

    # ---- from the backend -------------------------------------------------------------------------

    def begun(self, response_id: str, model: str, place: Queued | None = None) -> list[Action]:
        """The turn was accepted, and holds the response that it goes on from."""
        turn = self._lanes.running[response_id]
        assert turn.writer is None, "a turn begins once"
        turn.model = model
        turn.writer = ResponseWriter(turn.request, response_id, model, stream_id=turn.lane.stream_id)
        if self._is_over:
            return [Cancel(response_id)]
        turn.carried = []  # its first event commits them
        released = self._memory.release(turn.request.previous_response_id)
        return [*_sends(turn.writer.begin(place)), *released]

    def refused(self, response_id: str, error: VivaceError) -> list[Action]:
        """The turn was not accepted: an error frame, and no response."""
        turn = self._lanes.running[response_id]
        assert turn.writer is None, "what was begun ends with an outcome"
        self._lanes.end(turn)
        if self._is_over:
            return []
        actions: list[Action] = []
        if not turn.is_successor:
            actions.append(Send(frame_of(error, turn.lane.stream_id)))
            actions += self._memory.failed(turn)
        actions += self._memory.release(turn.request.previous_response_id)
        actions += _failures(turn.carried, NOT_CREATED, error.message)
        return actions + self._advance(turn.lane)

    def outcome(self, response_id: str, outcome: Outcome) -> list[Action]:
        """Something came of the turn."""
        turn = self._lanes.running[response_id]
        assert turn.writer is not None, "begun comes before outcomes"
        if self._is_over:
            if isinstance(outcome, Ended | Broken):
                self._lanes.end(turn)
            return []
        if isinstance(outcome, Ended) and outcome.reason == "steered" and turn.ending == "interrupted":
            outcome = msgspec.structs.replace(outcome, reason="interrupted")
        actions: list[Action] = [*_sends(turn.writer.take(outcome))]
        if isinstance(outcome, Ended | Broken):
            actions += self._end(turn, outcome)
        return actions

    def _end(self, turn: Running, outcome: Ended | Broken) -> list[Action]:
        """The turn's terminal event was told: what follows?"""
        assert turn.writer is not None
        self._lanes.end(turn)
        self._ended[turn.response_id] = turn.writer.numbering
        if len(self._ended) > MAX_ENDED:
            self._ended.popitem(last=False)
        is_failed = isinstance(outcome, Broken)
        actions: list[Action] = [*(self._memory.failed(turn) if is_failed else self._memory.completed(turn))]
        if turn.steers:
            actions += self._follow(turn, outcome)
        return actions + self._advance(turn.lane)

    def _follow(self, turn: Running, outcome: Ended | Broken) -> list[Action]:
        """The turn was steered, and is over: a response follows at once, or when its calls are answered."""
        assert turn.writer is not None
        calls = turn.writer.calls
        if isinstance(outcome, Broken) or outcome.reason == "cancelled":
            return [*_failures(turn.steers, NOT_ACTIVE, "The response failed, or was cancelled.")]
        if self._ending and (self._ending.is_leaving or calls):
            return [*_failures(turn.steers, NOT_CREATED, self._ending.refusal.message)]
        self._memory.need(turn.response_id)
        if not calls:
            request = following(turn.response_id, turn.request, turn.model, turn.steers)
            return [self._run(Running(self._new_id(), request, turn.lane, turn.steers, is_successor=True))]
        turn.lane.held[turn.response_id] = turn.steers
        if turn.lane.awaits(turn.response_id):
            return []  # the client knows already what to send
        return [Send(steer.pending(stubs(calls))) for steer in turn.steers]

    # ---- from the shell ---------------------------------------------------------------------------

    def expire(self) -> list[Action]:
        """The connection has lasted its 60 minutes: what runs may finish, and what follows it by a steer."""
        return [] if self._is_over or self._ending else self._wind_down(EXPIRED)

    def farewell(self) -> list[Action]:
        """The server shuts down: what runs may finish, while the shell lets it; nothing else begins."""
        return [] if self._is_over or self._ending is LEAVING else self._wind_down(LEAVING)

    def closed(self) -> list[Action]:
        """The client is gone: what runs is cancelled, what waits is forgotten, and nothing is sent."""
        if self._is_over:
            return []
        self._is_over = True
        return [Cancel(response_id) for response_id in self._lanes.running]

    def _wind_down(self, ending: Ending) -> list[Action]:
        self._ending = ending
        actions: list[Action] = []
        for request in self._lanes.refuse_waiting(lambda lane: frame_of(ending.refusal, lane.stream_id)):
            actions += self._memory.release(request.previous_response_id)
        for lane in self._lanes.all():
            held, lane.held = lane.held, {}
            for parent_id, steers in held.items():
                actions += _failures(steers, NOT_CREATED, ending.refusal.message)
                actions += self._memory.release(parent_id)
            actions += _sends(self._lanes.settle(lane))
        return actions + self._close_if_done()

    # ---- what runs next ---------------------------------------------------------------------------

    def _advance(self, lane: Lane) -> list[Action]:
        """This lane has changed: tell what is to be told in it, and let run what may run."""
        actions: list[Action] = [*_sends(self._lanes.settle(lane))]
        while found := self._lanes.next():
            actions.append(self._start(*found))
        return actions + self._close_if_done()

    def _start(self, lane: Lane, request: ResponseCreate) -> Start:
        """Let a request of the client's run, with the steers that waited for it."""
        parent_id = request.previous_response_id or ""
        steers = lane.held.pop(parent_id, []) if continues(request, parent_id) else []
        if steers:
            request = carrying(request, steers)
            self._memory.release(parent_id)  # which the request needs itself
        return self._run(Running(self._new_id(), request, lane, steers))

    def _run(self, turn: Running) -> Start:
        self._lanes.begin(turn)
        return Start(turn.response_id, turn.request)

    def _close_if_done(self) -> list[Action]:
        if not self._ending or self._lanes.running:
            return []
        self._is_over = True
        refusal = self._ending.refusal
        last_words = [Send(frame_of(refusal))] if self._ending.is_leaving else []
        return [*last_words, Close(self._ending.close_code, refusal.code)]


def _lane_of(given: Any, *, is_needed: bool) -> str | None:
    """The lane that a message names; one that cannot be is refused only where it matters."""
    if given is None:
        return None
    stream_id = given if isinstance(given, str) else ""
    try:
        check_lane(stream_id)
    except Refusal:
        if is_needed:
            raise
        return None
    return stream_id


def _parsed(text: str, stream_id: str | None) -> ResponseCreate | ErrorFrame:
    try:
        request = parse_create(text)
        if request.background:
            raise Refusal(
                "A WebSocket has no background responses.",
                "Ask for one with POST /v1/responses.",
                code="unsupported_parameter",
                param="background",
            )
        return request
    except Refusal as error:
        return frame_of(error, stream_id)


def _sends(messages: Iterable[AnyEvent | ErrorFrame]) -> Iterator[Send]:
    return map(Send, messages)


def _failures(steers: Iterable[PendingSteer], code: str, message: str) -> Iterator[Send]:
    return (Send(steer.failed(code, message)) for steer in steers)
