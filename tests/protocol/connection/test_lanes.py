"""Lanes of a connection: order, limits, forks, and what is remembered of them."""

import json

import pytest

from tests.protocol.parts import (
    APPENDED,
    DONE,
    FAILED,
    INTERRUPTED,
    LENGTH,
    Talk,
    create,
    error_of,
    errors,
    forgotten,
    sent,
    starts,
    wire,
)
from vivace.protocol.connection.lanes import MAX_IN_FLIGHT, MAX_NAMED_LANES
from vivace.protocol.shapes.outcomes import Outcome, TextDelta


def test_lanes_run_at_the_same_time() -> None:
    """A turn in one lane does not hold up another."""
    talk = Talk()
    assert starts(talk.say(create("a"))) == ["resp_1"]
    assert starts(talk.say(create("b"))) == ["resp_2"]
    assert starts(talk.say(create())) == ["resp_3"]
    assert talk.say(create("a")) == []


def test_events_of_a_named_lane_carry_its_name() -> None:
    """Every one of them, and no event of the default lane carries any."""
    talk = Talk()
    for stream_id in ("a.B-c_1", None):
        response_id = starts(talk.say(create(stream_id)))[0]
        events = sent(talk.machine.begun(response_id, "m") + talk.tell(response_id, TextDelta("x"), DONE))
        assert {wire(event).get("stream_id") for event in events} == {stream_id}


def test_numbers_of_lanes_do_not_mix() -> None:
    """Each response counts its own events from 0, however they interleave."""
    talk = Talk()
    for stream_id in ("a", "b"):
        talk.say(create(stream_id))
    events = sent(talk.machine.begun("resp_1", "m") + talk.machine.begun("resp_2", "m"))
    events += sent(talk.tell("resp_1", TextDelta("x")) + talk.tell("resp_2", TextDelta("y")))
    for stream_id in ("a", "b"):
        numbers = [event.sequence_number for event in events if event.stream_id == stream_id]
        assert numbers == list(range(5))


@pytest.mark.parametrize("stream_id", ["", " ", "a b", "a\n", "é", "a/b", "x" * 257, 7, {}, [], False])
def test_a_lane_with_a_bad_name_is_refused(stream_id: object) -> None:
    """1 to 256 of a few characters; the error frame does not carry what is no name."""
    frame = error_of(
        Talk().say(json.dumps({"type": "response.create", "input": "x", "stream_id": stream_id}))
    )
    assert (frame.error.code, frame.error.param, frame.stream_id) == ("invalid_stream_id", "stream_id", None)


def test_a_lane_may_have_a_long_name_or_none() -> None:
    """256 characters are fine, and null is the default lane."""
    assert starts(Talk().say(create("x" * 256))) == ["resp_1"]
    talk = Talk()
    talk.say('{"type":"response.create","input":"x","stream_id":null}')
    assert talk.say(create()) == []


@pytest.mark.parametrize(
    "message",
    [
        {"type": "response.create", "temperature": 9},
        {"type": "response.create", "background": True, "input": "x"},
        {"type": "response.cancel", "response_id": "resp_9"},
        {"type": "response.bake"},
    ],
)
def test_an_error_frame_names_the_lane_that_the_message_named(message: dict[str, object]) -> None:
    """So that a client knows whose error it is."""
    assert error_of(Talk().say(json.dumps(message | {"stream_id": "a"}))).stream_id == "a"


def test_a_turn_that_the_backend_refuses_names_its_lane() -> None:
    """As its events would have."""
    talk = Talk()
    talk.say(create("a"))
    assert error_of(talk.refuse("resp_1")).stream_id == "a"


def test_there_are_32_names() -> None:
    """The default lane does not count; a name that was used stays taken, and can be used again."""
    talk = Talk()
    talk.finish(create())
    for number in range(MAX_NAMED_LANES):
        talk.finish(create(f"lane{number}"))
    frame = error_of(talk.say(create("another")))
    assert (frame.status, frame.error.code) == (400, "websocket_stream_limit_reached")
    assert (frame.error.param, frame.stream_id) == ("stream_id", "another")
    assert starts(talk.say(create("lane0")))
    assert starts(talk.say(create()))


