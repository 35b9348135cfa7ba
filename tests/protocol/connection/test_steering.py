"""Steering in OpenAI's dialect: a steer is accepted, ends the turn, and a successor carries it."""

import pytest
from openai.types.responses import (
    ResponseSteerAcceptedEvent,
)

from tests.protocol.connection.steering_events import rejected
from tests.protocol.parts import (
    DONE,
    INTERRUPTED,
    LENGTH,
    STEERED,
    Talk,
    cancels,
    create,
    forgotten,
    names,
    request_of,
    sent,
    starts,
    steer,
    wire,
)
from vivace.protocol.connection.actions import Cancel
from vivace.protocol.connection.lanes import MAX_IN_FLIGHT
from vivace.protocol.shapes.outcomes import Outcome, TextDelta


def test_a_steer_is_accepted_and_ends_the_turn() -> None:
    """Accepted in the turn's numbers; the turn is cancelled, once, and ends as steered."""
    talk = Talk()
    talk.begin(create("a"))
    actions = talk.say(steer("resp_1"))
    (accepted,) = sent(actions)
    assert wire(accepted) == {
        "type": "response.steer.accepted",
        "sequence_number": 2,
        "stream_id": "a",
        "steer": {"id": "steer_1", "previous_response_id": "resp_1"},
    }
    ResponseSteerAcceptedEvent.model_validate(wire(accepted))
    assert actions[1] == Cancel("resp_1", "steered", is_discarding=False)
    (last,) = sent(talk.tell("resp_1", STEERED))
    assert (last.sequence_number, last.response.incomplete_details.reason) == (3, "steered")


def test_a_successor_follows_at_once() -> None:
    """It goes on from the partial with the steer, in the settings of the one that was steered."""
    talk = Talk()
    talk.begin(create("a", instructions="be brief", max_output_tokens=9, stop="x", store=False, seed=3))
    talk.tell("resp_1", TextDelta("so far"))
    talk.say(steer("resp_1"))
    actions = talk.tell("resp_1", STEERED)
    assert starts(actions) == ["resp_2"]
    request = request_of(actions)
    assert (request.previous_response_id, request.model, request.stream_id) == ("resp_1", "m", "a")
    assert [(item.role, item.text) for item in request.items] == [("user", "left")]
    assert (request.instructions, request.max_output_tokens, request.seed) == ("be brief", 9, 3)
    assert (request.stops, request.is_stored) == (["x"], False)
    created = sent(talk.machine.begun("resp_2", "m"))[0]
    assert (created.sequence_number, created.stream_id) == (0, "a")
    assert created.response.previous_response_id == "resp_1"


def test_a_prediction_is_inherited() -> None:
    """It never changes a text, and the rest will resemble it as well."""
    talk = Talk()
    talk.begin(create(prediction={"type": "content", "content": "old"}))
    talk.say(steer("resp_1"))
    assert request_of(talk.tell("resp_1", STEERED)).prediction.text == "old"


def test_the_model_that_was_asked_for_is_kept() -> None:
    """By the name that the client used."""
    talk = Talk()
    talk.begin(create(model="mine"))
    talk.say(steer("resp_1"))
    assert request_of(talk.tell("resp_1", STEERED)).model == "mine"


def test_the_successor_goes_before_what_waits() -> None:
    """The lane's next request comes after it, and what is refused is answered after it."""
    talk = Talk()
    talk.begin(create())
    talk.say(create())
    talk.say(steer("resp_1"))
    actions = talk.tell("resp_1", STEERED)
    assert request_of(actions).previous_response_id == "resp_1"
    talk.machine.begun("resp_2", "m")
    assert request_of(talk.tell("resp_2", DONE)).previous_response_id is None


def test_the_successor_needs_no_other_place() -> None:
    """It takes that of the turn it follows, when all 16 are taken and others wait."""
    talk = Talk()
    for number in range(MAX_IN_FLIGHT):
        talk.begin(create(f"lane{number}"))
    talk.say(create("late"))
    talk.say(steer("resp_1"))
    assert request_of(talk.tell("resp_1", STEERED)).previous_response_id == "resp_1"


@pytest.mark.parametrize("end", [STEERED, DONE, LENGTH, INTERRUPTED])
def test_whatever_end_was_quicker_the_successor_follows(end: Outcome) -> None:
    """A turn that ended by itself before the cancel reached it is told as it ended, and followed."""
    talk = Talk()
    talk.begin(create())
    talk.say(steer("resp_1"))
    assert starts(talk.tell("resp_1", end)) == ["resp_2"]


def test_several_steers_are_one_successor() -> None:
    """In the order in which they came; the turn is cancelled once."""
    talk = Talk()
    talk.begin(create())
    talk.say(steer("resp_1", "one"))
    messages = [{"role": "user", "content": "two"}, {"type": "message", "role": "user", "content": "three"}]
    assert cancels(talk.say(steer("resp_1", messages))) == []
    parts = [{"type": "input_text", "text": "fo"}, {"type": "input_text", "text": "ur"}]
    talk.say(steer("resp_1", [{"role": "user", "content": parts}]))
    actions = talk.tell("resp_1", STEERED)
    assert [item.text for item in request_of(actions).items] == ["one", "two", "three", "four"]


def test_a_successor_can_be_steered_when_it_has_begun() -> None:
    """Before that nobody knows its id."""
    talk = Talk()
    talk.begin(create())
    talk.say(steer("resp_1"))
    talk.tell("resp_1", STEERED)
    assert rejected(talk.say(steer("resp_2"))) == "response_not_found"
    talk.machine.begun("resp_2", "m")
    assert names(talk.say(steer("resp_2", "right"))) == ["steer.accepted"]
    request = request_of(talk.tell("resp_2", STEERED))
    assert (request.previous_response_id, request.items[0].text) == ("resp_2", "right")


def test_a_parent_with_store_false_is_kept_for_its_successor() -> None:
    """And forgotten when the successor is over."""
    talk = Talk()
    talk.begin(create(store=False))
    talk.say(steer("resp_1"))
    assert forgotten(talk.tell("resp_1", STEERED)) == []
    assert forgotten(talk.machine.begun("resp_2", "m")) == []
    assert forgotten(talk.tell("resp_2", DONE)) == ["resp_1"]
