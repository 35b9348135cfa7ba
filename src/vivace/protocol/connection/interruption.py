"""What a client says to a turn that runs: cancel, interrupt, steer, answer now.

The turn's end is asked for once.

Owns which turns can be spoken to, and what is answered at once. Does not own the turn's end, nor what
follows it (`connection`), nor what a steer may say (`steering`).
"""

from collections import OrderedDict
from collections.abc import Callable

from vivace.protocol.connection.actions import Action, AnswerNow, Cancel, Send
from vivace.protocol.connection.ending import Ending
from vivace.protocol.connection.lanes import Lanes, RunningTurn
from vivace.protocol.connection.steering import (
    NOT_ACTIVE,
    PendingSteer,
    check_budget,
    given_back,
    items_of,
    rejected,
)
from vivace.protocol.shapes.controls import ResponseInterrupt, ResponseSteer
from vivace.protocol.shapes.events import AnswerNowAccepted, InterruptAccepted
from vivace.protocol.shapes.refusal import Refusal
from vivace.protocol.writing.writer import Numbering

MAX_ENDED = 256  # ids of responses that are over and still known to be


class Interruption:
    def __init__(self, lanes: Lanes, new_steer_id: Callable[[], str]) -> None:
        self._lanes = lanes
        self._new_steer_id = new_steer_id
        self._ended: OrderedDict[str, Numbering] = OrderedDict()  # oldest first

    def ended(self, turn: RunningTurn) -> None:
        """Note that the turn is over. Messages to it that are still on their way are no mistakes."""
        assert turn.writer is not None
        self._ended[turn.response_id] = turn.writer.numbering
        if len(self._ended) > MAX_ENDED:
            self._ended.popitem(last=False)

    def cancel(self, response_id: str) -> list[Action]:
        turn = self._find(response_id)
        return self._stop(turn, is_discarding=False) if turn else []

    def interrupt(self, asked: ResponseInterrupt) -> list[Action]:
        turn = self._find(asked.response_id)
        if turn is None or turn.ending == "interrupted":
            return []
        assert turn.writer is not None
        accepted = turn.writer.number(InterruptAccepted, response_id=turn.response_id)
        return [Send(accepted), *self._stop(turn, is_discarding=asked.mode == "discard_partial_items")]

    def answer_now(self, response_id: str) -> list[Action]:
        turn = self._find(response_id)
        if turn is None or turn.ending:
            return []
        assert turn.writer is not None
        accepted = turn.writer.number(AnswerNowAccepted, response_id=response_id)
        return [Send(accepted), AnswerNow(response_id)]

    def _stop(self, turn: RunningTurn, *, is_discarding: bool) -> list[Action]:
        """End the turn. Whoever interrupts it wants nothing to follow by itself."""
        assert turn.writer is not None
        steers, turn.steers = turn.steers, []
        actions: list[Action] = [*given_back(steers, NOT_ACTIVE, "The response was interrupted.")]
        if not turn.ending:
            turn.writer.is_discarding = is_discarding
            actions.append(Cancel(turn.response_id, "interrupted", is_discarding))
        turn.ending = "interrupted"
        return actions

    def _find(self, response_id: str) -> RunningTurn | None:
        """Return the turn of this id; None if it ended while the message was on its way."""
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

    def steer(self, asked: ResponseSteer, size: int, ending: Ending | None) -> list[Action]:
        parent_id = asked.previous_response_id
        turn = self._lanes.running.get(parent_id)
        numbering = turn.writer.numbering if turn and turn.writer else self._ended.get(parent_id, Numbering())
        try:
            items = items_of(asked)
            turn = self._steerable(parent_id, ending)
            check_budget(turn.steers, self._pending(), size)
        except Refusal as error:
            return [Send(rejected(asked, error, numbering))]
        steer = PendingSteer(self._new_steer_id(), parent_id, asked.input, items, size, numbering)
        turn.steers.append(steer)
        actions: list[Action] = [Send(steer.accepted())]
        if not turn.ending:
            turn.ending = "steered"
            actions.append(Cancel(parent_id, "steered"))
        return actions

    def _steerable(self, response_id: str, ending: Ending | None) -> RunningTurn:
        turn = self._lanes.running.get(response_id)
        if turn is None and response_id in self._ended:
            raise Refusal("The response is over.", code="response_already_completed")
        if turn is None or turn.writer is None:
            raise Refusal("No such response runs on this connection.", code="response_not_found")
        if not turn.request.is_generating:
            raise Refusal("Nothing is said that could be steered.", code="steering_not_supported")
        if turn.ending == "interrupted":
            raise Refusal("The response is being interrupted.", code=NOT_ACTIVE)
        if ending:
            raise Refusal(ending.refusal.message, code=NOT_ACTIVE)
        return turn

    def _pending(self) -> list[PendingSteer]:
        """Return every steer of the connection that is neither carried nor given back."""
        held = [steer for lane in self._lanes.all() for steers in lane.held.values() for steer in steers]
        return held + [steer for turn in self._lanes.running.values() for steer in turn.steers + turn.carried]