def test_a_refused_request_uses_up_no_name() -> None:
    """What never ran has no lane."""
    talk = Talk()
    for number in range(MAX_NAMED_LANES + 1):
        assert error_of(talk.say(create(f"bad{number}", temperature=9))).error.code == "invalid_value"
    assert starts(talk.say(create("good")))


def test_at_most_16_turns_are_in_flight() -> None:
    """The 17th waits for any of them to end, and then runs."""
    talk = Talk()
    for number in range(MAX_IN_FLIGHT):
        talk.begin(create(f"lane{number}"))
    assert talk.say(create("late")) == []
    assert starts(talk.tell("resp_5", DONE)) == [f"resp_{MAX_IN_FLIGHT + 1}"]


def test_a_refusal_makes_room_too() -> None:
    """A turn that never began holds nothing."""
    talk = Talk()
    for number in range(MAX_IN_FLIGHT):
        talk.say(create(f"lane{number}"))
    assert talk.say(create("late")) == []
    assert starts(talk.refuse("resp_1"))


def test_who_waits_for_room_goes_in_order_of_arrival() -> None:
    """First come, first served."""
    talk = Talk()
    for number in range(MAX_IN_FLIGHT):
        talk.begin(create(f"lane{number}"))
    for stream_id in ("x", "y", "z"):
        talk.say(create(stream_id, metadata={"lane": stream_id}))
    served = []
    for number in (1, 2, 3):
        (start,) = [action for action in talk.tell(f"resp_{number}", DONE) if starts([action])]
        served.append(start.request.metadata["lane"])
    assert served == ["x", "y", "z"]


def test_a_lane_with_much_to_do_does_not_keep_others_waiting() -> None:
    """A lane whose turn is over stands behind those that wait already."""
    talk = Talk()
    for _ in range(3):
        talk.say(create("busy"))
    for number in range(1, MAX_IN_FLIGHT):
        talk.say(create(f"lane{number}"))
    talk.machine.begun("resp_1", "m")
    talk.say(create("patient"))
    (start,) = [action for action in talk.tell("resp_1", DONE) if starts([action])]
    assert start.request.stream_id == "patient"


def test_errors_in_a_waiting_lane_need_no_room() -> None:
    """An answer is told when its turn comes, however many turns run."""
    talk = Talk()
    for number in range(MAX_IN_FLIGHT):
        talk.begin(create(f"lane{number}"))
    assert error_of(talk.say(create("late", temperature=9))).stream_id == "late"
    talk.say(create("lane0", temperature=9))
    talk.say(create("lane0"))
    talk.say(create("other"))
    actions = talk.tell("resp_1", DONE)
    assert len(errors(actions)) == 1
    assert len(starts(actions)) == 1


# ---- what is remembered -----------------------------------------------------------------------------


def test_a_lane_keeps_its_latest_response_only() -> None:
    """With `store: false`, the one before is forgotten when the next is over, and no sooner."""
    talk = Talk()
    first = talk.finish(create(store=False))
    second = talk.begin(create(store=False, previous_response_id=first))
    assert forgotten(talk.tell(second, DONE)) == [first]


def test_stored_responses_are_not_forgotten() -> None:
    """The store has them; a lane that goes on says nothing of them."""
    talk = Talk()
    first = talk.finish(create())
    second = talk.begin(create(store=False, previous_response_id=first))
    assert forgotten(talk.tell(second, DONE)) == []


@pytest.mark.parametrize("end", [LENGTH, INTERRUPTED])
def test_a_response_that_was_cut_short_can_be_gone_on_from(end: Outcome) -> None:
    """It is the lane's latest like any other."""
    talk = Talk()
    first = talk.begin(create(store=False))
    assert forgotten(talk.tell(first, end)) == []
    second = talk.begin(create(store=False, previous_response_id=first))
    assert forgotten(talk.tell(second, DONE)) == [first]


def test_each_lane_keeps_its_own() -> None:
    """What is over in one lane takes nothing from another."""
    talk = Talk()
    talk.finish(create("a", store=False))
    response_id = talk.begin(create("b", store=False))
    assert forgotten(talk.tell(response_id, DONE)) == []


