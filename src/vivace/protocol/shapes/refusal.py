"""Errors on the wire: the one shape in which every refused request is answered.

Owns the error body, the error frame and which status an error has. Does not own the errors themselves:
see `vivace.errors`.
"""

import re
from collections.abc import Mapping

import msgspec
from msgspec import UNSET, UnsetType

from vivace.errors import ModelUnavailable, RequestRefused, StartError, UsageError, VivaceError

INTERNAL = "server_error"


class Refusal(RequestRefused):
    """A request that we refuse, and which field of it is wrong."""

    def __init__(
        self, message: str, hint: str = "", *, code: str, status: int = 400, param: str | None = None
    ) -> None:
        super().__init__(message, hint, code=code, status=status)
        self.param = param


def mistake() -> Refusal:
    """Return the error for a fault of ours."""
    return Refusal("The server made a mistake; its log says more.", code=INTERNAL, status=500)


def previous_not_found(response_id: str) -> Refusal:
    """Return the refusal of a request that continues an unknown response. OpenAI answers 400, too."""
    return Refusal(
        f"There is no response {response_id} here.",
        "It was not stored, or is too old: send the whole input.",
        code="previous_response_not_found",
        param="previous_response_id",
    )


def model_not_found(model: str, hint: str = "") -> Refusal:
    """Return OpenAI's refusal of a model that nobody serves, or that this caller may not use."""
    message = f"The model {model[:200]!r} does not exist or you do not have access to it."
    return Refusal(message, hint, code="model_not_found", status=404, param="model")


def in_words(refusal: Refusal, names: Mapping[str, str]) -> Refusal:
    """Return the same refusal about the field as another API calls it. `names`: ours to theirs."""
    param = refusal.param or ""
    found = re.match(r"[a-z_]+", param)
    name = names.get(param) or names.get(found[0] if found else "")
    if name:
        refusal.message = refusal.message.replace(f"$.{param}", f"$.{name}")
        refusal.param = name
    return refusal


class ErrorBody(msgspec.Struct, frozen=True):
    message: str
    type: str
    code: str
    param: str | None = None
    headers: dict[str, str] | UnsetType = UNSET  # in a frame only: what an HTTP answer would have


class ErrorFrame(msgspec.Struct, frozen=True, tag_field="type", tag="error", omit_defaults=True):
    """A refused message on a WebSocket. Some clients ignore one without a status, so it always has one.

    Codex reads the headers beside `error`, OpenAI's SDKs in it: they are in both places.
    """

    status: int
    error: ErrorBody
    stream_id: str | None = None
    headers: dict[str, str] | None = None  # limits, when to try again


class ErrorAnswer(msgspec.Struct, frozen=True):
    """The body of an HTTP answer that is an error."""

    error: ErrorBody


def status_of(error: VivaceError) -> int:
    match error:
        case RequestRefused(status=status):
            return status
        case ModelUnavailable():
            return 404
        case UsageError():
            return 400
        case StartError() | VivaceError(code="store_unavailable"):
            return 503
    return 500


def body_of(error: VivaceError) -> ErrorBody:
    kind = "invalid_request_error" if status_of(error) < 500 else INTERNAL
    message = f"{error.message} {error.hint}".rstrip()
    return ErrorBody(message, kind, error.code, getattr(error, "param", None))


def frame_of(error: VivaceError, stream_id: str | None = None) -> ErrorFrame:
    headers: dict[str, str] = getattr(error, "headers", {})
    body = msgspec.structs.replace(body_of(error), headers=headers or UNSET)
    return ErrorFrame(status_of(error), body, stream_id, headers or None)
