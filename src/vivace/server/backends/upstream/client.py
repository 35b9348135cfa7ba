"""One upstream: a request goes to it, and its answer is passed on as it comes.

Owns which of the two APIs is used (for each model, since an upstream may be the front of several servers;
Responses is tried first where that is not known), and how long the upstream may be silent. Any bytes
are a sign of life, also comments that mean nothing. Does not own what the events mean.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Literal, NamedTuple

import msgspec

from vivace.errors import ConfigError
from vivace.server.backends.upstream.dialects import chat_body, responses_body
from vivace.server.backends.upstream.dialects.chat_reader import ChatReader
from vivace.server.backends.upstream.dialects.reader import Reader
from vivace.server.backends.upstream.dialects.responses_reader import ResponsesReader
from vivace.server.backends.upstream.dialects.tools import Toolbox
from vivace.server.backends.upstream.errors import Problems, UpstreamProblem
from vivace.server.backends.upstream.http import ConnectionPool, Reply
from vivace.server.backends.upstream.models import ModelList
from vivace.server.backends.upstream.request import UpstreamRequest
from vivace.server.backends.upstream.sequencer import OutcomeSequencer, TooMuch
from vivace.server.backends.upstream.settings import Upstream
from vivace.server.backends.upstream.sse import EventStream, ServerEvent, TooLong
from vivace.server.backends.upstream.turn import UpstreamTurn

USAGE_S = 5.0  # how long to wait for the usage of an answer that has ended
MAX_WHOLE_BYTES = 16 * 1024 * 1024  # of an answer that does not stream
NOT_THERE = (404, 405, 501)
LIST_S = 0.5  # for a list of its models that is on its way
MAX_KNOWN = 1024  # models; a name is a client's to choose

Api = Literal["responses", "chat"]


class Dialect(NamedTuple):
    path: str
    body: Callable[[UpstreamRequest], bytes]
    reader: Callable[[OutcomeSequencer, Toolbox, Problems], Reader]


DIALECTS: dict[Api, Dialect] = {
    "responses": Dialect("responses", responses_body.body, ResponsesReader),
    "chat": Dialect("chat/completions", chat_body.body, ChatReader),
}


class ApiMissing(Exception):
    """The upstream does not have this API."""


class EmptyAnswer(Exception):
    """The upstream's answer is empty."""


class UpstreamClient:
    def __init__(self, upstream: Upstream) -> None:
        self.upstream = upstream
        self.link = ConnectionPool(upstream)
        self.models = ModelList(upstream, self.link)
        self._known: dict[str, Api] = {}  # by model
        self._says_why = False  # at the end of its answers: then one without a reason was broken off
        self._answering = 0

    def refresh(self) -> asyncio.Task[None] | None:
        """Ask for its models if the list is old. Not while it answers: some then break the answer off."""
        return None if self._answering else self.models.refresh()

    async def answer(self, turn: UpstreamTurn, request: UpstreamRequest) -> None:
        """Give the turn all that comes, and end it. Raise `UpstreamProblem` if that is impossible."""
        try:
            key = self.upstream.key()
        except ConfigError as error:
            raise UpstreamProblem(error.message, error.hint, code="upstream_auth", status=502) from None
        problems = Problems(self.upstream, request.model, key)
        self._answering += 1
        try:
            await self.models.settled(LIST_S)
            await self._answer(turn, request, key, problems)
        finally:
            self._answering -= 1

    async def _answer(
        self, turn: UpstreamTurn, request: UpstreamRequest, key: str, problems: Problems
    ) -> None:
        apis = self._apis(request.model)
        for api in apis:
            try:
                return await self._ask(turn, request, api, key, problems, is_last=api == apis[-1])
            except ApiMissing:
                continue
            except EmptyAnswer:  # some servers say what is wrong only to who does not stream
                whole = msgspec.structs.replace(request, is_streaming=False)
                return await self._ask(turn, whole, api, key, problems, is_last=True)
        raise AssertionError("the last one ended it")

    async def close(self) -> None:
        await self.models.close()
        self.link.close()

    def _apis(self, model: str) -> tuple[Api, ...]:
        """Return the APIs to try, one after the other."""
        if self.upstream.api != "auto":
            return (self.upstream.api,)
        return (self._known[model],) if model in self._known else ("responses", "chat")

    def _learn(self, model: str, api: Api) -> None:
        if len(self._known) >= MAX_KNOWN:
            self._known.clear()
        self._known[model] = api

    async def _ask(
        self,
        turn: UpstreamTurn,
        request: UpstreamRequest,
        api: Api,
        key: str,
        problems: Problems,
        *,
        is_last: bool,
    ) -> None:
        dialect, begun = DIALECTS[api], time.monotonic()
        body = dialect.body(request)
        trace = turn.watch.headers if turn.watch else {}
        asked = self.link.ask(
            dialect.path,
            body,
            key=key,
            headers=trace,
            problems=problems,
            on_sent=lambda: turn.sent(len(body)),
        )
        async with asked as reply:
            if reply.status == 200 or (api == "chat" and reply.status < 500):
                self._learn(request.model, api)  # it has it
            if reply.status in NOT_THERE:
                self._known.pop(request.model, None)  # or no longer
            if reply.status != 200:
                said = await reply.error_body()
                if reply.status in NOT_THERE and not is_last and not problems.is_about_model(said):
                    raise ApiMissing
                raise problems.status(reply.status, reply.headers, said)
            reader = dialect.reader(turn.sequencer, request.toolbox, problems)
            listener = _Listener(
                self.upstream,
                turn,
                reply,
                reader,
                problems,
                begun,
                must_say_why=self._says_why,
                must_say_something=request.is_streaming,
            )
            try:
                await listener.listen()
            finally:
                is_stream = api == "chat" and request.is_streaming
                self._says_why = self._says_why or (is_stream and reader.has_said_why)


