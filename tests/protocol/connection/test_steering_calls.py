"""Steers while the client must answer calls first: they wait, and the answer carries them."""

from typing import Any

from openai.types.responses import (
    ResponseSteerPendingEvent,
)

from tests.protocol.connection.steering_events import CUSTOM_CALL, failures, pending_after, rejected
from tests.protocol.parts import (
    CALL,
    DONE,
    STEERED,
    Talk,
    create,
    errors,
    forgotten,
    names,
    request_of,
    sent,
    starts,
    steer,
    wire,
)
from vivace.protocol.shapes.outcomes import CallBegun, CallDelta


def test_steers_wait_while_calls_are_open() -> None:
    """Pending, once each, after the terminal event, with a stub for every output that is needed."""
    _, actions = pending_after(*CALL, *CUSTOM_CALL, DONE)
    assert starts(actions) == []
    assert names(actions)[-3:] == ["completed", "steer.pending", "steer.pending"]
    terminal, *events = sent(actions)[-3:]
    assert [event.sequence_number - terminal.sequence_number for event in events] == [1, 2]
    for event, number in zip(events, (1, 2), strict=True):
        ResponseSteerPendingEvent.model_validate(wire(event))
        assert wire(event) | {"sequence_number": 0} == {
            "type": "response.steer.pending",
            "sequence_number": 0,
            "stream_id": "a",
            "steer": {"id": f"steer_{number}", "previous_response_id": "resp_1"},
            "reason": "waiting_for_required_input",
            "required_input": [
                {"type": "function_call_output", "call_id": "call_1", "name": "look"},
                {"type": "custom_tool_call_output", "call_id": "call_2"},
            ],
        }


def test_a_half_call_is_no_call() -> None:
    """It was never given to the client, so nothing is waited for."""
    _, actions = pending_after(CallBegun("look"), CallDelta("{"), STEERED)
    assert starts(actions) == ["resp_2"]


def outputs(stream_id: str | None = "a", **fields: Any) -> str:
    items = [{"type": "function_call_output", "call_id": "call_1", "output": "42"}]
    return create(stream_id, **{"input": items, "previous_response_id": "resp_1", "store": False} | fields)


def test_steers_are_carried_by_the_request_that_answers_the_calls() -> None:
    """Before its own input, in their order; it keeps its own settings."""
    talk, _ = pending_after(*CALL, DONE)
    request = request_of(talk.say(outputs(instructions="mine")))
    assert [item.text or item.output_text for item in request.items] == ["one", "two", "42"]
    assert request.instructions == "mine"
    talk.machine.begun("resp_2", "m")
    assert request_of([*talk.tell("resp_2", DONE), *talk.say(outputs())]).items[0].output_text == "42"


def test_a_string_is_carried_behind_the_steers_too() -> None:
    """Whatever shape the request's input has."""
    talk, _ = pending_after(*CALL, DONE)
    assert [item.text for item in request_of(talk.say(outputs(input="now"))).items] == ["one", "two", "now"]


def test_steers_wait_for_their_own_lane_and_parent() -> None:
    """A fork in another lane, another conversation, or text that is being typed, does not take them."""
    talk, _ = pending_after(*CALL, DONE)
    for text in (
        outputs("b"),
        outputs(None),
        outputs(previous_response_id=None),
        outputs(generate=False, is_provisional=True),
    ):
        actions = talk.say(text)
        assert len(request_of(actions).items) == 1
        (response_id,) = starts(actions)
        talk.machine.begun(response_id, "m")
        assert forgotten(talk.tell(response_id, DONE)) in ([], [response_id])
    assert len(request_of(talk.say(outputs())).items) == 3


def test_a_request_that_waits_already_needs_no_notice() -> None:
    """The client has sent the outputs before it was told: no pending events, and the steers are carried."""
    talk = Talk()
    talk.begin(create("a"))
    talk.tell("resp_1", *CALL)
    talk.say(outputs())
    talk.say(steer("resp_1", "one"))
    actions = talk.tell("resp_1", STEERED)
    assert names(actions) == ["incomplete"]
    assert [item.text or item.output_text for item in request_of(actions).items] == ["one", "42"]


def test_a_refused_continuation_gives_the_steers_back() -> None:
    """An error frame for the request, and the input of the steers for another try."""
    talk, _ = pending_after(*CALL, DONE)
    talk.say(outputs())
    actions = talk.refuse("resp_2")
    assert len(errors(actions)) == 1
    assert failures(actions) == [("successor_creation_failed", "one"), ("successor_creation_failed", "two")]
    assert forgotten(actions) == ["resp_1"]


def test_a_bad_continuation_takes_nothing() -> None:
    """A request that cannot even be read leaves the steers where they are."""
    talk, _ = pending_after(*CALL, DONE)
    assert failures(talk.say(outputs(temperature=9))) == []
    assert len(request_of(talk.say(outputs())).items) == 3


def test_a_parent_is_kept_while_steers_wait_for_it() -> None:
    """Its lane has gone on, but the client was told what to send."""
    talk, _ = pending_after(*CALL, DONE)
    other = talk.begin(create("a", store=False))
    assert forgotten(talk.tell(other, DONE)) == []
    talk.say(outputs())
    assert forgotten(talk.machine.begun("resp_3", "m")) == ["resp_1"]


def test_a_response_with_open_calls_cannot_be_steered_any_more() -> None:
    """It is over; what was accepted still waits."""
    talk, _ = pending_after(*CALL, DONE)
    assert rejected(talk.say(steer("resp_1"))) == "response_already_completed"
