"""Events over HTTP: framing, reading a body, and noticing that the client has gone.

Owns what is the same for every route that streams. Does not own the events themselves.
A client that goes away, also before the first token, interrupts its turn.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from vivace.protocol.shapes.refusal import Refusal
from vivace.protocol.shapes.requests import MAX_BODY_BYTES
from vivace.server.backends.base import Turn
from vivace.server.turns.activity import Activity

STREAM_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),  # or a proxy hands the events on in lumps
]
MAX_KEY_CHARS = 1024  # of a session
BODY_S = 30.0  # a client that sends nothing for so long in the middle of its request is given up

FAILED_STATUS = {
    "context_length_exceeded": 400,
    "invalid_request_error": 400,
    "engine_died": 503,
    "could_not_start": 503,
    "model_not_found": 404,
    "previous_response_not_found": 400,
    "rate_limit_exceeded": 429,
    "store_unavailable": 503,
    "invalid_prompt": 400,
    "insufficient_quota": 429,
    "server_is_overloaded": 503,
    "upstream_refused": 400,
    "upstream_error": 502,
    "upstream_auth": 502,
    "upstream_unreachable": 502,
    "upstream_timeout": 504,
}

_encode = msgspec.json.Encoder().encode


def framed(event: msgspec.Struct) -> bytes:
    """Return an event as a frame of that name."""
    name = event.__struct_config__.tag
    assert isinstance(name, str)
    return b"event: " + name.encode() + b"\ndata: " + _encode(event) + b"\n\n"


class FrameStream(Response):
    """Sends each frame as soon as it exists. Calls `on_gone` when the client goes away.

    With `on_gone` None nothing depends on the client: the frames are simply not read any more.
    """

    def __init__(
        self,
        frames: AsyncIterator[bytes],
        activity: Activity,
        on_gone: Callable[[], None] | None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__()
        self._frames = frames
        self._activity = activity
        self._on_gone = on_gone
        self._extra = [(name.encode(), value.encode()) for name, value in (headers or {}).items()]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002
        with self._activity.answering():
            if self._on_gone is None:
                await _while_there(self._send_all(send), receive)
            else:
                async with calling_when_gone(self._on_gone, receive):
                    await self._send_all(send)

    async def _send_all(self, send: Send) -> None:
        headers = STREAM_HEADERS + self._extra
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        async for frame in self._frames:  # to the end, also if nobody takes them: something is done there
            await send({"type": "http.response.body", "body": frame, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _while_there(work: Coroutine[Any, Any, None], receive: Receive) -> None:
    """Run the work until it is done or the client has gone."""
    tasks = [asyncio.create_task(work), asyncio.create_task(_disconnect(receive))]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
    if tasks[0].done():
        tasks[0].result()


async def _disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


@asynccontextmanager
async def calling_when_gone(on_gone: Callable[[], None], receive: Receive) -> AsyncIterator[None]:
    """Call `on_gone` when the client goes away, and however else the block ends."""

    async def watch() -> None:
        await _disconnect(receive)
        on_gone()

    watcher = asyncio.create_task(watch())
    try:
        yield
    finally:
        watcher.cancel()
        on_gone()


def interrupted_when_gone(turn: Turn, receive: Receive) -> AbstractAsyncContextManager[None]:
    """Interrupt the turn when the client goes away, and however else the block ends."""
    return calling_when_gone(lambda: leave(turn), receive)


def leave(turn: Turn) -> None:
    """Interrupt the turn of a client that has gone. Changes nothing if the turn is over."""
    note_gone(turn)
    turn.interrupt()


def note_gone(turn: Turn, reason: str = "client_gone") -> None:
    """Tell the turn's watch why the turn is about to be interrupted (see `turn_meter.ABORTS`)."""
    if turn.watch:
        turn.watch.aborting(reason)


def session_key(headers: Mapping[str, str]) -> str | None:
    """Return the key of the client's session, where a header says it: Claude Code's, opencode's."""
    given = headers.get("x-claude-code-session-id") or headers.get("x-session-id")
    return given if given and len(given) <= MAX_KEY_CHARS else None


async def read_body(request: Request) -> bytes:
    too_large = Refusal(f"A body has at most {MAX_BODY_BYTES} bytes.", code="request_too_large", status=413)
    length = request.headers.get("content-length", "0")
    if length.isdigit() and int(length) > MAX_BODY_BYTES:
        raise too_large
    kind = request.headers.get("content-type", "application/json").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise Refusal(
            f"A body of type {kind!r} is not read.",
            "Send `Content-Type: application/json`.",
            code="unsupported_media_type",
            status=415,
        )
    body = bytearray()
    try:
        async with asyncio.timeout(BODY_S) as patience:
            async for chunk in request.stream():
                patience.reschedule(asyncio.get_running_loop().time() + BODY_S)
                body += chunk
                if len(body) > MAX_BODY_BYTES:
                    raise too_large
    except TimeoutError as error:
        raise Refusal("The rest of the body did not come.", code="request_timeout", status=408) from error
    except ClientDisconnect as error:
        raise Refusal("The client went away.", code="client_gone", status=499) from error
    return bytes(body)
