"""Errors as Anthropic's clients read them: their type and status say whether to try again.

Owns the shapes, and which error has which type and status there. Does not own the errors (`vivace.errors`).
"""

import re

import msgspec

from vivace.errors import VivaceError
from vivace.protocol.shapes.refusal import body_of, status_of

TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
    529: "overloaded_error",
}
OVERLOADED = 529  # there is no 503 in this API: the same request may be sent again
TOO_LONG = "context_length_exceeded"


class Problem(msgspec.Struct, frozen=True):
    type: str
    message: str


class ErrorEvent(msgspec.Struct, frozen=True, tag_field="type", tag="error"):
    """The body of an answer that is an error, and the last event of a stream that broke."""

    error: Problem
    request_id: str | None = None


def message_status(error: VivaceError) -> int:
    status = status_of(error)
    return OVERLOADED if status == 503 else status


def error_event(error: VivaceError, request_id: str | None = None) -> ErrorEvent:
    status = message_status(error)
    kind = TYPES.get(status, "api_error" if status >= 500 else "invalid_request_error")
    body = body_of(error)
    message = body.message
    if body.code == TOO_LONG:
        message = too_long(message)
    elif body.param and body.param not in message:  # there is no other place for it
        message = f"{body.param}: {message}"
    return ErrorEvent(Problem(kind, message), request_id)


def too_long(message: str) -> str:
    """Return the refusal of a long prompt in the words from which clients read both numbers."""
    numbers = re.match(r"(\d+) tokens are needed, and the context holds (\d+)", message)
    what = f"{numbers[1]} tokens > {numbers[2]} maximum" if numbers else message  # an upstream's words
    return f"prompt is too long: {what}"
