"""`POST /v1/responses`: a turn as server-sent events, or drained into one JSON answer.

Owns reading the body, noticing that the client has gone, and framing. Does not own the events themselves.
A client that goes away, also before the first token, interrupts its turn.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from vivace.errors import RequestRefused
from vivace.protocol.events import AnyEvent, ResponseFailed
from vivace.protocol.refusal import Refusal
from vivace.protocol.requests import MAX_BODY_BYTES, parse_create
from vivace.protocol.writer import ResponseWriter, new_response_id
from vivace.server.activity import Activity
from vivace.server.answers import error_response, json_response
from vivace.server.backends.native import NativeBackend
from vivace.server.backends.turn import Turn

STREAM_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),  # or a proxy hands the events on in lumps
]
FAILED_STATUS = {"context_length_exceeded": 400, "engine_died": 503, "could_not_start": 503}

_encode = msgspec.json.Encoder().encode


class ResponsesRoute:
    def __init__(self, backend: NativeBackend, activity: Activity) -> None:
        self._backend = backend
        self._activity = activity

    async def create(self, request: Request) -> Response:
        self._activity.touch()
        asked = parse_create(await read_body(request))
        turn = self._backend.begin(asked, new_response_id())
        if asked.stream:
            return EventStream(turn, self._activity)
        with self._activity.answering():
            async with interrupted_when_gone(turn, request.receive):
                return await drained(turn)


class EventStream(Response):
    """Sends each event the moment it is there."""

    def __init__(self, turn: Turn, activity: Activity) -> None:
        super().__init__()
        self._turn = turn
        self._activity = activity

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002
        with self._activity.answering():
            async with interrupted_when_gone(self._turn, receive):
                await send({"type": "http.response.start", "status": 200, "headers": STREAM_HEADERS})
                async for event in narrated(self._turn):
                    await send({"type": "http.response.body", "body": framed(event), "more_body": True})
                await send({"type": "http.response.body", "body": b"", "more_body": False})


async def drained(turn: Turn) -> Response:
    """The whole answer at once: the response of the terminal event."""
    last: AnyEvent | None = None
    async for event in narrated(turn):
        last = event
    assert last is not None, "a turn ends with a terminal event"
    assert last.is_terminal, last
    if isinstance(last, ResponseFailed):
        assert last.response.error is not None
        code, message = last.response.error.code, last.response.error.message
        return error_response(RequestRefused(message, code=code, status=FAILED_STATUS.get(code, 500)))
    return json_response(last.response)  # type: ignore[union-attr]


async def narrated(turn: Turn) -> AsyncIterator[AnyEvent]:
    writer = ResponseWriter(turn.request, turn.id, turn.model)
    for event in writer.begin():
        yield event
    async for outcome in turn:
        for event in writer.take(outcome):
            yield event


def framed(event: AnyEvent) -> bytes:
    name = event.__struct_config__.tag
    assert isinstance(name, str)
    return b"event: " + name.encode() + b"\ndata: " + _encode(event) + b"\n\n"


@asynccontextmanager
async def interrupted_when_gone(turn: Turn, receive: Receive) -> AsyncIterator[None]:
    """Interrupt the turn when the client goes away, and however else the block ends."""

    async def watch() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        turn.interrupt()

    watcher = asyncio.create_task(watch())
    try:
        yield
    finally:
        watcher.cancel()
        turn.interrupt()


async def read_body(request: Request) -> bytes:
    too_large = Refusal(f"A body has at most {MAX_BODY_BYTES} bytes.", code="request_too_large", status=413)
    length = request.headers.get("content-length", "0")
    if length.isdigit() and int(length) > MAX_BODY_BYTES:
        raise too_large
    body = bytearray()
    try:
        async for chunk in request.stream():
            body += chunk
            if len(body) > MAX_BODY_BYTES:
                raise too_large
    except ClientDisconnect as error:
        raise Refusal("The client went away.", code="client_gone", status=499) from error
    return bytes(body)
