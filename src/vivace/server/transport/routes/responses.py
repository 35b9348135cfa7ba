"""`/v1/responses` over HTTP: create as events or as one JSON answer, and everything about stored responses.

Owns the routes. Does not own turns (`service`), background ones (`background`) or framing (`sse`).
"""

from collections.abc import AsyncIterator, Mapping

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Scope

from vivace.errors import RequestRefused
from vivace.protocol.shapes.events import AnyEvent, ResponseFailed, Terminal
from vivace.protocol.shapes.parsing import parse_create
from vivace.protocol.shapes.refusal import Refusal
from vivace.server.backends.base import Turn
from vivace.server.caller import Caller
from vivace.server.store.base import Record
from vivace.server.transport.access.auth import caller_of
from vivace.server.transport.answers import error_response, json_response
from vivace.server.transport.parsing import parsed
from vivace.server.transport.sse import (
    FAILED_STATUS,
    FrameStream,
    framed,
    interrupted_when_gone,
    leave,
    read_body,
)
from vivace.server.turns.activity import Activity
from vivace.server.turns.background import BackgroundResponses
from vivace.server.turns.response_events import response_events
from vivace.server.turns.service import TurnService

MAX_PAGE = 100


class ResponsesRoute:
    def __init__(self, service: TurnService, backgrounds: BackgroundResponses, activity: Activity) -> None:
        self._service = service
        self._backgrounds = backgrounds
        self._activity = activity

    async def create(self, request: Request) -> Response:
        self._activity.touch()
        asked = await parsed(parse_create, await read_body(request))
        if asked.stream_id is not None:
            raise Refusal("Lanes are for WebSockets.", code="unsupported_parameter", param="stream_id")
        admitted = await self._service.begin(asked, caller_of(request))
        turn, headers = admitted.turn, admitted.headers
        if asked.background:
            live = await self._backgrounds.begin(turn)
            if asked.stream:
                return FrameStream(live.frames(), self._activity, None, headers)
            return json_response(live.response, headers=headers)
        if asked.stream:
            frames = _frames(response_events(self._service, turn))
            return FrameStream(frames, self._activity, lambda: leave(turn), headers)
        with self._activity.answering():
            async with interrupted_when_gone(turn, request.receive):
                return await _drained(self._service, turn, headers, request.scope)

    async def retrieve(self, request: Request) -> Response:
        """Answer with the response, or with its events after `starting_after` if `stream=true`."""
        response_id, caller = request.path_params["response_id"], caller_of(request)
        live = self._backgrounds.get(response_id, caller)
        if request.query_params.get("stream") == "true":
            after = _number(request, "starting_after", -1)
            if live:
                return FrameStream(live.frames(after), self._activity, None)
            record = await self._record(response_id, caller)
            if not record.events:
                raise Refusal(
                    "Only a background response that was created with stream: true can be streamed again.",
                    code="invalid_value",
                    param="stream",
                )
            return FrameStream(_stored_frames(record, after), self._activity, None)
        if live:
            return json_response(live.response)
        record = await self._record(response_id, caller)
        return Response(record.response, media_type="application/json")

    async def delete(self, request: Request) -> Response:
        response_id, caller = request.path_params["response_id"], caller_of(request)
        live = self._backgrounds.get(response_id, caller)
        if live:
            await live.cancel()
            self._backgrounds.drop(live)
        if not await self._service.library.delete(response_id, caller):
            raise _unknown(response_id)
        return json_response({"id": response_id, "object": "response", "deleted": True})

    async def cancel(self, request: Request) -> Response:
        """Cancel a background response. Any other ends with its connection."""
        response_id, caller = request.path_params["response_id"], caller_of(request)
        live = self._backgrounds.get(response_id, caller)
        if live is None:
            record = await self._record(response_id, caller)
            if not msgspec.json.decode(record.response).get("background"):
                raise Refusal(
                    "Only a background response can be cancelled by its id.",
                    "Any other ends when its connection is closed, or with `response.cancel` on its socket.",
                    code="invalid_value",
                    param="response_id",
                )
            return Response(record.response, media_type="application/json")
        await live.cancel()
        return json_response(live.response)

    async def input_items(self, request: Request) -> Response:
        """List the items before the response's output, newest first unless asked otherwise."""
        response_id, caller = request.path_params["response_id"], caller_of(request)
        record = await self._record(response_id, caller)
        items = await self._service.library.inputs(record)
        order = request.query_params.get("order", "desc")
        if order not in ("asc", "desc"):
            raise Refusal("order is asc or desc.", code="invalid_value", param="order")
        if order == "desc":
            items.reverse()
        ids = [item["id"] for item in items]
        if after := request.query_params.get("after"):
            if after not in ids:
                raise Refusal(f"There is no item {after} here.", code="invalid_value", param="after")
            items = items[ids.index(after) + 1 :]
        limit = max(1, min(_number(request, "limit", 20), MAX_PAGE))
        page = items[:limit]
        return json_response(
            {
                "object": "list",
                "data": page,
                "first_id": page[0]["id"] if page else None,
                "last_id": page[-1]["id"] if page else None,
                "has_more": len(items) > limit,
            }
        )

    async def _record(self, response_id: str, caller: Caller) -> Record:
        record = await self._service.library.store.get(response_id, caller.tenant)
        if record is None:
            raise _unknown(response_id)
        return record


async def _drained(service: TurnService, turn: Turn, headers: Mapping[str, str], scope: Scope) -> Response:
    """Return the whole answer at once: the response of the terminal event."""
    last: AnyEvent | None = None
    async for event in response_events(service, turn):
        last = event
    assert isinstance(last, Terminal), "a turn ends with a terminal event"
    if isinstance(last, ResponseFailed):
        assert last.response.error is not None
        code, message = last.response.error.code, last.response.error.message
        return error_response(RequestRefused(message, code=code, status=FAILED_STATUS.get(code, 500)), scope)
    return json_response(last.response, headers=headers)


async def _frames(events: AsyncIterator[AnyEvent]) -> AsyncIterator[bytes]:
    async for event in events:
        yield framed(event)


async def _stored_frames(record: Record, after: int) -> AsyncIterator[bytes]:
    for line in record.events.splitlines():
        event = msgspec.json.decode(line)
        if event["sequence_number"] > after:
            yield b"event: " + event["type"].encode() + b"\ndata: " + line + b"\n\n"


def _number(request: Request, name: str, default: int) -> int:
    given = request.query_params.get(name)
    if given is None:
        return default
    if not given.isdecimal() or len(given) > 9:
        raise Refusal(f"{name} must be a number.", code="invalid_value", param=name)
    return int(given)


def _unknown(response_id: str) -> Refusal:
    return Refusal(
        f"There is no response {response_id} here.",
        code="response_not_found",
        status=404,
        param="response_id",
    )
