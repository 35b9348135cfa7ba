"""The end of a connection: its client goes, it is too old, or the server leaves."""

from tests.protocol.parts import (
    DONE,
    FAILED,
    INTERRUPTED,
    NOT_FOUND,
    Talk,
    closes,
    create,
    error_of,
    errors,
    names,
    sent,
)
from vivace.protocol.connection.actions import Cancel, Close, Commit, Send
from vivace.protocol.shapes.outcomes import TextDelta
from vivace.protocol.shapes.refusal import ErrorFrame


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
