"""The routes of chat and messages on a real socket with scripted turns: a test says what comes when."""

import asyncio
import socket
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
import uvicorn
from starlette.applications import Starlette
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from tests.server.serving import until
from vivace.client.warm import ServerAddress
from vivace.errors import VivaceError
from vivace.protocol.messages.thoughts import ThoughtSigner
from vivace.protocol.shapes.events import ResponseError, ResponseFailed, Terminal, Usage, Waterfall
from vivace.protocol.shapes.outcomes import CallBegun, CallDelta, Ended, Outcome, Queued
from vivace.protocol.shapes.requests import ResponseCreate
from vivace.server.backends.base import Taker
from vivace.server.caller import Caller
from vivace.server.transport.answers import on_mistake, on_vivace_error
from vivace.server.transport.routes.chat import ChatRoute
from vivace.server.transport.routes.messages import MessagesRoute
from vivace.server.turns.activity import Activity
from vivace.server.turns.service import Admitted

STOP = Ended("stop", Usage(7, 5, 12), Waterfall(total_ms=1.0))
LENGTH = Ended("length", Usage(7, 5, 12), Waterfall())
CALL = (CallBegun("weather", call_id="call_1"), CallDelta('{"city":'), CallDelta('"Rome"}'))


class Wait:
    """A turn that comes here goes on when the test says so, or when it is interrupted."""

    def __init__(self) -> None:
        self.is_reached = threading.Event()
        self._over = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None

    async def over(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.is_reached.set()
        await self._over.wait()

    def end(self) -> None:
        """From any thread, once it is reached."""
        assert self._loop
        self._loop.call_soon_threadsafe(self._over.set)


class ScriptedTurn:
    """Stands for a backend's: its steps are outcomes, waits, and an exception to raise."""

    def __init__(
        self,
        request: ResponseCreate,
        caller: Caller,
        script: list[Any],
        place: Queued | None,
        usage: Usage | None = None,
    ):
        self.id = "resp_1"
        self.model = "m"
        self.request = request
        self.caller = caller
        self.place = place
        self.watch = None
        self.stored_response = None
        self.prompt_usage = usage
        self.is_interrupted = threading.Event()
        self._script = script

    def answer_now(self) -> None:
        pass

    def interrupt(self, reason: str = "interrupted", *, is_discarding: bool = False) -> None:  # noqa: ARG002
        self.is_interrupted.set()
        for step in self._script:
            if isinstance(step, Wait) and step.is_reached.is_set():
                step.end()

    async def outcomes(self, taker: Taker | None = None) -> AsyncIterator[Outcome]:  # noqa: ARG002
        for step in self._script:
            if isinstance(step, Wait):
                if not self.is_interrupted.is_set():
                    await step.over()
                if self.is_interrupted.is_set():
                    yield Ended("interrupted", Usage(0, 0, 0), Waterfall())
                    return
            elif isinstance(step, Exception):
                raise step
            else:
                yield step


class Stage:
    """Stands for the desk: takes requests, and what is to be written down."""

    def __init__(self) -> None:
        self.activity = Activity()
        self.turns: list[ScriptedTurn] = []
        self.committed: list[Terminal] = []
        self.usage: Usage | None = None  # what the next turns know of it when they begin
        self.refusal: VivaceError | None = None
        self.commit_problem: VivaceError | None = None
        self._script: list[Any] = []
        self._place: Queued | None = None

    def play(self, *script: Any, place: Queued | None = None) -> None:
        """What comes of the next turns."""
        self._script, self._place = list(script), place
        self.refusal = self.commit_problem = None
        self.committed.clear()

    @property
    def turn(self) -> ScriptedTurn:
        return self.turns[-1]

    async def begin(self, request: ResponseCreate, caller: Caller) -> Admitted:
        if self.refusal:
            raise self.refusal
        self.turns.append(ScriptedTurn(request, caller, self._script, self._place, self.usage))
        return Admitted(self.turn, {"x-ratelimit-limit-requests": "9"})

    async def count(self, request: ResponseCreate, caller: Caller) -> int:  # noqa: ARG002
        return 7

    async def commit(self, turn: Any, event: Terminal) -> Terminal:
        assert turn is self.turn
        self.committed.append(event)
        if self.commit_problem is None:
            return event
        problem = ResponseError(self.commit_problem.code, self.commit_problem.message)
        response = msgspec.structs.replace(event.response, status="failed", error=problem)
        return ResponseFailed(response=response, sequence_number=event.sequence_number)


@contextmanager
def staged(**times: float) -> Iterator[tuple[Stage, ServerAddress]]:
    """The routes, served on a port of its own."""
    stage = Stage()
    route = ChatRoute(stage.begin, stage.activity, stage.commit, **times)
    messages = MessagesRoute(stage.begin, stage.count, stage.activity, ThoughtSigner("token"), **times)
    app = Starlette(
        routes=[
            Route("/v1/chat/completions", route.create, methods=["POST"]),
            Route("/v1/messages", messages.create, methods=["POST"]),
        ],
        exception_handlers={VivaceError: on_vivace_error, Exception: on_mistake},
    )
    config = uvicorn.Config(_known(app), http="h11", lifespan="off", log_config=None, access_log=False)
    server = uvicorn.Server(config)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            until(lambda: server.started)
            yield stage, ServerAddress(listener.getsockname()[1], "token", pid=0)
        finally:
            for turn in stage.turns:
                turn.interrupt()  # or the server would wait for it
            server.should_exit = True
            thread.join()


def _known(app: ASGIApp) -> ASGIApp:
    """Stands for the gate, which finds out who asks."""

    async def call(scope: Scope, receive: Receive, send: Send) -> None:
        scope["vivace.caller"] = Caller()
        await app(scope, receive, send)

    return call
