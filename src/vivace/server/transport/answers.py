"""JSON answers: msgspec out, and every error in the one shape.

Owns turning values and errors into HTTP responses. Does not own which error means what (`protocol.refusal`).
"""

import logging
from collections.abc import Mapping
from typing import Any

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from vivace.errors import VivaceError
from vivace.protocol.shapes.refusal import ErrorAnswer, Refusal, body_of, mistake, status_of

log = logging.getLogger(__name__)


def json_response(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    return Response(msgspec.json.encode(value), status, headers, "application/json")


def error_response(error: VivaceError) -> Response:
    headers: dict[str, str] = dict(getattr(error, "headers", {}))
    if status_of(error) == 401:
        headers["www-authenticate"] = "Bearer"
    answer = msgspec.json.encode(ErrorAnswer(body_of(error)))
    return Response(answer, status_of(error), headers, "application/json")


async def on_vivace_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, VivaceError)
    return error_response(error)


async def on_http_error(request: Request, error: Exception) -> Response:
    """Answer a path or a method that does not exist."""
    assert isinstance(error, HTTPException)
    message = f"{request.method} {request.url.path}: {error.detail}."
    return error_response(Refusal(message, code="unknown_url", status=error.status_code))


async def on_mistake(request: Request, error: Exception) -> Response:
    """Log and answer any other exception: this is the boundary of the HTTP routes."""
    log.error("%s %s", request.method, request.url.path, exc_info=error)
    return error_response(mistake())
