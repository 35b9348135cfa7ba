"""The WebSocket shell: performs the actions of `protocol.connection`, and reports what came of them.

Owns the socket, its reader and the tasks that listen to turns. Does not decide anything about the protocol.
The reader is always reading, so that a client that goes away is noticed at once and its turns end.
"""

import asyncio
import logging
from collections.abc import Iterable

import msgspec
from starlette.websockets import WebSocket, WebSocketDisconnect

from vivace.errors import VivaceError
from vivace.protocol.connection import Action, Cancel, Connection, Send, Start
from vivace.protocol.refusal import INTERNAL, frame_of, mistake
from vivace.protocol.requests import ResponseCreate
from vivace.protocol.writer import Broken
from vivace.server.activity import Activity
from vivace.server.backends.native import NativeBackend
from vivace.server.backends.turn import Turn

log = logging.getLogger(__name__)

_encode = msgspec.json.Encoder().encode


class SocketRoute:
    def __init__(self, backend: NativeBackend, activity: Activity) -> None:
        self._backend = backend
        self._activity = activity

    async def serve(self, websocket: WebSocket) -> None:
        await websocket.accept()
        await SocketSession(websocket, self._backend, self._activity).run()


class SocketSession:
    def __init__(self, websocket: WebSocket, backend: NativeBackend, activity: Activity) -> None:
        self._websocket = websocket
        self._backend = backend
        self._activity = activity
        self._machine = Connection()
        self._turns: dict[str, Turn] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_gone = False

    async def run(self) -> None:
        """Read until the client goes away, then end what it left running."""
        try:
            while (message := await self._websocket.receive())["type"] == "websocket.receive":
                self._activity.touch()
                await self._perform(self._take(message.get("text")))
        finally:
            self._is_gone = True
            await self._perform(self._machine.closed())
            if self._tasks:
                await asyncio.wait(self._tasks)

    def _take(self, text: str | None) -> list[Action]:
        """The boundary of a message: whatever goes wrong here is logged and answered."""
        try:
            return self._machine.receive_bytes() if text is None else self._machine.receive(text)
        except Exception:
            log.exception("a message failed")
            return [Send(frame_of(mistake()))]

    async def _perform(self, actions: Iterable[Action]) -> None:
        for action in actions:
            match action:
                case Send(message=message):
                    await self._send(_encode(message).decode())
                case Start(response_id=response_id, request=request):
                    task = asyncio.create_task(self._answer(response_id, request))
                    self._tasks.add(task)
                    task.add_done_callback(self._tasks.discard)
                case Cancel(response_id=response_id):
                    if turn := self._turns.get(response_id):
                        turn.interrupt()

    async def _send(self, text: str) -> None:
        """A client that is gone hears nothing; the reader learns of it by itself."""
        if not self._is_gone:
            try:
                await self._websocket.send_text(text)
            except (WebSocketDisconnect, RuntimeError):
                self._is_gone = True

    async def _answer(self, response_id: str, request: ResponseCreate) -> None:
        with self._activity.answering():
            try:
                turn = self._turns[response_id] = self._backend.begin(request, response_id)
            except VivaceError as error:
                return await self._perform(self._machine.refused(response_id, error))
            try:
                await self._tell(turn)
            finally:
                turn.interrupt()
                del self._turns[response_id]

    async def _tell(self, turn: Turn) -> None:
        """The boundary of a turn on a socket: whatever goes wrong here is logged and answered."""
        if self._is_gone:
            turn.interrupt()
        try:
            await self._perform(self._machine.begun(turn.id, turn.model))
            async for outcome in turn:
                await self._perform(self._machine.outcome(turn.id, outcome))
        except Exception:
            log.exception("%s failed", turn.id)
            await self._perform(self._machine.outcome(turn.id, Broken(INTERNAL, mistake().message)))