class _Listener:
    """One answer, from its first byte to its last."""

    def __init__(
        self,
        upstream: Upstream,
        turn: UpstreamTurn,
        reply: Reply,
        reader: Reader,
        problems: Problems,
        begun: float,
        *,
        must_say_why: bool,
        must_say_something: bool,
    ) -> None:
        self._upstream = upstream
        self._turn = turn
        self._reply = reply
        self._reader = reader
        self._problems = problems
        self._begun = begun
        self._must_say_why = must_say_why
        self._must_say_something = must_say_something
        self._events = EventStream()

    async def listen(self) -> None:
        try:
            await self._read()
        except TooLong:
            raise self._problems.broken("sent an event that does not end.") from None
        except TooMuch:
            raise self._problems.broken("says more than an answer can hold.") from None
        if self._turn.sequencer.is_stopped:
            self._turn.end("stop")
            return
        self._reader.end()
        if self._must_say_why and not self._reader.has_said_why:
            raise self._problems.broken("stopped before the end of its answer.")
        if self._must_say_something and self._is_empty:
            raise EmptyAnswer
        self._turn.end(self._reader.reason, self._reader.usage)
        if self._reader.is_over:
            await self._reply.drain()

    async def _read(self) -> None:
        chunk = await self._next(is_first=True)
        if not chunk:
            raise EmptyAnswer if self._must_say_something else self._problems.broken("answers with nothing.")
        if self._is_json(chunk):
            self._reader.read_whole(chunk + await self._rest())
            return
        if chunk.lstrip()[:1] == b"<":
            raise self._problems.broken("answers with a web page: check its url, which mostly ends in /v1.")
        while chunk:
            self._read_events(self._events.feed(chunk))
            if self._is_done:
                return
            chunk = await self._next()
        if not self._reader.reason:
            self._read_events(self._events.finish())

    @property
    def _is_empty(self) -> bool:
        """Return whether nothing came: no text, no call, no token. Even an empty answer has an end token."""
        if self._reader.reason != "stop" or self._turn.sequencer.delta_count:
            return False
        usage = self._reader.usage
        return usage.output_tokens == 0 if usage else isinstance(self._reader, ChatReader)

    @property
    def _is_done(self) -> bool:
        return self._reader.is_over or self._turn.sequencer.is_stopped

    def _read_events(self, events: list[ServerEvent]) -> None:
        for event in events:
            if not self._is_done:
                self._reader.read_event(event.name, event.data)

    def _is_json(self, chunk: bytes) -> bool:
        """Return whether the answer is not streamed, whatever its type says: events never begin like that."""
        if begun := chunk.lstrip():
            return begun[:1] in (b"{", b"[")
        return self._reply.headers.get("content-type", "").startswith("application/json")

    async def _rest(self) -> bytes:
        try:
            rest = await self._reply.read_all(self._upstream.first_byte_s, MAX_WHOLE_BYTES)
        except TimeoutError:
            raise self._problems.timed_out("go on with its answer", self._upstream.first_byte_s) from None
        if len(rest) >= MAX_WHOLE_BYTES:
            raise self._problems.broken("says more than an answer can hold.")
        return rest

    async def _next(self, *, is_first: bool = False) -> bytes:
        """Return the next bytes; b"" at the end."""
        patience_s = self._upstream.idle_s if self._turn.has_begun else self._upstream.first_byte_s
        if self._reader.reason:  # all was said: only its usage is still to come
            patience_s = min(patience_s, USAGE_S)
        waited_s = time.monotonic() - self._begun if is_first else 0.0
        try:
            return await self._reply.read(max(0.001, patience_s - waited_s))
        except (TimeoutError, UpstreamProblem) as error:
            if self._reader.reason:
                return b""
            if isinstance(error, UpstreamProblem):
                raise
            what = "go on with its answer" if self._turn.has_begun else "begin its answer"
            raise self._problems.timed_out(what, patience_s) from None
