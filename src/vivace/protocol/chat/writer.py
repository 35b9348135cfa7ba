"""One turn as a chat completion: outcomes of a backend in, chunks out, or all of them as one answer.

Owns the order of the chunks, and that the answer is the chunks put together. Does not own the shapes
(`answer`) or how long a client may wait.

A tool call is held back until it is whole. Many clients repair arguments that were cut off and run the
result, so half a command must never reach them: a malformed call is sent as text, and an answer that ends
within a call has the `finish_reason` length.
"""

import secrets
import time
from collections.abc import Iterator
from typing import Any

from msgspec import UNSET, UnsetType

from vivace.protocol.chat.answer import (
    ChatChoice,
    ChatCompletion,
    ChatMessage,
    Chunk,
    ChunkChoice,
    Custom,
    Delta,
    Function,
    Logprobs,
    ToolCall,
    usage_of,
)
from vivace.protocol.shapes.events import Extension
from vivace.protocol.shapes.outcomes import (
    Broken,
    CallBegun,
    CallDelta,
    CallDone,
    CallInvalid,
    Ended,
    Outcome,
    ReasoningDelta,
    TextDelta,
)
from vivace.protocol.shapes.requests import ResponseCreate


class ChatWriter:
    def __init__(
        self, request: ResponseCreate, response_id: str, model: str, *, has_usage_chunk: bool = False
    ) -> None:
        self._request = request
        self._id = f"chatcmpl-{response_id.removeprefix('resp_')}"
        self.model = model
        self._created = int(time.time())
        self._has_usage_chunk = has_usage_chunk
        self._texts: list[str] = []
        self._thoughts: list[str] = []
        self._logprobs: list[Any] = []
        self._calls: list[ToolCall] = []
        self._open: CallBegun | None = None
        self._held: list[str] = []  # of the open call
        self._is_lost = False  # what was said last is a call that did not become one
        self._finish_reason = ""
        self._end: Ended | None = None
        self.is_over = False

    def begin(self) -> list[Chunk]:
        """Return the first chunk."""
        return [self._chunk(Delta(role="assistant", content=None))]

    def write(self, outcome: Outcome) -> list[Chunk]:
        """Return the chunks of an outcome. A turn that broke has none: the transport sends the error."""
        assert not self.is_over, "a turn ends exactly once"
        self.is_over = isinstance(outcome, Ended | Broken)
        return list(self._chunks_of(outcome))

    def completion(self) -> ChatCompletion:
        """Return the whole answer, once it has ended well."""
        assert self._end is not None, "only a turn that ended has an answer"
        message = ChatMessage(
            content="".join(self._texts) if self._texts else None,
            reasoning_content="".join(self._thoughts) if self._thoughts else UNSET,
            tool_calls=self._calls or UNSET,
        )
        logprobs = Logprobs(self._logprobs) if self._logprobs else None
        return ChatCompletion(
            id=self._id,
            created=self._created,
            model=self.model,
            choices=[ChatChoice(message, self._finish_reason, logprobs)],
            usage=usage_of(self._end.usage),
            service_tier=self._request.service_tier or "default",
            vivace=Extension(self._end.waterfall),
        )

    def _chunks_of(self, outcome: Outcome) -> Iterator[Chunk]:
        match outcome:
            case TextDelta(delta=delta, logprobs=logprobs):
                yield from self._say(delta, logprobs)
            case ReasoningDelta(delta=delta):
                self._drop_call()
                self._thoughts.append(delta)
                yield self._chunk(Delta(reasoning_content=delta))
            case CallBegun():
                self._drop_call()
                self._open = outcome
            case CallDelta(delta=delta):
                assert self._open is not None, "no call is open"
                self._held.append(delta)
            case CallDone():
                yield from self._call()
            case CallInvalid(text=text):
                yield from self._say(text)
                self._is_lost = True
            case Ended():
                yield from self._finish(outcome)

    def _say(self, delta: str, logprobs: list[Any] | None = None) -> Iterator[Chunk]:
        self._drop_call()
        if delta or logprobs:
            self._texts.append(delta)
            self._logprobs += logprobs or ()
            yield self._chunk(Delta(content=delta), logprobs=Logprobs(logprobs) if logprobs else None)

    def _call(self) -> Iterator[Chunk]:
        """Give the chunks of a whole call: two parts, as clients expect them."""
        call, words = self._open, "".join(self._held)
        assert call is not None, "no call is open"
        self._drop_call()
        index = len(self._calls)
        call_id = call.call_id or f"call_{secrets.token_hex(12)}"
        if call.is_custom:
            whole = ToolCall(id=call_id, type="custom", custom=Custom(words, call.name))
            first = ToolCall(index=index, id=call_id, type="custom", custom=Custom("", call.name))
            rest = ToolCall(index=index, custom=Custom(words))
        else:
            words = words or "{}"  # clients parse them, also where there are none
            whole = ToolCall(id=call_id, type="function", function=Function(words, call.name))
            first = ToolCall(index=index, id=call_id, type="function", function=Function("", call.name))
            rest = ToolCall(index=index, function=Function(words))
        self._calls.append(whole)
        yield self._chunk(Delta(tool_calls=[first]))
        yield self._chunk(Delta(tool_calls=[rest]))

    def _drop_call(self) -> None:
        """Drop an open call, since something else follows."""
        self._open, self._held, self._is_lost = None, [], False

    def _finish(self, end: Ended) -> Iterator[Chunk]:
        self._end = end
        self._finish_reason = self._reason(end)
        if not self._texts and not self._calls:
            self._texts.append("")  # an empty answer is an answer
            yield self._chunk(Delta(content=""))
        extension = Extension(end.waterfall)
        yield self._chunk(Delta(), finish_reason=self._finish_reason, vivace=extension)
        if self._has_usage_chunk:
            yield Chunk(
                id=self._id, created=self._created, model=self.model, choices=[], usage=usage_of(end.usage)
            )

    def _reason(self, end: Ended) -> str:
        is_cut = self._open is not None or (self._is_lost and end.reason != "stop")
        if end.reason in ("length", "interrupted") or is_cut:  # half an answer must not look whole
            return "length"
        return "tool_calls" if self._calls and end.reason == "stop" else "stop"

    def _chunk(
        self,
        delta: Delta,
        *,
        finish_reason: str | None = None,
        logprobs: Logprobs | None = None,
        vivace: Extension | UnsetType = UNSET,
    ) -> Chunk:
        return Chunk(
            id=self._id,
            created=self._created,
            model=self.model,
            choices=[ChunkChoice(delta, finish_reason, logprobs)],
            usage=None if self._has_usage_chunk else UNSET,
            vivace=vivace,
        )
