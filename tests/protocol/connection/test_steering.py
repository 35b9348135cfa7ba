"""Steering in OpenAI's dialect: accepted, carried on or given back, and never lost."""

import json
from typing import Any

import msgspec
import pytest
from openai.types.responses import (
    ResponseSteerAcceptedEvent,
    ResponseSteerFailedEvent,
    ResponseSteerPendingEvent,
)

from tests.protocol.parts import (
    APPENDED,
    CALL,
    DONE,
    FAILED,
    INTERRUPTED,
    LENGTH,
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
from vivace.protocol.connection.actions import Cancel, Close, Commit
from vivace.protocol.connection.lanes import MAX_IN_FLIGHT
from vivace.protocol.connection.steering import MAX_PENDING, MAX_PENDING_BYTES, MAX_STEERS
from vivace.protocol.shapes.events import IncompleteDetails, SteerFailed
from vivace.protocol.shapes.outcomes import CallBegun, CallDelta, CallDone, Outcome, TextDelta
from vivace.protocol.shapes.refusal import Refusal

CUSTOM_CALL: list[Outcome] = [
    CallBegun("patch", is_custom=True, call_id="call_2"),
    CallDelta("*** x"),
    CallDone(),
]


def failures(actions: list[Any]) -> list[tuple[str, Any]]:
    """Code and input of each steer that was given back."""
    events = [wire(message) for message in sent(actions) if isinstance(message, SteerFailed)]
    for event in events:
        ResponseSteerFailedEvent.model_validate(event)
    return [(event["error"]["code"], event["steer"]["input"]) for event in events]


def rejected(actions: list[Any]) -> str:
    """Why a steer was not accepted, if that is all there is."""
    assert len(actions) == 1
    (event,) = sent(actions)
    assert "id" not in wire(event)["steer"]
    return str(event.error.code)


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


# ---- what is not accepted ---------------------------------------------------------------------------


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


# ---- what was accepted and cannot be carried --------------------------------------------------------


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


# ---- when the client must answer calls first --------------------------------------------------------


def pending_after(*outcomes: Outcome) -> tuple[Talk, list[Any]]:
    """A response in lane a with two steers that ended in these outcomes, and what was sent then."""
    talk = Talk()
    talk.begin(create("a", store=False))
    talk.say(steer("resp_1", "one"))
    talk.say(steer("resp_1", "two"))
    return talk, talk.tell("resp_1", *outcomes)


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


# ---- when the connection ends -----------------------------------------------------------------------


@pytest.mark.parametrize(("step", "code"), [("expire", 1000), ("drain", 1012)])
def test_steers_that_wait_are_given_back_when_the_connection_ends(step: str, code: int) -> None:
    """No request can take them any more; then it closes."""
    talk, _ = pending_after(*CALL, DONE)
    actions = getattr(talk.machine, step)()
    assert failures(actions) == [("successor_creation_failed", "one"), ("successor_creation_failed", "two")]
    assert isinstance(actions[-1], Close)
    assert actions[-1].code == code


def test_an_old_connection_keeps_what_it_promised() -> None:
    """A steer from before the 60 minutes were over is carried; a new one is not taken."""
    talk = Talk()
    talk.begin(create())
    talk.say(steer("resp_1"))
    talk.machine.expire()
    assert rejected(talk.say(steer("resp_1"))) == "response_not_active"
    assert starts(talk.tell("resp_1", STEERED)) == ["resp_2"]
    talk.machine.begun("resp_2", "m")
    assert rejected(talk.say(steer("resp_2"))) == "response_not_active"
    assert isinstance(talk.tell("resp_2", DONE)[-1], Close)


@pytest.mark.parametrize("outcomes", [[STEERED], [*CALL, DONE]])
def test_a_server_that_leaves_gives_steers_back(outcomes: list[Outcome]) -> None:
    """Nothing new begins: the turn finishes, and its steers are the client's again."""
    talk = Talk()
    talk.begin(create())
    talk.say(steer("resp_1"))
    talk.machine.drain()
    actions = talk.tell("resp_1", *outcomes)
    assert failures(actions) == [("successor_creation_failed", "left")]
    assert starts(actions) == []
    assert isinstance(actions[-1], Close)


def test_an_old_connection_gives_back_what_would_wait_for_calls() -> None:
    """The request that would answer them cannot come any more."""
    talk = Talk()
    talk.begin(create())
    talk.say(steer("resp_1"))
    talk.machine.expire()
    assert failures(talk.tell("resp_1", *CALL, DONE)) == [("successor_creation_failed", "left")]


def test_steers_of_a_client_that_went_start_nothing() -> None:
    """Its turn ends as interrupted, since nothing follows it, and nothing is sent."""
    talk = Talk()
    talk.begin(create())
    talk.say(steer("resp_1"))
    talk.machine.closed()
    (end,) = talk.tell("resp_1", STEERED)
    assert isinstance(end, Commit)
    assert end.message.response.incomplete_details == IncompleteDetails("interrupted")
