"""One turn, written as events: outcomes of a backend in, numbered events out.

Owns the order of a turn's events and that there is exactly one terminal event, the last. The same writer
serves SSE, WebSocket and the drained JSON answer. Does not own where outcomes come from or events go.

An item is closed as soon as it is whole, and another begins. A call that never ended is sent as text, so
that no client runs half a command. Clients cannot take back an item of a completed response. So a call that
may turn out to be malformed is sent when it is whole, and a response in which a call was sent and turned out
to be none is incomplete.
"""

import secrets
import time
from collections.abc import Iterator
from typing import Any, TypeVar

import msgspec

from vivace.protocol.shapes.events import (
    AnyEvent,
    CustomToolCall,
    Event,
    Extension,
    FunctionCall,
    IncompleteDetails,
    OutputItem,
    OutputItemInterrupted,
    Place,
    Response,
    ResponseCompleted,
    ResponseCreated,
    ResponseError,
    ResponseFailed,
    ResponseIncomplete,
    ResponseInProgress,
    ResponseQueued,
    WaitProgress,
)
from vivace.protocol.shapes.outcomes import (
    Broken,
    CallBegun,
    CallDelta,
    CallDone,
    CallInvalid,
    Ended,
    ModelProgress,
    Outcome,
    Queued,
    ReasoningDelta,
    Started,
    TextDelta,
    TextOutcome,
)
from vivace.protocol.shapes.requests import ResponseCreate
from vivace.protocol.writing.open_item import (
    DeltaTemplate,
    Draft,
    HeldCall,
    OpenCall,
    OpenItem,
    OpenMessage,
    OpenReasoning,
)

CUT_SHORT = {
    "length": "max_output_tokens",
    "interrupted": "interrupted",
    "steered": "steered",
    "content_filter": "content_filter",  # of an upstream
}

SILENT_DELTAS = 256  # of a call that is held back; clients give up after minutes without an event

Kind = TypeVar("Kind", bound=Event)


def new_response_id() -> str:
    return f"resp_{secrets.token_hex(16)}"


class Numbering:
    """The numbers of one response's events. They go on after its end, for the events of its steers."""

    def __init__(self, stream_id: str | None = None) -> None:
        self.stream_id: str | msgspec.UnsetType = msgspec.UNSET if stream_id is None else stream_id
        self.count = 0  # of events so far, and the number of the next one

    def number(self, kind: type[Kind], **fields: Any) -> Kind:
        """Return an event of this response with the next number."""
        number, self.count = self.count, self.count + 1
        return kind(sequence_number=number, stream_id=self.stream_id, **fields)


