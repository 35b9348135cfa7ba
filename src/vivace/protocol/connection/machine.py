"""One WebSocket as a machine without I/O: messages and outcomes in, actions out.

Owns what happens when on a connection, and every frame that is sent on it. Does not own sockets or engines:
the shell (`server/transport/websocket.py`) performs the actions, in their order, and reports what came of
them. Every `Start` is reported as `refused`, or as `begun` and then outcomes to the last; what was begun has
one terminal event.

A refused request is answered in its lane's order; a message that is no request is answered at once.
"""

from collections.abc import Callable, Iterable, Iterator

import msgspec

from vivace.errors import VivaceError
from vivace.protocol.connection.actions import Action, Cancel, Close, Commit, Send, Start
from vivace.protocol.connection.ending import EXPIRED, LEAVING, Ending
from vivace.protocol.connection.interruption import Interruption
from vivace.protocol.connection.kept_responses import KeptResponses
from vivace.protocol.connection.lanes import Lane, Lanes, RunningTurn, continues
from vivace.protocol.connection.messages import Message
from vivace.protocol.connection.steering import (
    NOT_ACTIVE,
    NOT_CREATED,
    carrying,
    following,
    given_back,
    new_steer_id,
    stubs,
)
from vivace.protocol.shapes.controls import (
    ResponseAnswerNow,
    ResponseCancel,
    ResponseInterrupt,
    ResponseSteer,
)
from vivace.protocol.shapes.events import AnyEvent, Terminal
from vivace.protocol.shapes.outcomes import Broken, Ended, Outcome, Queued
from vivace.protocol.shapes.refusal import ErrorFrame, Refusal, frame_of
from vivace.protocol.shapes.requests import ResponseCreate
from vivace.protocol.writing.writer import ResponseWriter, new_response_id


