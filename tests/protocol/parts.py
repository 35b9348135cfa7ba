"""For the tests of the connection machine: messages, outcomes, and a shell that performs no actions."""

import itertools
import json
from typing import Any

import msgspec

from vivace.errors import VivaceError
from vivace.protocol.connection.actions import Action, Cancel, Close, Forget, Send, Start
from vivace.protocol.connection.machine import Connection
from vivace.protocol.connection.messages import parse_message
from vivace.protocol.shapes.events import AnyEvent, Usage, Waterfall
from vivace.protocol.shapes.outcomes import Broken, CallBegun, CallDelta, CallDone, Ended, Outcome
from vivace.protocol.shapes.refusal import ErrorFrame, Refusal

DONE = Ended("stop", Usage(1, 1, 2), Waterfall())
STEERED = Ended("steered", Usage(1, 1, 2), Waterfall())
INTERRUPTED = Ended("interrupted", Usage(1, 1, 2), Waterfall())
LENGTH = Ended("length", Usage(1, 1, 2), Waterfall())
APPENDED = Ended("appended", Usage(1, 0, 1), Waterfall())
FAILED = Broken("engine_died", "twice")
CALL: list[Outcome] = [CallBegun("look", call_id="call_1"), CallDelta("{}"), CallDone()]
NOT_FOUND = Refusal("no such response", code="previous_response_not_found", param="previous_response_id")


def create(stream_id: str | None = None, **fields: Any) -> str:
    lane = {} if stream_id is None else {"stream_id": stream_id}
    return json.dumps({"type": "response.create", "input": "hi"} | lane | fields)


def cancel(response_id: str) -> str:
    return json.dumps({"type": "response.cancel", "response_id": response_id})


def interrupt(response_id: str, **fields: Any) -> str:
    return json.dumps({"type": "response.interrupt", "response_id": response_id} | fields)


def steer(response_id: str, input: Any = "left", **fields: Any) -> str:
    return json.dumps(
        {"type": "response.steer", "previous_response_id": response_id, "input": input} | fields
    )


def wire(message: Any) -> Any:
    """As a client reads it."""
    return json.loads(msgspec.json.encode(message))


def name(message: AnyEvent | ErrorFrame) -> str:
    return str(message.__struct_config__.tag).removeprefix("response.")


class Talk:
    """A machine with numbered ids. Whatever it wants done is kept, in order."""

    def __init__(self) -> None:
        responses, steers = itertools.count(1), itertools.count(1)
        self.machine = Connection(lambda: f"resp_{next(responses)}", lambda: f"steer_{next(steers)}")

    def say(self, text: str) -> list[Action]:
        return self.machine.handle(parse_message(text))

    def begin(self, text: str) -> str:
        """A create that starts at once, and has begun."""
        (response_id,) = starts(self.say(text))
        self.machine.begun(response_id, "m")
        return response_id

    def tell(self, response_id: str, *outcomes: Outcome) -> list[Action]:
        """All that comes of these outcomes."""
        return [action for each in outcomes for action in self.machine.outcome(response_id, each)]

    def finish(self, text: str, *outcomes: Outcome) -> str:
        """A whole turn."""
        response_id = self.begin(text)
        self.tell(response_id, *outcomes, DONE)
        return response_id

    def refuse(self, response_id: str, error: VivaceError = NOT_FOUND) -> list[Action]:
        return self.machine.refused(response_id, error)


def starts(actions: list[Action]) -> list[str]:
    return [action.response_id for action in actions if isinstance(action, Start)]


def request_of(actions: list[Action]) -> Any:
    (action,) = [action for action in actions if isinstance(action, Start)]
    return action.request


def sent(actions: list[Action]) -> list[Any]:
    return [action.message for action in actions if isinstance(action, Send)]


def names(actions: list[Action]) -> list[str]:
    return [name(message) for message in sent(actions)]


def errors(actions: list[Action]) -> list[ErrorFrame]:
    return [message for message in sent(actions) if isinstance(message, ErrorFrame)]


def error_of(actions: list[Action]) -> ErrorFrame:
    """What was answered, if an error frame is all there is."""
    (action,) = actions
    assert isinstance(action, Send)
    assert isinstance(action.message, ErrorFrame)
    return action.message


def cancels(actions: list[Action]) -> list[Cancel]:
    return [action for action in actions if isinstance(action, Cancel)]


def forgotten(actions: list[Action]) -> list[str]:
    return [action.response_id for action in actions if isinstance(action, Forget)]


def closes(actions: list[Action]) -> list[Close]:
    return [action for action in actions if isinstance(action, Close)]
