"""One WebSocket as a machine: messages and outcomes in, actions out."""

import itertools
import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from vivace.protocol.connection import MAX_WAITING, Cancel, Connection, Send, Start
from vivace.protocol.events import Usage, Waterfall
from vivace.protocol.refusal import ErrorFrame, Refusal
from vivace.protocol.requests import MAX_BODY_BYTES
from vivace.protocol.writer import Ended, Text

DONE = Ended("stop", Usage(1, 1, 2), Waterfall())


def connection() -> Connection:
    numbers = itertools.count(1)
    return Connection(lambda: f"resp_{next(numbers)}")


def create(**fields: Any) -> str:
    return json.dumps({"type": "response.create", "input": "hi"} | fields)


def error_of(actions: list[Any]) -> ErrorFrame:
    (action,) = actions
    assert isinstance(action, Send)
    assert isinstance(action.message, ErrorFrame)
    return action.message


def started(actions: list[Any]) -> list[str]:
    return [action.response_id for action in actions if isinstance(action, Start)]


def test_a_create_starts_a_turn_and_its_outcomes_are_sent() -> None:
    """Start, begun, text, end: each is answered with its events."""
    machine = connection()
    assert started(machine.receive(create())) == ["resp_1"]
    assert len(machine.begun("resp_1", "m")) == 2
    assert len(machine.outcome("resp_1", Text("a"))) == 3
    assert machine.outcome("resp_1", DONE)[-1].message.is_terminal


def test_turns_of_a_lane_run_one_after_the_other() -> None:
    """The second request starts when the first is over."""
    machine = connection()
    machine.receive(create())
    assert machine.receive(create()) == []
    machine.begun("resp_1", "m")
    assert started(machine.outcome("resp_1", DONE)) == ["resp_2"]


def test_a_refused_request_is_answered_in_its_place() -> None:
    """An error of the second of three comes between the first and the third."""
    machine = connection()
    machine.receive(create())
    assert machine.receive(create(temperature=9)) == []
    machine.receive(create())
    machine.begun("resp_1", "m")
    actions = machine.outcome("resp_1", DONE)
    assert isinstance(actions[-2].message, ErrorFrame)
    assert started(actions) == ["resp_2"]


def test_a_turn_the_backend_refuses_is_one_error_frame() -> None:
    """No response was created, and the next may run."""
    machine = connection()
    machine.receive(create())
    machine.receive(create())
    refusal = Refusal("no", code="previous_response_not_found", status=404)
    frame, start = machine.refused("resp_1", refusal)
    assert json.loads(json.dumps(frame.message.status)) == 404
    assert started([start]) == ["resp_2"]


def test_messages_that_are_no_requests_get_an_error_frame() -> None:
    """Broken JSON, an unknown type, binary or too much: an error with a status, and the machine goes on."""
    machine = connection()
    for text in ("{", "[]", '{"type":"session.update"}', "{}", '{"type":"response.cancel"}'):
        assert error_of(machine.receive(text)).status == 400
    assert error_of(machine.receive("x" * (MAX_BODY_BYTES + 1))).status == 413
    assert error_of(machine.receive_bytes()).status == 400
    assert started(machine.receive(create())) == ["resp_1"]


def test_named_lanes_are_refused_clearly() -> None:
    """A lane that we do not have is no silent default lane."""
    assert error_of(connection().receive(create(stream_id="a"))).error.code == "unsupported_parameter"
    assert error_of(connection().receive(create(stream_id=""))).error.code == "invalid_stream_id"


def test_cancel_is_for_the_turn_that_runs() -> None:
    """A cancel names a running turn; too late is no error; never here is one."""
    machine = connection()
    machine.receive(create())
    machine.begun("resp_1", "m")
    cancel = json.dumps({"type": "response.cancel", "response_id": "resp_1"})
    assert machine.receive(cancel) == [Cancel("resp_1")]
    machine.outcome("resp_1", DONE)
    assert machine.receive(cancel) == []
    assert error_of(machine.receive(cancel.replace("resp_1", "resp_9"))).status == 404


def test_a_client_that_goes_leaves_nothing_running() -> None:
    """What runs is cancelled; what waits never starts."""
    machine = connection()
    machine.receive(create())
    machine.receive(create())
    assert machine.closed() == [Cancel("resp_1")]
    machine.begun("resp_1", "m")
    assert started(machine.outcome("resp_1", DONE)) == []


def test_the_queue_has_an_end() -> None:
    """Who sends more than can wait is told so."""
    machine = connection()
    for _ in range(MAX_WAITING + 1):
        machine.receive(create())
    assert error_of(machine.receive(create())).status == 429


class Shell:
    """Performs actions as the server would, with outcomes chosen by the test."""

    def __init__(self) -> None:
        self.machine = connection()
        self.running: str | None = None
        self.is_begun = False
        self.starts = self.ends = self.errors = 0

    def perform(self, actions: list[Any]) -> None:
        for action in actions:
            match action:
                case Start(response_id=response_id):
                    assert self.running is None, "one at a time"
                    self.running, self.is_begun = response_id, False
                    self.starts += 1
                case Send(message=ErrorFrame()):
                    self.errors += 1
                case Send(message=message) if message.is_terminal:
                    self.running = None
                    self.ends += 1

    def progress(self, move: int) -> None:
        if self.running is None:
            return
        if not self.is_begun:
            self.is_begun = True
            self.perform(self.machine.begun(self.running, "m"))
        else:
            self.perform(self.machine.outcome(self.running, DONE if move % 2 else Text("x")))


MESSAGES = [create(), create(temperature=9), "{", '{"type":"response.cancel","response_id":"resp_1"}']


@given(st.lists(st.integers(0, 9), max_size=60))
def test_every_request_is_answered_once(moves: list[int]) -> None:
    """In any order of messages and outcomes, each good request ends once and each bad one has its error."""
    shell, good, bad = Shell(), 0, 0
    for move in moves:
        if move < 3:
            good, bad = good + (move == 0), bad + (move != 0)
            shell.perform(shell.machine.receive(MESSAGES[move]))
        else:
            shell.progress(move)
    while shell.running:
        shell.progress(1)
    assert (shell.starts, shell.ends, shell.errors) == (good, good, bad)
