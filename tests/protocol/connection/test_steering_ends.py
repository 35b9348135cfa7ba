"""Steers that wait when the connection ends are given back or carried, and never lost."""

import pytest

from tests.protocol.connection.steering_events import failures, pending_after, rejected
from tests.protocol.parts import (
    CALL,
    DONE,
    STEERED,
    Talk,
    create,
    starts,
    steer,
)
from vivace.protocol.connection.actions import Close, Commit
from vivace.protocol.shapes.events import IncompleteDetails
from vivace.protocol.shapes.outcomes import Outcome


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
