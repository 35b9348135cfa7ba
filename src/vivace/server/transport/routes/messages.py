"""`POST /v1/messages`: a turn as Anthropic's events, or drained into one message; and how long a prompt is.

Owns what such a request means to the server beyond its body: names, headers, tiers. Nothing is stored. While
a turn waits, empty pieces of a block keep its stream alive: Claude Code does not count pings and comments.
Does not own the events (`protocol/messages/writer.py`), nor the stream itself (`turn_stream`).
"""

from collections.abc import Awaitable, Callable
from fnmatch import fnmatchcase
from functools import partial

from starlette.requests import Request
from starlette.responses import Response

from vivace.errors import VivaceError
from vivace.protocol.messages.answer import Ping
from vivace.protocol.messages.content import Reader
from vivace.protocol.messages.errors import error_event
from vivace.protocol.messages.requests import MessageRequest, in_message_words, parse_message
from vivace.protocol.messages.said_calls import SaidCalls
from vivace.protocol.messages.thoughts import ThoughtSigner
from vivace.protocol.messages.writer import MessageWriter
from vivace.protocol.shapes.outcomes import Outcome, Queued
from vivace.protocol.shapes.refusal import Refusal
from vivace.protocol.shapes.requests import ResponseCreate
from vivace.server.backends.base import Turn
from vivace.server.caller import Caller
from vivace.server.transport.access.auth import caller_of
from vivace.server.transport.answers import REQUEST_ID, json_response, new_request_id
from vivace.server.transport.parsing import parsed
from vivace.server.transport.sse import framed, interrupted_when_gone, read_body, session_key
from vivace.server.transport.turn_stream import PATIENCE_S, Begin, TurnStream, drained
from vivace.server.turns.activity import Activity

BEAT_S = 5.0  # Claude Code gives up after 285 s without a piece of a block
SMALL = "claude-*haiku*"  # what Claude Code asks beside the user's turn: titles, searches

Count = Callable[[ResponseCreate, Caller], Awaitable[int]]


class MessageFrames:
    def __init__(self, turn: Turn, writer: MessageWriter, request_id: str) -> None:
        self._turn = turn
        self._writer = writer
        self._request_id = request_id

    @property
    def is_over(self) -> bool:
        return self._writer.is_over

    def begin(self, place: Queued | None) -> bytes:
        events = [*self._writer.begin(self._turn.prompt_usage), *([Ping()] if place else [])]
        return b"".join(map(framed, events))

    def frame(self, outcome: Outcome) -> bytes:
        return b"".join(map(framed, self._writer.write(outcome)))

    def beat(self) -> bytes:
        return b"".join(map(framed, self._writer.keep_alive()))

    def error(self, error: VivaceError) -> bytes:
        return framed(error_event(error, self._request_id))


class MessagesRoute:
    def __init__(
        self,
        begin: Begin,
        count: Count,
        activity: Activity,
        signer: ThoughtSigner,
        *,
        patience_s: float = PATIENCE_S,
        beat_s: float = BEAT_S,
    ) -> None:
        self._begin = begin
        self._count = count
        self._activity = activity
        self._signer = signer
        self._said = SaidCalls()
        self._patience_s = patience_s
        self._beat_s = beat_s

    async def create(self, request: Request) -> Response:
        caller = caller_of(request)
        asked = await self._asked(request, caller)
        try:
            admitted = await self._begin(asked.create, caller)
        except Refusal as refusal:
            raise in_message_words(refusal) from None
        turn, request_id = admitted.turn, new_request_id()
        writer = MessageWriter(
            turn.id,
            turn.model,
            partial(self._signer.sign, tenant=caller.tenant),
            self._said,
            is_marked=asked.is_marked,
        )
        headers = {REQUEST_ID: request_id}
        if asked.create.stream:
            return TurnStream(
                admitted,
                turn.outcomes(),
                MessageFrames(turn, writer, request_id),
                self._activity,
                patience_s=self._patience_s,
                beat_s=self._beat_s,
                headers=headers,
            )
        with self._activity.answering():
            async with interrupted_when_gone(turn, request.receive):
                refused = await drained(turn.outcomes(), writer, request.scope)
                return refused or json_response(writer.message(), headers={**admitted.headers, **headers})

    async def count_tokens(self, request: Request) -> Response:
        caller = caller_of(request)
        asked = await self._asked(request, caller)
        try:
            tokens = await self._count(asked.create, caller)
        except Refusal as refusal:
            raise in_message_words(refusal) from None
        return json_response({"input_tokens": tokens}, headers={REQUEST_ID: new_request_id()})

    async def _asked(self, request: Request, caller: Caller) -> MessageRequest:
        """Return what the request asks for, with what its headers and its model's name say."""
        self._activity.touch()
        reader = Reader(self._said, partial(self._signer.is_ours, tenant=caller.tenant))
        asked = await parsed(lambda body: parse_message(body, reader), await read_body(request))
        create = asked.create
        if fnmatchcase(create.model or "", SMALL):
            create.service_tier = "flex"
        create.prompt_cache_key = session_key(request.headers)
        return asked
