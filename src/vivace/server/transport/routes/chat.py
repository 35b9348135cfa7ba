"""`POST /v1/chat/completions`: a turn as chunks in server-sent events, or drained into one JSON answer.

Owns how a turn is sent over HTTP. A turn that breaks is a status if nothing was sent yet, else an error in
the stream, without the `[DONE]` that marks a whole answer. A comment is sent when there was nothing else for
a while: a held call, a long prefill, the queue. Does not own the chunks (`protocol/chat/writer.py`).
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any, Protocol

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from vivace.errors import RequestRefused
from vivace.protocol.chat.requests import in_chat_words, parse_chat
from vivace.protocol.chat.writer import ChatWriter
from vivace.protocol.shapes.events import ResponseFailed, Terminal
from vivace.protocol.shapes.outcomes import Broken, Ended, ModelProgress, Outcome, Queued, Started
from vivace.protocol.shapes.refusal import ErrorAnswer, Refusal, body_of, mistake
from vivace.protocol.shapes.requests import ResponseCreate
from vivace.protocol.writing.writer import ResponseWriter
from vivace.server.backends.base import Turn
from vivace.server.caller import Caller
from vivace.server.transport.access.auth import caller_of
from vivace.server.transport.answers import error_response, json_response
from vivace.server.transport.parsing import parsed
from vivace.server.transport.sse import FAILED_STATUS, FrameStream, interrupted_when_gone, read_body
from vivace.server.turns.activity import Activity
from vivace.server.turns.service import Admitted

log = logging.getLogger(__name__)

PATIENCE_S = 2.0  # for the first text; until then an error can still be a status
BEAT_S = 15.0  # no timeout of a client's or a proxy's is shorter
BEAT = b": still here\n\n"
DONE = b"data: [DONE]\n\n"

Begin = Callable[[ResponseCreate, Caller], Awaitable[Admitted]]
Commit = Callable[[Turn, Terminal], Awaitable[Terminal]]

_encode = msgspec.json.Encoder().encode


class AnswerWriter(Protocol):
    """Makes the chunks of an answer: of a chat completion or of a text completion."""

    is_over: bool

    def begin(self) -> Sequence[Any]: ...

    def write(self, outcome: Outcome) -> Sequence[Any]: ...


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
        try:
            admitted = await self._begin(asked.create, caller_of(request))
        except Refusal as refusal:
            raise in_chat_words(refusal) from None
        turn = admitted.turn
        writer = ChatWriter(turn.request, turn.id, turn.model, has_usage_chunk=asked.has_usage_chunk)
        commit = self._commit if asked.create.store else None
        outcomes = _stored_first(turn, commit) if commit else turn.outcomes()
        if asked.create.stream:
            return ChatStream(admitted, outcomes, writer, self._activity, self._patience_s, self._beat_s)
        with self._activity.answering():
            async with interrupted_when_gone(turn, request.receive):
                refused = await drained(outcomes, writer)
                return refused or json_response(writer.completion(), headers=admitted.headers)


class ChatStream(Response):
    """Sends each chunk as soon as it exists."""

    def __init__(
        self,
        admitted: Admitted,
        outcomes: AsyncIterator[Outcome],
        writer: AnswerWriter,
        activity: Activity,
        patience_s: float,
        beat_s: float,
    ) -> None:
        super().__init__()
        self._turn, self._rate_headers = admitted.turn, admitted.headers
        self._listener = Listener(outcomes)
        self._writer = writer
        self._activity = activity
        self._patience_s = patience_s
        self._beat_s = beat_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            with self._activity.answering():
                async with interrupted_when_gone(self._turn, receive):
                    opening = await self._opening()
                    if opening and isinstance(opening[-1], Broken):
                        response = error_response(_error_of(opening[-1]))
                    else:
                        response = self._stream(opening)
                    await response(scope, receive, send)
        finally:
            self._listener.close()

    def _stream(self, opening: list[Outcome]) -> Response:
        nobody = Activity()  # it is counted already
        return FrameStream(self._frames(opening), nobody, lambda: None, self._rate_headers)

    async def _opening(self) -> list[Outcome]:
        """Return the outcomes up to the first text, as far as they come soon."""
        loop = asyncio.get_running_loop()
        end = loop.time() + self._patience_s
        opening: list[Outcome] = []
        while not opening or isinstance(opening[-1], Queued | ModelProgress | Started):
            outcome = await self._listener.next(end - loop.time())
            if outcome is None:
                break
            opening.append(outcome)
        return opening

    async def _frames(self, opening: list[Outcome]) -> AsyncIterator[bytes]:
        """Give the frames. This is the boundary of a stream: errors are logged and answered."""
        try:
            yield _framed(*self._writer.begin())
            if self._turn.place:
                yield _queue_comment(self._turn.place)
            if frame := b"".join(map(self._frame, opening)):
                yield frame
            loop = asyncio.get_running_loop()
            sent_at = loop.time()
            while not self._writer.is_over:
                heard = await self._listener.next(sent_at + self._beat_s - loop.time())
                if frame := BEAT if heard is None else self._frame(heard):
                    yield frame
                    sent_at = loop.time()
        except Exception:
            log.exception("%s failed", self._turn.id)
            yield _framed(ErrorAnswer(body_of(mistake())))

    def _frame(self, outcome: Outcome) -> bytes:
        frame = _framed(*self._writer.write(outcome))
        match outcome:
            case Queued():
                return _queue_comment(outcome)
            case ModelProgress(progress=progress):
                return f": {progress.stage} {progress.model}, {progress.amount}\n\n".encode()
            case Broken():
                return _framed(ErrorAnswer(body_of(_error_of(outcome))))
            case Ended():
                return frame + DONE
        return frame


class Listener:
    """A turn's outcomes, for a reader that waits only for a limited time."""

    def __init__(self, outcomes: AsyncIterator[Outcome]) -> None:
        self._outcomes = outcomes
        self._coming: asyncio.Future[Outcome] | None = None

    async def next(self, within_s: float) -> Outcome | None:
        """Return the next outcome, or None if none comes in time; the next call then waits on for it."""
        # Not `wait_for`: cancelling what it awaits would end the turn's generator.
        self._coming = self._coming or asyncio.ensure_future(anext(self._outcomes))
        await asyncio.wait({self._coming}, timeout=max(0.0, within_s))
        if not self._coming.done():
            return None
        outcome, self._coming = self._coming.result(), None
        return outcome

    def close(self) -> None:
        if self._coming:
            self._coming.cancel()


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


async def drained(outcomes: AsyncIterator[Outcome], writer: AnswerWriter) -> Response | None:
    """Write all outcomes. Return the answer to a turn that broke; None: the writer has the whole answer."""
    async for outcome in outcomes:
        if isinstance(outcome, Broken):
            return error_response(_error_of(outcome))
        writer.write(outcome)
    return None


def _error_of(broken: Broken) -> RequestRefused:
    return RequestRefused(broken.message, code=broken.code, status=FAILED_STATUS.get(broken.code, 500))


def _framed(*values: Any) -> bytes:
    return b"".join(b"data: " + _encode(value) + b"\n\n" for value in values)


def _queue_comment(place: Queued) -> bytes:
    """Return the place in the queue as a comment, since chat has no event for it."""
    return b": queued, place %d, about %.1f s\n\n" % (place.position, place.estimate_s)
