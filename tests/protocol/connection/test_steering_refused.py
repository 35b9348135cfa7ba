"""Steers that are not accepted, or that were accepted and cannot be carried, are given back."""

import json
from typing import Any

import msgspec
import pytest
from openai.types.responses import (
    ResponseSteerFailedEvent,
)

from tests.protocol.connection.steering_events import failures, rejected
from tests.protocol.parts import (
    APPENDED,
    CALL,
    DONE,
    FAILED,
    INTERRUPTED,
    STEERED,
    Talk,
    cancel,
    cancels,
    create,
    errors,
    forgotten,
    interrupt,
    names,
    request_of,
    sent,
    starts,
    steer,
    wire,
)
from vivace.protocol.connection.steering import MAX_PENDING, MAX_PENDING_BYTES, MAX_STEERS
from vivace.protocol.shapes.outcomes import TextDelta
from vivace.protocol.shapes.refusal import Refusal


@pytest.mark.parametrize(
    "given",
    [
        "",
        [],
        None,
        7,
        {"role": "user", "content": "x"},
        ["x"],
        [{"role": "user", "content": ""}],
        [{"role": "user", "content": []}],
        [{"role": "user", "content": [{"type": "input_text", "text": ""}]}],
        [{"role": "user", "content": [{"type": "input_text"}]}],
        [{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}],
        [{"role": "user", "content": [{"type": "output_text", "text": "x"}]}],
        [{"role": "user"}],
        [{"role": "assistant", "content": "x"}],
        [{"role": "developer", "content": "x"}],
        [{"content": "x"}],
        [{"type": "function_call_output", "call_id": "c", "output": "x"}],
        [{"role": "user", "content": "x", "call_id": "c"}],
        [{"role": "user", "content": "x"}, {"role": "system", "content": "y"}],
        json.loads("[" * 900 + "]" * 900),
    ],
)
def test_input_that_cannot_steer_is_given_back(given: Any) -> None:
    """Only the user's messages, only text, and not nothing; the turn goes on."""
    talk = Talk()
    talk.begin(create())
    actions = talk.say(steer("resp_1", given))
    assert rejected(actions) == "invalid_input"
    if not isinstance(given, list) or len(given) != 1 or not isinstance(given[0], list):
        assert sent(actions)[0].sequence_number == 2
        assert wire(sent(actions)[0])["steer"] == {"previous_response_id": "resp_1", "input": given}
    assert starts(talk.tell("resp_1", DONE)) == []


def test_a_steer_has_no_other_fields() -> None:
    """The response decides the lane; a steer that names one is wrong."""
    talk = Talk()
    talk.begin(create("a"))
    assert rejected(talk.say(steer("resp_1", stream_id="a"))) == "invalid_input"
    assert rejected(talk.say('{"type":"response.steer","previous_response_id":"resp_1"}')) == "invalid_input"


def test_a_steer_for_nobody() -> None:
    """An id that is not known here: number 0, no lane, and the input is given back."""
    actions = Talk().say(steer("resp_9", "x"))
    assert rejected(actions) == "response_not_found"
    event = wire(sent(actions)[0])
    ResponseSteerFailedEvent.model_validate(event)
    assert (event["sequence_number"], event["steer"]["input"]) == (0, "x")
    assert "stream_id" not in event


def test_a_turn_that_has_not_begun_cannot_be_steered() -> None:
    """Nobody was told its id."""
    talk = Talk()
    talk.say(create())
    assert rejected(talk.say(steer("resp_1"))) == "response_not_found"


def test_a_response_that_is_over_cannot_be_steered() -> None:
    """The failure goes on in its numbers, in its lane."""
    talk = Talk()
    talk.finish(create("a"))
    actions = talk.say(steer("resp_1"))
    assert rejected(actions) == "response_already_completed"
    (event,) = sent(actions)
    assert (event.sequence_number, event.stream_id) == (8, "a")
    assert sent(talk.say(steer("resp_1")))[0].sequence_number == 9


@pytest.mark.parametrize(
    "fields",
    [
        {"generate": False},
        {"generate": False, "candidates": ["a"]},
        {"prompt_cache_options": {"prewarm": True}},
    ],
)
def test_what_says_nothing_cannot_be_steered(fields: dict[str, Any]) -> None:
    """A warm-up, or scoring."""
    talk = Talk()
    talk.begin(create(**fields))
    assert rejected(talk.say(steer("resp_1"))) == "steering_not_supported"
    assert starts(talk.tell("resp_1", APPENDED)) == []


def test_a_turn_that_is_being_interrupted_cannot_be_steered() -> None:
    """Who interrupted it wants nothing to follow by itself."""
    talk = Talk()
    talk.begin(create())
    talk.say(cancel("resp_1"))
    assert rejected(talk.say(steer("resp_1"))) == "response_not_active"
    assert starts(talk.tell("resp_1", INTERRUPTED)) == []


