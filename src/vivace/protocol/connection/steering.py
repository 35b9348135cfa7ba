"""Steers: what a client says while a turn runs, from its acceptance to the response that takes it in.

Owns what may be said, what becomes of it, and the events that tell so. What was accepted ends in one of two
ways: it is carried by the response that follows, or given back. Does not own when (`connection`).

A response that follows by itself has all settings of the one that was steered, seed and prediction too:
drafts never change a text. Only its input and what it goes on from are its own. Where the client must
answer calls first, steers wait for its request, which has its own settings, and come before that request's
input.
"""

import secrets
from collections.abc import Iterable, Iterator
from typing import Literal

import msgspec

from vivace.protocol.connection.actions import Send
from vivace.protocol.shapes.controls import ResponseSteer
from vivace.protocol.shapes.events import (
    CustomToolCall,
    FunctionCall,
    Steer,
    SteerAccepted,
    SteerFailed,
    SteerPending,
    SteerProblem,
)
from vivace.protocol.shapes.items import InputItem, Part
from vivace.protocol.shapes.refusal import Refusal
from vivace.protocol.shapes.requests import MAX_BODY_BYTES, ResponseCreate
from vivace.protocol.writing.writer import Numbering

MAX_STEERS = 8  # for one response
MAX_PENDING = 64  # on a connection
MAX_PENDING_BYTES = MAX_BODY_BYTES
NOT_CREATED = "successor_creation_failed"
NOT_ACTIVE = "response_not_active"


def new_steer_id() -> str:
    return f"steer_{secrets.token_hex(16)}"


class PendingSteer(msgspec.Struct, frozen=True):
    """A steer that was accepted, and neither carried nor given back yet."""

    id: str
    parent: str  # the response that it is for
    given: msgspec.Raw  # the input as it came
    items: list[InputItem]
    size: int
    numbering: Numbering  # the parent's

    def accepted(self) -> SteerAccepted:
        return self.numbering.number(SteerAccepted, steer=Steer(self.parent, self.id))

    def pending(self, required: list[dict[str, str]]) -> SteerPending:
        return self.numbering.number(SteerPending, steer=Steer(self.parent, self.id), required_input=required)

    def failed(self, code: str, message: str) -> SteerFailed:
        steer = Steer(self.parent, self.id, self.given)
        return self.numbering.number(SteerFailed, steer=steer, error=SteerProblem(code, message))


def given_back(steers: Iterable[PendingSteer], code: str, message: str) -> Iterator[Send]:
    """Return the events of accepted steers that no response will carry."""
    return (Send(steer.failed(code, message)) for steer in steers)


def rejected(asked: ResponseSteer, error: Refusal, numbering: Numbering) -> SteerFailed:
    """Return the event of a steer that was never accepted, and so has no id."""
    steer = Steer(asked.previous_response_id, input=asked.input)
    return numbering.number(SteerFailed, steer=steer, error=SteerProblem(error.code, error.message))


class _Message(msgspec.Struct, forbid_unknown_fields=True):
    role: Literal["user"]
    content: str | list[Part]
    type: Literal["message"] = "message"
    id: str | None = None
    status: str | None = None


def items_of(asked: ResponseSteer) -> list[InputItem]:
    """Return the messages of a steer; raise a `Refusal` for anything but text of the user."""
    if asked.unknown:
        raise _invalid(f"A steer has no {asked.unknown[0]!r:.80}: only previous_response_id and input.")
    try:
        given = msgspec.json.decode(asked.input, type=str | list[_Message])
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise _invalid(f"Only the user's messages can steer: {error}.") from error
    messages = [_Message("user", given)] if isinstance(given, str) else given
    parts = [part for message in messages if isinstance(message.content, list) for part in message.content]
    if foreign := next((part for part in parts if part.type != "input_text"), None):
        raise _invalid(
            f"Content of type {foreign.type!r:.80} cannot steer: this server reads input_text only."
        )
    items = [InputItem(role="user", content=message.content) for message in messages]
    if not items or not all(item.text for item in items):
        raise _invalid("There is nothing in the input.")
    return items


def check_budget(for_parent: list[PendingSteer], on_connection: list[PendingSteer], size: int) -> None:
    """Raise a `Refusal` if too much is pending already."""
    total_bytes = sum(steer.size for steer in on_connection) + size
    is_full = len(on_connection) >= MAX_PENDING or total_bytes > MAX_PENDING_BYTES
    if len(for_parent) >= MAX_STEERS or is_full:
        raise Refusal("Too much steering input is pending already.", code="too_many_pending_steers")


def following(
    parent_id: str, request: ResponseCreate, model: str, steers: list[PendingSteer]
) -> ResponseCreate:
    """Return the request of a response that follows by itself."""
    return msgspec.structs.replace(
        request,
        model=request.model or model,
        previous_response_id=parent_id,
        input=_joined(steers),
    )


def carrying(request: ResponseCreate, steers: list[PendingSteer]) -> ResponseCreate:
    """Return a request of the client's with the steers that waited for it before its own input."""
    return msgspec.structs.replace(request, input=[*_joined(steers), *request.items])


def stubs(calls: Iterable[FunctionCall | CustomToolCall]) -> list[dict[str, str]]:
    """Return what the client has to fill in before the steers can be carried."""
    return [_stub(call) for call in calls]


def _stub(call: FunctionCall | CustomToolCall) -> dict[str, str]:
    if isinstance(call, CustomToolCall):
        return {"type": "custom_tool_call_output", "call_id": call.call_id}
    return {"type": "function_call_output", "call_id": call.call_id, "name": call.name}


def _joined(steers: list[PendingSteer]) -> list[InputItem]:
    return [item for steer in steers for item in steer.items]


def _invalid(message: str) -> Refusal:
    return Refusal(message, code="invalid_input")
