"""JSON answers: msgspec out, and every error in the shape of the API that was asked.

Owns turning values and errors into HTTP responses. Does not own which error means what (`protocol.refusal`).
"""

import logging
import secrets
from collections.abc import Mapping
from typing import Any

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Scope

from vivace.errors import VivaceError
from vivace.protocol.messages.errors import error_event, message_status
from vivace.protocol.shapes.refusal import ErrorAnswer, Refusal, body_of, mistake, status_of

MESSAGES, MODELS = "/v1/messages", "/v1/models"
VERSION = b"anthropic-version"  # any version: what differs between them has no effect here
REQUEST_ID = "request-id"

log = logging.getLogger(__name__)


def json_response(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    return Response(msgspec.json.encode(value), status, headers, "application/json")


def error_response(error: VivaceError, scope: Scope) -> Response:
    headers: dict[str, str] = dict(getattr(error, "headers", {}))
    if status_of(error) == 401:
        headers["www-authenticate"] = "Bearer"
    if speaks_messages(scope):
        request_id = new_request_id()
        headers |= {REQUEST_ID: request_id}
        if status_of(error) == 401:
            headers["x-should-retry"] = "false"  # or Claude Code tries for minutes, and says nothing
        return json_response(error_event(error, request_id), message_status(error), headers)
    answer = msgspec.json.encode(ErrorAnswer(body_of(error)))
    return Response(answer, status_of(error), headers, "application/json")


def speaks_messages(scope: Scope) -> bool:
    """Return whether the client speaks Anthropic's API, by the path or else by its header."""
    path: str = scope["path"]
    if path == MESSAGES or path.startswith(f"{MESSAGES}/"):
        return True
    is_shared = path == MODELS or path.startswith(f"{MODELS}/")
    return is_shared and any(name == VERSION for name, _ in scope["headers"])


def new_request_id() -> str:
    return f"req_{secrets.token_hex(12)}"


async def on_vivace_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, VivaceError)
    return error_response(error, request.scope)


async def on_http_error(request: Request, error: Exception) -> Response:
    """Answer a path or a method that does not exist."""
    assert isinstance(error, HTTPException)
    message = f"{request.method} {request.url.path}: {error.detail}."
    return error_response(Refusal(message, code="unknown_url", status=error.status_code), request.scope)


async def on_mistake(request: Request, error: Exception) -> Response:
    """Log and answer any other exception: this is the boundary of the HTTP routes."""
    log.error("%s %s", request.method, request.url.path, exc_info=error)
    return error_response(mistake(), request.scope)