@pytest.mark.parametrize("stop", [cancel, interrupt])
def test_an_interrupt_after_a_steer_takes_it_back(stop: Any) -> None:
    """The steers are given back, the turn ends as interrupted, and nothing follows."""
    talk = Talk()
    talk.begin(create())
    talk.tell("resp_1", TextDelta("half"))
    talk.say(steer("resp_1", "one"))
    actions = talk.say(stop("resp_1"))
    assert failures(actions) == [("response_not_active", "one")]
    assert cancels(actions) == []
    actions = talk.tell("resp_1", STEERED)
    assert sent(actions)[-1].response.incomplete_details.reason == "interrupted"
    assert sent(actions)[-1].response.output_text == "half"
    assert starts(actions) == []


def test_an_interrupt_cannot_discard_what_a_steer_has_kept() -> None:
    """The steer was first: the partial is in the log, and so it is in the response."""
    talk = Talk()
    talk.begin(create())
    talk.tell("resp_1", TextDelta("half"))
    talk.say(steer("resp_1"))
    talk.say(interrupt("resp_1", mode="discard_partial_items"))
    assert sent(talk.tell("resp_1", STEERED))[-1].response.output_text == "half"


def test_a_response_takes_eight_steers() -> None:
    """The ninth is too many; the eight are carried."""
    talk = Talk()
    talk.begin(create())
    for number in range(MAX_STEERS):
        assert names(talk.say(steer("resp_1", f"{number}"))) == ["steer.accepted"]
    assert rejected(talk.say(steer("resp_1", "more"))) == "too_many_pending_steers"
    assert len(request_of(talk.tell("resp_1", STEERED)).items) == MAX_STEERS


def test_a_connection_holds_so_many_steers() -> None:
    """Steers that wait for tool outputs are bounded over all lanes, until they are carried or given back."""
    talk = Talk()
    for number in range(MAX_PENDING // MAX_STEERS):
        response_id = talk.begin(create(f"lane{number}"))
        for _ in range(MAX_STEERS):
            talk.say(steer(response_id))
        talk.tell(response_id, *CALL, DONE)
    talk.begin(create())
    assert rejected(talk.say(steer(talk.begin(create("x"))))) == "too_many_pending_steers"
    talk.begin(create("lane0", previous_response_id="resp_1"))
    assert names(talk.say(steer(talk.begin(create("y"))))) == ["steer.accepted"]


def test_steers_are_bounded_in_bytes_too() -> None:
    """Large ones are too many sooner."""
    talk = Talk()
    talk.begin(create())
    large = "x" * (MAX_PENDING_BYTES // 2)
    assert names(talk.say(steer("resp_1", large))) == ["steer.accepted"]
    assert rejected(talk.say(steer("resp_1", large))) == "too_many_pending_steers"


def test_a_turn_that_fails_gives_its_steers_back() -> None:
    """After its terminal event, with the next numbers, the same ids, and the input as it came."""
    talk = Talk()
    talk.begin(create("a"))
    given = [{"role": "user", "content": "one", "type": "message"}]
    talk.say(steer("resp_1", given))
    talk.say(steer("resp_1", "two"))
    actions = talk.tell("resp_1", FAILED)
    assert names(actions) == ["failed", "steer.failed", "steer.failed"]
    assert [event.sequence_number for event in sent(actions)] == [4, 5, 6]
    assert failures(actions) == [("response_not_active", given), ("response_not_active", "two")]
    assert [event.steer.id for event in sent(actions)[1:]] == ["steer_1", "steer_2"]
    assert {event.stream_id for event in sent(actions)} == {"a"}


def test_a_turn_that_is_cancelled_from_elsewhere_gives_its_steers_back() -> None:
    """Over HTTP, for instance: whoever cancelled it wants nothing to follow."""
    talk = Talk()
    talk.begin(create())
    talk.say(steer("resp_1"))
    actions = talk.tell("resp_1", msgspec.structs.replace(DONE, reason="cancelled"))
    assert failures(actions) == [("response_not_active", "left")]
    assert starts(actions) == []


def test_a_successor_that_is_refused_gives_the_steers_back() -> None:
    """In the numbers of the one that was steered. Nobody asked for it, so there is no error frame."""
    talk = Talk()
    talk.begin(create(store=False))
    talk.say(create())
    talk.say(steer("resp_1"))
    talk.tell("resp_1", STEERED)
    actions = talk.refuse("resp_2", Refusal("too long", code="context_length_exceeded"))
    assert failures(actions) == [("successor_creation_failed", "left")]
    assert sent(actions)[0].sequence_number == 4
    assert sent(actions)[0].error.message == "too long"
    assert errors(actions) == []
    assert starts(actions) == ["resp_3"]
    assert forgotten(actions) == [], "the client may carry the input on by itself"


def test_a_successor_that_has_begun_has_taken_the_steers() -> None:
    """Its first event is the commit point: what comes after gives nothing back."""
    talk = Talk()
    talk.begin(create())
    talk.say(steer("resp_1"))
    talk.tell("resp_1", STEERED)
    talk.machine.begun("resp_2", "m")
    assert failures(talk.tell("resp_2", FAILED)) == []