class ResponseWriter:
    def __init__(
        self,
        request: ResponseCreate,
        response_id: str,
        model: str,
        *,
        stream_id: str | None = None,
        is_discarding: bool = False,
    ) -> None:
        self._request = request
        self._id = response_id
        self._model = model
        self.numbering = Numbering(stream_id)
        self.number = self.numbering.number
        self._created_at = int(time.time())
        self._open: OpenItem | None = None
        self._template: DeltaTemplate | None = None  # of the open item, from its second delta on
        self._held: HeldCall | None = None  # instead of an open item
        self._has_half_call = False  # one was sent, and never became whole
        self._output: list[OutputItem] = []
        self._count = 0  # of items ever opened: their indices
        self.is_discarding = is_discarding  # an item that an interrupt cuts off is no part of the response
        self.is_over = False

    @property
    def calls(self) -> list[FunctionCall | CustomToolCall]:
        """Return the calls that the client is to answer."""
        return [item for item in self._output if isinstance(item, FunctionCall | CustomToolCall)]

    def begin(self, place: Queued | None = None) -> list[AnyEvent]:
        """Return the first events: created, then in progress or queued."""
        created = self.number(ResponseCreated, response=self.response("queued" if place else "in_progress"))
        return [created, self._waiting(place) if place else self._going()]

    def write(self, outcome: Outcome) -> list[AnyEvent]:
        """Return the events of an outcome."""
        assert not self.is_over, "a turn ends exactly once"
        events = list(self._events_of(outcome))
        self.is_over = isinstance(outcome, Ended | Broken)
        return events

    def encode_delta(self, outcome: TextOutcome) -> bytes | None:
        """Return the JSON of the next event if `outcome` goes on with the open item, and None if not.

        None changes nothing: then `write` makes the events.
        """
        item, numbering = self._open, self.numbering
        if item is None or type(outcome) is not item.grows_by:
            return None
        if isinstance(outcome, TextDelta) and outcome.logprobs:
            return None
        if self._template is None:
            self._template = DeltaTemplate(item.grown(""), numbering.stream_id)
        item.deltas.append(outcome.delta)
        number, numbering.count = numbering.count, numbering.count + 1
        return self._template.fill(number, outcome.delta)

    def response(self, status: str, **fields: Any) -> Response:
        """Return the response as it stands."""
        request = self._request
        text = request.text and msgspec.to_builtins(request.text)
        reasoning = request.reasoning and msgspec.to_builtins(request.reasoning)
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
            top_logprobs=request.top_logprobs or 0,
            store=request.is_stored,
            background=bool(request.background),
            parallel_tool_calls=request.parallel_tool_calls is not False,
            tool_choice=request.tool_choice or "auto",
            tools=request.tools or [],
            text={"format": {"type": "text"}} | (text or {}),
            reasoning={"effort": None, "summary": None} | (reasoning or {}),
            truncation=request.truncation or "disabled",
            service_tier=request.service_tier or "default",
            prompt_cache_key=request.prompt_cache_key,
            **fields,
        )

    def _waiting(self, place: Queued) -> AnyEvent:
        extension = Extension(queue=Place(place.position, place.estimate_s))
        return self.number(ResponseQueued, response=self.response("queued", vivace=extension))

    def _moved(self, place: Queued) -> AnyEvent:
        """Give the event of a new place in the queue.

        It leaves out what was asked, which may be megabytes and was sent at the beginning: everyone in the
        queue gets one whenever somebody leaves.
        """
        extension = Extension(queue=Place(place.position, place.estimate_s))
        return self.number(ResponseQueued, response=self._short("queued", extension))

    def _waiting_for(self, progress: WaitProgress) -> AnyEvent:
        extension = Extension(progress=progress)
        return self.number(ResponseInProgress, response=self._short("in_progress", extension))

    def _short(self, status: str, extension: Extension) -> Response:
        """Return the response without what was asked: for events that come often."""
        whole = self.response(status, vivace=extension)
        return msgspec.structs.replace(whole, instructions=None, tools=[], text=None)

    def _going(self) -> AnyEvent:
        return self.number(ResponseInProgress, response=self.response("in_progress"))

    def _events_of(self, outcome: Outcome) -> Iterator[AnyEvent]:
        match outcome:
            case TextDelta(delta=delta, logprobs=logprobs):
                message = yield from self._as(OpenMessage, "msg")
                yield self._numbered(message.grown(delta, logprobs))
            case ReasoningDelta(delta=delta):
                reasoning = yield from self._as(OpenReasoning, "rs")
                yield self._numbered(reasoning.grown(delta))
            case CallBegun():
                yield from self._open_call(outcome)
            case CallDelta(delta=delta):
                if self._held:
                    self._held.deltas.append(delta)
                    if len(self._held.deltas) % SILENT_DELTAS == 0:
                        yield self._going()
                else:
                    assert isinstance(self._open, OpenCall), "no call is open"
                    yield self._numbered(self._open.grown(delta))
            case CallDone():
                yield from self._tell_held()
                yield from self._close("completed", is_whole=True)
            case CallInvalid(text=text):
                yield from self._lose(text)
            case Queued():
                yield self._moved(outcome)
            case ModelProgress(progress=progress):
                yield self._waiting_for(progress)
            case Started():
                yield self._going()
            case Ended():
                yield from self._end(outcome)
            case Broken(code=code, message=words):
                yield from self._close("incomplete")
                error = ResponseError(code, words)
                yield self.number(
                    ResponseFailed, response=self.response("failed", output=self._output, error=error)
                )

    def _end(self, outcome: Ended) -> Iterator[AnyEvent]:
        if isinstance(self._open, OpenCall):
            yield from self._close("incomplete")
        is_half = self._has_half_call and outcome.reason == "stop"
        reason = CUT_SHORT.get("length" if is_half else outcome.reason)  # half an answer must not look whole
        status = "incomplete" if reason else "completed"
        if outcome.reason == "cancelled":
            status = "cancelled"
        yield from self._close("completed" if status == "completed" else "incomplete")
        if self._request.is_generating and not self._output and status == "completed":
            yield from self._as(OpenMessage, "msg")  # an empty answer is an answer
            yield from self._close("completed")
        response = self.response(
            status,
            output=self._output,
            usage=outcome.usage,
            incomplete_details=IncompleteDetails(reason) if reason else None,
            scores=msgspec.UNSET if outcome.scores is None else outcome.scores,
            vivace=Extension(outcome.waterfall),
        )
        if status == "completed":
            yield self.number(ResponseCompleted, response=response)
        else:
            yield self.number(ResponseIncomplete, response=response)

    def _as(self, kind: Any, prefix: str) -> Any:
        """Return the open item if it is of this kind. Else close it as complete, and return a new one."""
        if not isinstance(self._open, kind):
            yield from self._close("completed")
            yield from self._add(kind(self._new_id(prefix), self._count))
        return self._open

    def _open_call(self, call: CallBegun) -> Iterator[AnyEvent]:
        yield from self._close("completed")
        if call.is_sure:
            yield from self._tell_call(call)
        else:
            self._held = HeldCall(call)

    def _tell_held(self) -> Iterator[AnyEvent]:
        """Send the call that was held back, if there is one: it is certain now that it is a call."""
        held, self._held = self._held, None
        if held:
            yield from self._tell_call(held.call)
            if arguments := "".join(held.deltas):
                yield from self._events_of(CallDelta(arguments))

    def _tell_call(self, call: CallBegun) -> Iterator[AnyEvent]:
        item_id = self._new_id("ctc" if call.is_custom else "fc")
        call_id = call.call_id or f"call_{secrets.token_hex(12)}"
        yield from self._add(OpenCall(item_id, self._count, call, call_id))

    def _add(self, item: OpenItem) -> Iterator[AnyEvent]:
        self._open, self._template = item, None
        self._count += 1
        yield from map(self._numbered, item.opened())

    def _close(self, status: str, *, is_whole: bool = False) -> Iterator[AnyEvent]:
        """End the open item, if there is one. A call counts only if it is whole."""
        item, self._open, self._held = self._open, None, None
        if item is None:
            return
        is_half = isinstance(item, OpenCall) and not is_whole
        self._has_half_call |= is_half
        if is_half or (self.is_discarding and status != "completed"):
            at = {"response_id": self._id, "item_id": item.id, "output_index": self._count - 1}
            yield self.number(OutputItemInterrupted, **at)
            return
        yield from map(self._numbered, item.closed(status))
        self._output.append(item.item(status))

    def _lose(self, text: str) -> Iterator[AnyEvent]:
        """Give up the call that was held back or begun: it was text."""
        if self._held or isinstance(self._open, OpenCall):
            yield from self._close("incomplete")
        if text:
            yield from self._events_of(TextDelta(text))

    def _numbered(self, draft: Draft) -> Any:
        kind, fields = draft
        return self.number(kind, **fields)

    def _new_id(self, prefix: str) -> str:
        stem = self._id.removeprefix("resp_")
        return f"{prefix}_{stem}{self._count:02x}" if self._count else f"{prefix}_{stem}"