def test_a_fork_that_waits_keeps_its_parent() -> None:
    """Its own lane has gone on, but a request from before names it: it goes when the fork has begun."""
    talk = Talk()
    parent = talk.finish(create("a", store=False))
    talk.begin(create("b"))
    talk.say(create("b", store=False, previous_response_id=parent))  # waits
    child = talk.begin(create("a", store=False, previous_response_id=parent))
    assert forgotten(talk.tell(child, DONE)) == []
    (fork,) = starts(talk.tell("resp_2", DONE))
    assert forgotten(talk.machine.begun(fork, "m")) == [parent]


def test_a_fork_that_is_refused_lets_go_of_its_parent() -> None:
    """The last that needed it is answered."""
    talk = Talk()
    parent = talk.finish(create("a", store=False))
    (fork,) = starts(talk.say(create("b", store=False, previous_response_id=parent)))
    child = talk.begin(create("a", store=False, previous_response_id=parent))
    assert forgotten(talk.tell(child, DONE)) == []
    assert forgotten(talk.refuse(fork)) == [parent]


def test_a_response_is_forgotten_once() -> None:
    """Whoever names it later will not find it, and needs it to be forgotten no second time."""
    talk = Talk()
    parent = talk.finish(create("a", store=False))
    (fork,) = starts(talk.say(create("b", previous_response_id=parent)))
    talk.finish(create("a", store=False))
    assert forgotten(talk.refuse(fork)) == [parent]
    (late,) = starts(talk.say(create("b", previous_response_id=parent)))
    assert forgotten(talk.refuse(late)) == []


def test_a_continuation_that_is_refused_evicts_what_it_named() -> None:
    """In its own lane; the next that names it will not find it."""
    talk = Talk()
    parent = talk.finish(create("a", store=False))
    (child,) = starts(talk.say(create("a", store=False, previous_response_id=parent)))
    assert forgotten(talk.refuse(child)) == [parent]


def test_a_continuation_that_fails_evicts_what_it_named() -> None:
    """5xx in the middle is the same; and nothing goes on from what failed."""
    talk = Talk()
    parent = talk.finish(create("a", store=False))
    child = talk.begin(create("a", store=False, previous_response_id=parent))
    assert set(forgotten(talk.tell(child, FAILED))) == {parent, child}


def test_eviction_is_for_stored_responses_too() -> None:
    """What is held of it in memory goes; the store still has it."""
    talk = Talk()
    parent = talk.finish(create())
    child = talk.begin(create(previous_response_id=parent))
    assert forgotten(talk.tell(child, FAILED)) == [parent]


def test_a_fork_that_fails_keeps_its_parent() -> None:
    """The lane it came from can go on."""
    talk = Talk()
    parent = talk.finish(create("a", store=False))
    fork = talk.begin(create("b", store=False, previous_response_id=parent))
    assert forgotten(talk.tell(fork, FAILED)) == [fork]
    (fork,) = starts(talk.say(create("c", store=False, previous_response_id=parent)))
    assert forgotten(talk.refuse(fork)) == []
    child = talk.begin(create("a", store=False, previous_response_id=parent))
    assert forgotten(talk.tell(child, DONE)) == [parent]


def test_a_failure_evicts_nothing_that_is_not_the_lanes_own() -> None:
    """An unknown id, an older one, or none at all."""
    talk = Talk()
    first = talk.finish(create("a"))
    talk.finish(create("a"))
    for previous in ("resp_of_another", first, None):
        (child,) = starts(talk.say(create("a", previous_response_id=previous)))
        assert forgotten(talk.refuse(child)) == []


def test_text_that_is_being_typed_leaves_the_lane_as_it_was() -> None:
    """It is forgotten itself; what it named is still there, also when typing fails."""
    talk = Talk()
    parent = talk.finish(create(store=False))
    typing = {"store": False, "generate": False, "is_provisional": True, "previous_response_id": parent}
    typed = talk.begin(create(**typing))  # type: ignore[arg-type]
    assert forgotten(talk.tell(typed, APPENDED)) == [typed]
    typed = talk.begin(create(**typing))  # type: ignore[arg-type]
    assert forgotten(talk.tell(typed, FAILED)) == [typed]
    (typed,) = starts(talk.say(create(**typing)))  # type: ignore[arg-type]
    assert forgotten(talk.refuse(typed)) == []
    child = talk.begin(create(store=False, previous_response_id=parent))
    assert forgotten(talk.tell(child, DONE)) == [parent]
