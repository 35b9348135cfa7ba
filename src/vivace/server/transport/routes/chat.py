"""`POST /v1/chat/completions`: a turn as chunks in server-sent events, or drained into one JSON answer.

Owns what a stream has besides chunks: comments while it waits, and the `[DONE]` that marks a whole answer.
Does not own the chunks (`protocol/chat/writer.py`), nor the stream itself (`turn_stream`).
"""

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any, Protocol

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from vivace.errors import VivaceError
from vivace.protocol.chat.requests import in_chat_words, parse_chat
from vivace.protocol.chat.writer import ChatWriter
from vivace.protocol.shapes.events import ResponseFailed, Terminal
from vivace.protocol.shapes.outcomes import Broken, Ended, ModelProgress, Outcome, Queued
from vivace.protocol.shapes.refusal import ErrorAnswer, Refusal, body_of
from vivace.protocol.writing.writer import ResponseWriter
from vivace.server.backends.base import Turn
from vivace.server.transport.access.auth import caller_of
from vivace.server.transport.answers import json_response
from vivace.server.transport.parsing import parsed
from vivace.server.transport.sse import interrupted_when_gone, read_body, session_key
from vivace.server.transport.turn_stream import PATIENCE_S, Begin, TurnStream, drained
from vivace.server.turns.activity import Activity

log = logging.getLogger(__name__)

BEAT_S = 15.0  # no timeout of a client's or a proxy's is shorter
BEAT = b": still here\n\n"
DONE = b"data: [DONE]\n\n"

Commit = Callable[[Turn, Terminal], Awaitable[Terminal]]

_encode = msgspec.json.Encoder().encode


class AnswerWriter(Protocol):
    """Makes the chunks of an answer: of a chat completion or of a text completion."""

    is_over: bool

    def begin(self) -> Sequence[Any]: ...

    def write(self, outcome: Outcome) -> Sequence[Any]: ...


class ChatFrames:
    """The chunks of an answer, of a chat completion or of a text completion, and comments in between."""

    def __init__(self, writer: AnswerWriter) -> None:
        self._writer = writer

    @property
    def is_over(self) -> bool:
        return self._writer.is_over

    def begin(self, place: Queued | None) -> bytes:
        frame = _framed(*self._writer.begin())
        return frame + _queue_comment(place) if place else frame

    def frame(self, outcome: Outcome) -> bytes:
        frame = _framed(*self._writer.write(outcome))
        match outcome:
            case Queued():
                return _queue_comment(outcome)
            case ModelProgress(progress=progress):
                return f": {progress.stage} {progress.model}, {progress.amount}\n\n".encode()
            case Ended():
                return frame + DONE
        return frame

    def beat(self) -> bytes:
        return BEAT

    def error(self, error: VivaceError) -> bytes:
        return _framed(ErrorAnswer(body_of(error)))


class ChatRoute:
    def __init__(
        self,
        begin: Begin,
        activity: Activity,
        commit: Commit | None = None,  # without it nothing is stored
        *,
        patience_s: float = PATIENCE_S,
        beat_s: float = BEAT_S,
    ) -> None:
        self._begin = begin
        self._activity = activity
        self._commit = commit
        self._patience_s = patience_s
        self._beat_s = beat_s

    async def create(self, request: Request) -> Response:
        self._activity.touch()
        asked = await parsed(parse_chat, await read_body(request))
        asked.create.store = asked.create.store and self._commit is not None
        asked.create.prompt_cache_key = asked.create.prompt_cache_key or session_key(request.headers)
        try:
            admitted = await self._begin(asked.create, caller_of(request))
        except Refusal as refusal:
            raise in_chat_words(refusal) from None
        turn = admitted.turn
        writer = ChatWriter(turn.request, turn.id, turn.model, has_usage_chunk=asked.has_usage_chunk)
        commit = self._commit if asked.create.store else None
        outcomes = _stored_first(turn, commit) if commit else turn.outcomes()
        if asked.create.stream:
            return TurnStream(
                admitted,
                outcomes,
                ChatFrames(writer),
                self._activity,
                patience_s=self._patience_s,
                beat_s=self._beat_s,
            )
        with self._activity.answering():
            async with interrupted_when_gone(turn, request.receive):
                refused = await drained(outcomes, writer, request.scope)
                return refused or json_response(writer.completion(), headers=admitted.headers)


async def _stored_first(turn: Turn, commit: Commit) -> AsyncIterator[Outcome]:
    """Give the same outcomes, the last one once the response is stored; `Broken` if it cannot be."""
    writer = ResponseWriter(turn.request, turn.id, turn.model)
    writer.begin(turn.place)
    async for outcome in turn.outcomes():
        events = writer.write(outcome)
        if writer.is_over:
            last = events[-1]
            assert isinstance(last, Terminal), last
            last = await commit(turn, last)
            if isinstance(last, ResponseFailed) and last.response.error:
                yield Broken(last.response.error.code, last.response.error.message)
                return
        yield outcome


def _framed(*values: Any) -> bytes:
    return b"".join(b"data: " + _encode(value) + b"\n\n" for value in values)


def _queue_comment(place: Queued) -> bytes:
    """Return the place in the queue as a comment, since chat has no event for it."""
    return b": queued, place %d, about %.1f s\n\n" % (place.position, place.estimate_s)