class Connection:
    def __init__(
        self,
        new_id: Callable[[], str] = new_response_id,
        new_steer_id: Callable[[], str] = new_steer_id,
    ) -> None:
        self._new_id = new_id
        self._lanes = Lanes()
        self._kept = KeptResponses()
        self._interruption = Interruption(self._lanes, new_steer_id)
        self._ending: Ending | None = None
        self._is_over = False  # nothing is sent any more

    # ---- from the client --------------------------------------------------------------------------

    def handle(self, message: Message) -> list[Action]:
        """Handle a message from the client."""
        if self._is_over:
            return []
        try:
            if message.is_request:
                return self._create(message)
            match message.body:
                case ResponseCancel(response_id=response_id):
                    return self._interruption.cancel(response_id)
                case ResponseInterrupt() as asked:
                    return self._interruption.interrupt(asked)
                case ResponseSteer() as asked:
                    return self._interruption.steer(asked, message.size, self._ending)
                case ResponseAnswerNow(response_id=response_id):
                    return self._interruption.answer_now(response_id)
                case Refusal() as error:
                    raise error
            return []
        except Refusal as error:
            return [Send(frame_of(error, message.stream_id))]

    def receive_bytes(self) -> list[Action]:
        if self._is_over:
            return []
        error = Refusal("Messages are JSON in text frames, not binary ones.", code="invalid_frame")
        return [Send(frame_of(error))]

    def _create(self, message: Message) -> list[Action]:
        stream_id, size = message.stream_id, message.size
        asked: ResponseCreate | ErrorFrame
        if self._ending:
            asked = frame_of(self._ending.refusal, stream_id)
        else:
            self._lanes.check(stream_id, size)
            body = message.body
            assert isinstance(body, ResponseCreate | Refusal)
            asked = frame_of(body, stream_id) if isinstance(body, Refusal) else body
        lane = self._lanes.find(stream_id)
        is_told_now = lane is None or lane.is_idle or not self._lanes.has_room(size)
        if isinstance(asked, ErrorFrame) and is_told_now:
            return [Send(asked)]
        if isinstance(asked, ResponseCreate):
            self._kept.need(asked.previous_response_id)
        return self._advance(self._lanes.put(stream_id, asked, size))

    # ---- from the backend -------------------------------------------------------------------------

    def begun(self, response_id: str, model: str, place: Queued | None = None) -> list[Action]:
        """Handle that the turn was accepted, and holds the response that it continues."""
        turn = self._lanes.running[response_id]
        assert turn.writer is None, "a turn begins once"
        turn.model = model
        turn.writer = ResponseWriter(turn.request, response_id, model, stream_id=turn.lane.stream_id)
        if self._is_over:
            return [Cancel(response_id)]
        turn.carried = []  # its first event commits them
        released = self._kept.release(turn.request.previous_response_id)
        return [*_sends(turn.writer.begin(place)), *released]

    def refused(self, response_id: str, error: VivaceError) -> list[Action]:
        """Handle that the turn was not accepted: send an error frame, and no response."""
        turn = self._lanes.running[response_id]
        assert turn.writer is None, "what was begun ends with an outcome"
        self._lanes.end(turn)
        if self._is_over:
            return []
        actions: list[Action] = []
        if not turn.is_successor:
            actions.append(Send(frame_of(error, turn.lane.stream_id)))
            actions += self._kept.failed(turn)
        actions += self._kept.release(turn.request.previous_response_id)
        actions += given_back(turn.carried, NOT_CREATED, error.message)
        return actions + self._advance(turn.lane)

    def outcome(self, response_id: str, outcome: Outcome) -> list[Action]:
        """Handle an outcome of the turn."""
        turn = self._lanes.running[response_id]
        assert turn.writer is not None, "begun comes before outcomes"
        if isinstance(outcome, Ended) and outcome.reason == "steered" and turn.ending == "interrupted":
            outcome = msgspec.structs.replace(outcome, reason="interrupted")
        events = turn.writer.write(outcome)
        if self._is_over:
            return self._end_unheard(turn, events[-1]) if turn.writer.is_over else []
        actions: list[Action] = [*_sends(events)]
        if isinstance(outcome, Ended | Broken):
            actions += self._end(turn, outcome)
        return actions

    def writer(self, response_id: str) -> ResponseWriter:
        """Return the writer of a turn that was begun; its `encode_delta` may stand in for `outcome`."""
        writer = self._lanes.running[response_id].writer
        assert writer is not None, "begun comes first"
        return writer

    def _end_unheard(self, turn: RunningTurn, last: AnyEvent) -> list[Action]:
        """End a turn whose client is gone. What was to be stored is stored all the same."""
        assert isinstance(last, Terminal)
        self._lanes.end(turn)
        return [Commit(last)]

    def _end(self, turn: RunningTurn, outcome: Ended | Broken) -> list[Action]:
        """Return what follows a turn whose terminal event was sent."""
        assert turn.writer is not None
        self._lanes.end(turn)
        self._interruption.ended(turn)
        is_failed = isinstance(outcome, Broken)
        actions: list[Action] = [*(self._kept.failed(turn) if is_failed else self._kept.completed(turn))]
        if turn.steers:
            actions += self._follow(turn, outcome)
        return actions + self._advance(turn.lane)

    def _follow(self, turn: RunningTurn, outcome: Ended | Broken) -> list[Action]:
        """Let a response follow a turn that was steered: at once, or when its calls are answered."""
        assert turn.writer is not None
        calls = turn.writer.calls
        if isinstance(outcome, Broken) or outcome.reason == "cancelled":
            return [*given_back(turn.steers, NOT_ACTIVE, "The response failed, or was cancelled.")]
        if self._ending and (self._ending.is_leaving or calls):
            return [*given_back(turn.steers, NOT_CREATED, self._ending.refusal.message)]
        self._kept.need(turn.response_id)
        if not calls:
            request = following(turn.response_id, turn.request, turn.model, turn.steers)
            return [
                self._run(RunningTurn(self._new_id(), request, turn.lane, turn.steers, is_successor=True))
            ]
        turn.lane.held[turn.response_id] = turn.steers
        if turn.lane.awaits(turn.response_id):
            return []  # the client knows already what to send
        return [Send(steer.pending(stubs(calls))) for steer in turn.steers]

    # ---- from the shell ---------------------------------------------------------------------------

    def expire(self) -> list[Action]:
        """End the connection after its 60 minutes: running turns and what they were steered to may finish."""
        return [] if self._is_over or self._ending else self._wind_down(EXPIRED)

    def drain(self) -> list[Action]:
        """Begin nothing more: the server shuts down. Running turns may finish while the shell lets them."""
        return [] if self._is_over or self._ending is LEAVING else self._wind_down(LEAVING)

    def closed(self) -> list[Action]:
        """Cancel what runs and forget what waits: the client is gone, and nothing is sent."""
        if self._is_over:
            return []
        self._is_over = True
        for turn in self._lanes.running.values():
            turn.ending = "interrupted"  # also if it was steered: nothing follows it
        return [Cancel(response_id) for response_id in self._lanes.running]

    def _wind_down(self, ending: Ending) -> list[Action]:
        self._ending = ending
        actions: list[Action] = []
        for request in self._lanes.refuse_waiting(lambda lane: frame_of(ending.refusal, lane.stream_id)):
            actions += self._kept.release(request.previous_response_id)
        for lane in self._lanes.all():
            held, lane.held = lane.held, {}
            for parent_id, steers in held.items():
                actions += given_back(steers, NOT_CREATED, ending.refusal.message)
                actions += self._kept.release(parent_id)
            actions += _sends(self._lanes.settle(lane))
        return actions + self._close_if_done()

    # ---- what runs next ---------------------------------------------------------------------------

    def _advance(self, lane: Lane) -> list[Action]:
        """Send what is due in this lane, and start what may run, since it has changed."""
        actions: list[Action] = [*_sends(self._lanes.settle(lane))]
        while found := self._lanes.next():
            actions.append(self._start(*found))
        return actions + self._close_if_done()

    def _start(self, lane: Lane, request: ResponseCreate) -> Start:
        """Start a request of the client's, with the steers that waited for it."""
        parent_id = request.previous_response_id or ""
        steers = lane.held.pop(parent_id, []) if continues(request, parent_id) else []
        if steers:
            request = carrying(request, steers)
            self._kept.release(parent_id)  # which the request needs itself
        return self._run(RunningTurn(self._new_id(), request, lane, steers))

    def _run(self, turn: RunningTurn) -> Start:
        self._lanes.begin(turn)
        return Start(turn.response_id, turn.request)

    def _close_if_done(self) -> list[Action]:
        if not self._ending or self._lanes.running:
            return []
        self._is_over = True
        refusal = self._ending.refusal
        last_words = [Send(frame_of(refusal))] if self._ending.is_leaving else []
        return [*last_words, Close(self._ending.close_code, refusal.code)]


def _sends(messages: Iterable[AnyEvent | ErrorFrame]) -> Iterator[Send]:
    return map(Send, messages)
