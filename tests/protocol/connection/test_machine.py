"""One WebSocket as a machine: messages and outcomes in, actions out.

Interrupts are in `test_interruption`, limits and the ends of a connection in `test_winding_down`.
"""

import json

import pytest

from tests.protocol.parts import (
    APPENDED,
    DONE,
    FAILED,
    Talk,
    cancel,
    create,
    error_of,
    errors,
    names,
    sent,
    starts,
    wire,
)
from vivace.protocol.connection.lanes import MAX_WAITING, MAX_WAITING_BYTES
from vivace.protocol.shapes.outcomes import CallDelta, Queued, Started, TextDelta
from vivace.protocol.shapes.requests import MAX_BODY_BYTES


def test_a_create_starts_a_turn_and_its_outcomes_are_sent() -> None:
    """Start, begun, text, end: each is answered with its events."""
    talk = Talk()
    assert starts(talk.say(create())) == ["resp_1"]
    assert names(talk.machine.begun("resp_1", "m")) == ["created", "in_progress"]
    assert names(talk.tell("resp_1", TextDelta("a")))[-1] == "output_text.delta"
    assert names(talk.tell("resp_1", DONE))[-1] == "completed"


def test_a_turn_that_waits_in_the_backend_says_where() -> None:
    """Begun with a place: created and queued, and in progress when it has started."""
    talk = Talk()
    talk.say(create())
    begun = talk.machine.begun("resp_1", "m", Queued(2, 1.5))
    assert names(begun) == ["created", "queued"]
    assert wire(sent(begun)[1])["response"]["vivace"]["queue"] == {"position": 2, "estimate_s": 1.5}
    assert names(talk.tell("resp_1", Started())) == ["in_progress"]


def test_turns_of_a_lane_run_one_after_the_other() -> None:
    """The second request starts when the first is over."""
    talk = Talk()
    talk.begin(create())
    assert talk.say(create()) == []
    assert starts(talk.tell("resp_1", DONE)) == ["resp_2"]


def test_a_warm_up_is_a_turn_like_any_other() -> None:
    """`generate: false`: created, in progress and completed, and an id to go on from."""
    talk = Talk()
    response_id = talk.begin(create(generate=False))
    assert names(talk.tell(response_id, APPENDED)) == ["completed"]


def test_stream_in_the_body_is_passed_over() -> None:
    """Codex sends it; on a socket there is nothing else."""
    assert starts(Talk().say(create(stream=True))) == ["resp_1"]
    assert starts(Talk().say(create(stream=False))) == ["resp_1"]


def test_a_background_response_is_refused() -> None:
    """There is none over a WebSocket; `background: false` says nothing."""
    frame = error_of(Talk().say(create(background=True)))
    assert (frame.status, frame.error.code, frame.error.param) == (400, "unsupported_parameter", "background")
    assert starts(Talk().say(create(background=False))) == ["resp_1"]


def test_a_refused_request_is_answered_in_its_place() -> None:
    """An error of the second of three comes between the first and the third."""
    talk = Talk()
    talk.begin(create())
    assert talk.say(create(temperature=9)) == []
    talk.say(create())
    actions = talk.tell("resp_1", DONE)
    assert names(actions)[-2:] == ["completed", "error"]
    assert starts(actions[-1:]) == ["resp_2"]


def test_a_turn_that_the_backend_refuses_is_one_error_frame() -> None:
    """No response was created, and the next may run."""
    talk = Talk()
    talk.say(create())
    talk.say(create())
    actions = talk.refuse("resp_1")
    (frame,) = errors(actions)
    assert (frame.status, frame.error.code) == (400, "previous_response_not_found")
    assert starts(actions) == ["resp_2"]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "{}",
        '{"type":"session.update"}',
        '{"type":7}',
        '{"type":"response.cancel"}',
        '{"type":"response.interrupt","response_id":[]}',
        '{"type":"response.steer","input":"x"}',
        '{"type":"response.steer","previous_response_id":7,"input":"x"}',
        "[" * 100_000,
        '{"type":"response.create","input":' + "[" * 100_000 + "]" * 100_000 + "}",
        '{"type":"response.create","stream_id":' + "[" * 100_000 + "]" * 100_000 + "}",
        '{"type":"response.steer","previous_response_id":"x","input":' + "[" * 100_000 + "]" * 100_000 + "}",
        '{"type":"response.create","input":"\ud800"}',
    ],
)
def test_a_message_that_is_no_request_gets_an_error_frame(text: str) -> None:
    """Broken, foreign or deep: an error with a status, and the machine goes on."""
    talk = Talk()
    assert error_of(talk.say(text)).status == 400
    assert starts(talk.say(create())) == ["resp_1"]


