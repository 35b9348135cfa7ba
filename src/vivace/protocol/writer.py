"""One turn, told as events: outcomes of a backend in, numbered events out.

Owns the order of a turn's events and that there is exactly one terminal event, the last. The same writer
serves SSE, WebSocket and the drained JSON answer. Does not own where outcomes come from or events go.
"""

import secrets
import time
from collections.abc import Generator, Iterator
from typing import Any, TypeVar

import msgspec

from vivace.protocol.events import (
    AnyEvent,
    ContentPartAdded,
    ContentPartDone,
    Event,
    Extension,
    IncompleteDetails,
    OutputItemAdded,
    OutputItemDone,
    OutputMessage,
    OutputText,
    OutputTextDelta,
    OutputTextDone,
    Response,
    ResponseCompleted,
    ResponseCreated,
    ResponseError,
    ResponseFailed,
    ResponseIncomplete,
    ResponseInProgress,
    Usage,
    Waterfall,
)
from vivace.protocol.requests import ResponseCreate

CUT_SHORT = {"length": "max_output_tokens", "interrupted": "interrupted"}


class Text(msgspec.Struct, frozen=True):
    """More of the answer."""

    delta: str


class Ended(msgspec.Struct, frozen=True):
    """The turn is over. `reason`: stop, length, interrupted, appended (prefill only) or scored."""

    reason: str
    usage: Usage
    waterfall: Waterfall
    scores: list[float] | None = None


class Broken(msgspec.Struct, frozen=True):
    """The turn is over and could not be done."""

    code: str
    message: str


Outcome = Text | Ended | Broken
Kind = TypeVar("Kind", bound=Event)


def new_response_id() -> str:
    return f"resp_{secrets.token_hex(16)}"


class ResponseWriter:
    def __init__(self, request: ResponseCreate, response_id: str, model: str) -> None:
        self._request = request
        self._id = response_id
        self._item_id = response_id.replace("resp_", "msg_", 1)
        self._model = model
        self._created_at = int(time.time())
        self._next_number = 0
        self._deltas: list[str] = []
        self._has_item = False
        self.is_over = False

    def begin(self) -> list[AnyEvent]:
        response = self._response("in_progress")
        return [
            self._event(ResponseCreated, response=response),
            self._event(ResponseInProgress, response=response),
        ]

    def take(self, outcome: Outcome) -> list[AnyEvent]:
        assert not self.is_over, "a turn ends exactly once"
        if isinstance(outcome, Text):
            return list(self._say(outcome.delta))
        self.is_over = True
        return list(self._end(outcome))

    def _say(self, delta: str) -> Iterator[AnyEvent]:
        if not self._has_item:
            yield from self._open_item()
        self._deltas.append(delta)
        yield self._event(OutputTextDelta, item_id=self._item_id, delta=delta)

    def _end(self, outcome: Ended | Broken) -> Iterator[AnyEvent]:
        if isinstance(outcome, Broken):
            output = yield from self._close_item("incomplete")
            error = ResponseError(outcome.code, outcome.message)
            yield self._event(ResponseFailed, response=self._response("failed", output=output, error=error))
            return
        reason = CUT_SHORT.get(outcome.reason)
        status = "incomplete" if reason else "completed"
        if self._request.generate and not self._has_item and not reason:
            yield from self._open_item()  # an empty answer is an answer
        output = yield from self._close_item(status)
        response = self._response(
            status,
            output=output,
            usage=outcome.usage,
            incomplete_details=IncompleteDetails(reason) if reason else None,
            scores=msgspec.UNSET if outcome.scores is None else outcome.scores,
            vivace=Extension(outcome.waterfall),
        )
        if reason:
            yield self._event(ResponseIncomplete, response=response)
        else:
            yield self._event(ResponseCompleted, response=response)

    def _open_item(self) -> Iterator[AnyEvent]:
        self._has_item = True
        yield self._event(OutputItemAdded, item=OutputMessage(self._item_id, "in_progress"))
        yield self._event(ContentPartAdded, item_id=self._item_id, part=OutputText(""))

    def _close_item(self, status: str) -> Generator[AnyEvent, None, list[OutputMessage]]:
        """Events that end the open item; gives back the response's output."""
        if not self._has_item:
            return []
        text = "".join(self._deltas)
        item = OutputMessage(self._item_id, status, [OutputText(text)])
        yield self._event(OutputTextDone, item_id=self._item_id, text=text)
        yield self._event(ContentPartDone, item_id=self._item_id, part=OutputText(text))
        yield self._event(OutputItemDone, item=item)
        return [item]

    def _event(self, kind: type[Kind], **fields: Any) -> Kind:
        number, self._next_number = self._next_number, self._next_number + 1
        return kind(sequence_number=number, **fields)

    def _response(self, status: str, **fields: Any) -> Response:
        request = self._request
        return Response(
            id=self._id,
            created_at=self._created_at,
            status=status,
            model=self._model,
            previous_response_id=request.previous_response_id,
            instructions=request.instructions,
            metadata=request.metadata or {},
            max_output_tokens=request.max_output_tokens,
            temperature=request.temperature or 0.0,
            top_p=1.0 if request.top_p is None else request.top_p,
            store=request.store is not False,
            **fields,
        )
