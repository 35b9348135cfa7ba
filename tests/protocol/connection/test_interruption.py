"""Cancels and interrupts on one WebSocket: in time, too late, twice, and before anyone knows the turn."""

from tests.protocol.parts import (
    DONE,
    INTERRUPTED,
    Talk,
    cancel,
    cancels,
    create,
    error_of,
    interrupt,
    names,
    sent,
    wire,
)
from vivace.protocol.connection.actions import Cancel, Send
from vivace.protocol.connection.interruption import MAX_ENDED
from vivace.protocol.shapes.outcomes import CallBegun, TextDelta


def test_cancel_is_for_the_turn_that_runs() -> None:
    """A cancel names a running turn; too late is no error; never here is one."""
    talk = Talk()
    talk.begin(create())
    assert talk.say(cancel("resp_1")) == [Cancel("resp_1", "interrupted", is_discarding=False)]
    assert names(talk.tell("resp_1", INTERRUPTED))[-1] == "incomplete"
    assert talk.say(cancel("resp_1")) == []
    frame = error_of(talk.say(cancel("resp_9")))
    assert (frame.status, frame.error.code, frame.error.param) == (404, "response_not_found", "response_id")


def test_a_turn_is_cancelled_once() -> None:
    """A second cancel has nothing to do."""
    talk = Talk()
    talk.begin(create())
    talk.say(cancel("resp_1"))
    assert talk.say(cancel("resp_1")) == []


def test_a_turn_that_has_not_begun_has_no_name_yet() -> None:
    """Nobody was told its id, so nobody can mean it."""
    talk = Talk()
    talk.say(create())
    assert error_of(talk.say(cancel("resp_1"))).status == 404
    assert error_of(talk.say(interrupt("resp_1"))).status == 404


def test_an_interrupt_is_accepted_and_then_ends_the_turn() -> None:
    """Codex's steering: accepted in the turn's numbers, cancelled, incomplete with reason interrupted."""
    talk = Talk()
    talk.begin(create())
    accepted, stop = talk.say(interrupt("resp_1", mode="discard_partial_items"))
    assert isinstance(accepted, Send)
    assert wire(accepted.message) == {
        "type": "response.interrupt.accepted",
        "sequence_number": 2,
        "response_id": "resp_1",
    }
    assert stop == Cancel("resp_1", "interrupted", is_discarding=True)
    (last,) = sent(talk.tell("resp_1", INTERRUPTED))
    assert (last.sequence_number, last.response.incomplete_details.reason) == (3, "interrupted")


def test_an_interrupt_that_discards_drops_the_open_item() -> None:
    """What was not whole is no part of the response; what was stays."""
    talk = Talk()
    talk.begin(create())
    talk.tell("resp_1", CallBegun("look"), TextDelta("half"))
    talk.say(interrupt("resp_1", mode="discard_partial_items"))
    actions = talk.tell("resp_1", INTERRUPTED)
    assert names(actions) == ["output_item.interrupted", "incomplete"]
    assert sent(actions)[-1].response.output == []


def test_an_interrupt_without_a_mode_keeps_the_partial() -> None:
    """What was said stays said."""
    talk = Talk()
    talk.begin(create())
    talk.tell("resp_1", TextDelta("half"))
    assert cancels(talk.say(interrupt("resp_1"))) == [Cancel("resp_1", "interrupted", is_discarding=False)]
    assert sent(talk.tell("resp_1", INTERRUPTED))[-1].response.output_text == "half"


def test_an_interrupt_that_comes_too_late_is_no_error() -> None:
    """The terminal event is the answer; an error frame would be taken for the next turn's."""
    talk = Talk()
    talk.finish(create())
    assert talk.say(interrupt("resp_1")) == []
    assert error_of(talk.say(interrupt("resp_9"))).status == 404


def test_an_interrupt_is_accepted_once() -> None:
    """A second one changes nothing, whatever its mode."""
    talk = Talk()
    talk.begin(create())
    talk.say(interrupt("resp_1"))
    assert talk.say(interrupt("resp_1", mode="discard_partial_items")) == []


def test_an_end_that_races_with_an_interrupt_is_told_as_it_was() -> None:
    """The turn completed before the interrupt reached it: completed, once."""
    talk = Talk()
    talk.begin(create())
    talk.tell("resp_1", TextDelta("all"))
    talk.say(interrupt("resp_1", mode="discard_partial_items"))
    actions = talk.tell("resp_1", DONE)
    assert names(actions)[-1] == "completed"
    assert sent(actions)[-1].response.output_text == "all"


def test_responses_that_are_over_are_known_for_a_while() -> None:
    """A late cancel is no error; one that is much too late is, and nothing grows without end."""
    talk = Talk()
    for _ in range(MAX_ENDED + 1):
        talk.finish(create())
    assert talk.say(cancel("resp_2")) == []
    assert error_of(talk.say(cancel("resp_1"))).status == 404
