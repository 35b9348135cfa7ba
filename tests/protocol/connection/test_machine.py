"""One WebSocket as a machine: messages and outcomes in, actions out."""

import json

import pytest

from tests.protocol.parts import (
    APPENDED,
    DONE,
    FAILED,
    INTERRUPTED,
    NOT_FOUND,
    Talk,
    cancel,
    cancels,
    closes,
    create,
    error_of,
    errors,
    interrupt,
    names,
    sent,
    starts,
    wire,
)
from vivace.protocol.connection.actions import Cancel, Close, Commit, Send
from vivace.protocol.connection.interruption import MAX_ENDED
from vivace.protocol.connection.lanes import MAX_WAITING, MAX_WAITING_BYTES
from vivace.protocol.shapes.outcomes import CallBegun, CallDelta, Queued, Started, TextDelta
from vivace.protocol.shapes.refusal import ErrorFrame
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


def test_a_client_that_goes_leaves_nothing_running() -> None:
    """What runs is cancelled, begun or not; what waits never starts; nothing is sent, ends are stored."""
    talk = Talk()
    talk.begin(create())
    talk.say(create())
    talk.say(create("a"))
    assert talk.machine.closed() == [Cancel("resp_1"), Cancel("resp_2")]
    assert talk.machine.begun("resp_2", "m") == [Cancel("resp_2")]
    assert talk.tell("resp_1", TextDelta("x")) == []
    (interrupted,), (failed,) = talk.tell("resp_1", INTERRUPTED), talk.tell("resp_2", FAILED)
    assert isinstance(interrupted, Commit)
    assert interrupted.message.response.output_text == "x"
    assert isinstance(failed, Commit)
    assert failed.message.response.status == "failed"
    assert (talk.say(create()), talk.say("{"), talk.machine.receive_bytes()) == ([], [], [])
    assert (talk.machine.expire(), talk.machine.drain(), talk.machine.closed()) == ([], [], [])


def test_a_turn_refused_after_the_client_went_says_nothing() -> None:
    """The refusal is for nobody."""
    talk = Talk()
    talk.say(create())
    talk.machine.closed()
    assert talk.refuse("resp_1") == []


def test_an_old_connection_closes_when_it_is_idle() -> None:
    """Nothing runs: it closes at once, and hears nothing any more."""
    talk = Talk()
    talk.finish(create())
    assert talk.machine.expire() == [Close(1000, "websocket_connection_limit_reached")]
    assert talk.say(create()) == []
    assert talk.machine.closed() == []


def test_an_old_connection_lets_its_turns_finish() -> None:
    """What runs goes on; what waits and what comes is refused in its place; then it closes."""
    talk = Talk()
    talk.begin(create())
    talk.begin(create("a"))
    talk.say(create("a"))
    assert talk.machine.expire() == []
    frame = error_of(talk.say(create("b")))
    assert (frame.status, frame.error.code) == (400, "websocket_connection_limit_reached")
    assert frame.stream_id == "b"
    assert talk.say(create()) == []
    first = talk.tell("resp_1", DONE)
    assert (names(first)[-2:], closes(first)) == (["completed", "error"], [])
    second = talk.tell("resp_2", DONE)
    assert names(second)[-2:] == ["completed", "error"]
    assert sent(second)[-1].stream_id == "a"
    assert second[-1] == Close(1000, "websocket_connection_limit_reached")


def test_a_server_that_leaves_says_so() -> None:
    """What waits is refused with 503; what runs may finish; then an error and 1012."""
    talk = Talk()
    talk.begin(create())
    talk.say(create())
    assert talk.machine.drain() == []
    actions = talk.tell("resp_1", DONE)
    assert [(frame.status, frame.error.code) for frame in errors(actions)] == [(503, "shutting_down")] * 2
    assert actions[-1] == Close(1012, "shutting_down")
    assert talk.say(create()) == []


def test_a_server_that_leaves_closes_idle_connections_at_once() -> None:
    """An error, and 1012."""
    frame, close = Talk().machine.drain()
    assert isinstance(frame, Send)
    assert isinstance(frame.message, ErrorFrame)
    assert close == Close(1012, "shutting_down")


def test_the_last_word_is_the_servers() -> None:
    """A farewell after 60 minutes still closes with 1012, and the other way round nothing changes."""
    for order in (("expire", "drain"), ("drain", "expire")):
        talk = Talk()
        talk.begin(create())
        for step in order:
            assert getattr(talk.machine, step)() == []
        assert talk.tell("resp_1", DONE)[-1] == Close(1012, "shutting_down")


def test_a_turn_refused_while_the_connection_winds_down_ends_it() -> None:
    """A refusal is an end like any other."""
    talk = Talk()
    talk.say(create())
    talk.machine.drain()
    assert talk.refuse("resp_1", NOT_FOUND)[-1] == Close(1012, "shutting_down")


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
