"""What tests of steering look for in the actions of a connection."""

from typing import Any

from openai.types.responses import (
    ResponseSteerFailedEvent,
)

from tests.protocol.parts import (
    Talk,
    create,
    sent,
    steer,
    wire,
)
from vivace.protocol.shapes.events import SteerFailed
from vivace.protocol.shapes.outcomes import CallBegun, CallDelta, CallDone, Outcome

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


def pending_after(*outcomes: Outcome) -> tuple[Talk, list[Any]]:
    """A response in lane a with two steers that ended in these outcomes, and what was sent then."""
    talk = Talk()
    talk.begin(create("a", store=False))
    talk.say(steer("resp_1", "one"))
    talk.say(steer("resp_1", "two"))
    return talk, talk.tell("resp_1", *outcomes)
