"""A client's message on a WebSocket, parsed: what it asks, or why it is refused.

Owns parsing, which needs nothing of the connection, so that it may be done in another thread. Does not own
what a message does (`machine`).
"""

from typing import Any

import msgspec

from vivace.protocol.shapes.controls import (
    ResponseAnswerNow,
    ResponseCancel,
    ResponseInterrupt,
    ResponseSteer,
    parse_answer_now,
    parse_cancel,
    parse_envelope,
    parse_interrupt,
    parse_steer,
)
from vivace.protocol.shapes.parsing import check_lane, parse_create
from vivace.protocol.shapes.refusal import Refusal
from vivace.protocol.shapes.requests import MAX_BODY_BYTES, ResponseCreate


class ResponseProcessed(msgspec.Struct, frozen=True):
    """Codex has read a response to its end. An error in answer would hit its next turn."""


Body = (
    ResponseCreate
    | ResponseCancel
    | ResponseInterrupt
    | ResponseSteer
    | ResponseAnswerNow
    | ResponseProcessed
    | Refusal
)


class Message(msgspec.Struct, frozen=True):
    body: Body
    size: int  # in characters
    stream_id: str | None = None
    is_request: bool = (
        False  # a `response.create`, also one that is refused: its answer keeps its lane's order
    )


def parse_message(text: str) -> Message:
    """Return the message; a refused one has a `Refusal` as its body."""
    size, stream_id, is_request = len(text), None, False
    try:
        if size > MAX_BODY_BYTES:
            raise Refusal("The message is too large.", code="request_too_large", status=413)
        envelope = parse_envelope(text)
        is_create = envelope.type == "response.create"
        stream_id = _lane_of(envelope.stream_id, is_needed=is_create)
        is_request = is_create
        body = _parse_body(envelope.type, text)
    except Refusal as error:
        body = error
    return Message(body, size, stream_id, is_request)


def _parse_body(kind: str, text: str) -> Body:
    match kind:
        case "response.create":
            return _parse_request(text)
        case "response.cancel":
            return parse_cancel(text)
        case "response.interrupt":
            return parse_interrupt(text)
        case "response.steer":
            return parse_steer(text)
        case "response.answer_now":
            return parse_answer_now(text)
        case "response.processed":
            return ResponseProcessed()
    raise Refusal(f"Unknown message type {kind!r:.80}.", code="unknown_type", param="type")


def _parse_request(text: str) -> ResponseCreate:
    request = parse_create(text)
    if request.background:
        raise Refusal(
            "A WebSocket has no background responses.",
            "Ask for one with POST /v1/responses.",
            code="unsupported_parameter",
            param="background",
        )
    return request


def _lane_of(given: Any, *, is_needed: bool) -> str | None:
    """Return the lane that a message names. Refuse an impossible one only where it matters."""
    if given is None:
        return None
    stream_id = given if isinstance(given, str) else ""
    try:
        check_lane(stream_id)
    except Refusal:
        if is_needed:
            raise
        return None
    return stream_id