def test_a_message_that_is_too_large_is_not_even_read() -> None:
    """64 MiB of anything: 413, and the machine goes on."""
    talk = Talk()
    assert error_of(talk.say("[" * (4 * MAX_BODY_BYTES))).status == 413
    assert error_of(talk.say("x" * (MAX_BODY_BYTES + 1))).status == 413
    assert starts(talk.say(create())) == ["resp_1"]


def test_binary_frames_are_refused() -> None:
    """Text frames only."""
    assert error_of(Talk().machine.receive_bytes()).status == 400


def test_what_codex_has_processed_needs_no_answer() -> None:
    """It says so after a response; an error frame would be taken for the next one's."""
    assert Talk().say('{"type":"response.processed","response_id":"resp_1"}') == []


def test_an_error_frame_does_not_repeat_what_was_sent() -> None:
    """A long name in a message is not sent back whole."""
    talk = Talk()
    for text in (json.dumps({"type": "x" * 100_000}), cancel("y" * 100_000)):
        assert len(json.dumps(wire(error_of(talk.say(text))))) < 1000


def test_an_error_frame_on_the_wire() -> None:
    """Always with a status; without a lane, no stream_id."""
    assert wire(error_of(Talk().say("{}"))) == {
        "type": "error",
        "status": 400,
        "error": {
            "type": "invalid_request_error",
            "code": "unknown_type",
            "message": "Unknown message type ''.",
            "param": "type",
        },
    }


def test_the_queue_has_an_end() -> None:
    """Who sends more than can wait is told so, in the lane that was named; others may still run."""
    talk = Talk()
    for _ in range(MAX_WAITING + 1):
        talk.say(create("a"))
    frame = error_of(talk.say(create("a")))
    assert (frame.status, frame.error.code, frame.stream_id) == (429, "rate_limit_exceeded", "a")
    assert starts(talk.say(create("b"))) == ["resp_2"]


def test_the_queue_is_bounded_in_bytes_too() -> None:
    """Large requests fill it sooner."""
    talk = Talk()
    talk.say(create())
    large = create(input="x" * (MAX_BODY_BYTES - 1000))
    for _ in range(MAX_WAITING_BYTES // len(large)):
        assert talk.say(large) == []
    assert error_of(talk.say(large)).status == 429
    talk.machine.begun("resp_1", "m")
    talk.tell("resp_1", DONE)
    assert talk.say(large) == [], "there is room again"


def test_refused_requests_wait_in_the_queue_too() -> None:
    """Answers in their place are bounded like requests."""
    talk = Talk()
    talk.say(create())
    for _ in range(MAX_WAITING):
        assert talk.say(create(temperature=9)) == []
    assert error_of(talk.say(create(temperature=9))).status == 429


def test_ten_thousand_creates_are_answered_one_by_one() -> None:
    """Each that does not fit is refused at once; the rest run in their order, and none is lost."""
    talk = Talk()
    frames = [errors(talk.say(create())) for _ in range(10_000)]
    assert sum(map(len, frames)) == 10_000 - 1 - MAX_WAITING
    for number in range(1, MAX_WAITING + 2):
        talk.machine.begun(f"resp_{number}", "m")
        talk.tell(f"resp_{number}", DONE)
    assert starts(talk.say(create())) == [f"resp_{MAX_WAITING + 2}"]


def test_an_outcome_that_cannot_be_told_leaves_room_for_the_end() -> None:
    """A backend's mistake raises; the turn can still be reported as broken, and the lane goes on."""
    talk = Talk()
    talk.begin(create())
    talk.say(create())
    with pytest.raises(AssertionError):
        talk.tell("resp_1", CallDelta("of no call"))
    actions = talk.tell("resp_1", FAILED)
    assert (names(actions), starts(actions)) == (["failed"], ["resp_2"])


def test_a_second_end_is_our_own_mistake() -> None:
    """It is caught, and nothing is sent."""
    talk = Talk()
    talk.finish(create())
    with pytest.raises(KeyError):
        talk.tell("resp_1", DONE)
