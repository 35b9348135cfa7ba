"""The WebSocket shell: performs the actions of `protocol/connection`, and reports what came of them.

Owns the socket, its reader and the tasks that listen to turns. Does not decide anything about the protocol.
The reader starts what a message asks for and reads on, so that a cancel is obeyed and a client that goes away
is noticed at once. A client that takes nothing for ten seconds is disconnected; until then the text of its
turns is joined, and it is read from only while few answers wait for it.
"""

import asyncio
import contextlib
import logging
import secrets
from collections.abc import Coroutine, Sequence
from functools import partial
from typing import Any

import msgspec
from starlette.websockets import WebSocket, WebSocketDisconnect

from vivace.errors import VivaceError
from vivace.protocol.connection.actions import Action, AnswerNow, Cancel, Close, Commit, Forget, Send, Start
from vivace.protocol.connection.machine import Connection
from vivace.protocol.connection.messages import Message
from vivace.protocol.shapes.events import AnyEvent, Terminal
from vivace.protocol.shapes.outcomes import Broken, CallDelta, Outcome, ReasoningDelta, TextDelta
from vivace.protocol.shapes.refusal import INTERNAL, ErrorFrame, frame_of, mistake
from vivace.protocol.shapes.requests import ResponseCreate
from vivace.protocol.writing.writer import ResponseWriter
from vivace.server.backends.base import Turn
from vivace.server.caller import Caller
from vivace.server.transport.access.auth import caller_of
from vivace.server.transport.access.tickets import chosen_subprotocol
from vivace.server.transport.lane_locks import Lane, LaneLocks, Place
from vivace.server.transport.parsing import MessageParser
from vivace.server.transport.protocols import BLOCKED_S, WIRE, WebSocketProtocol
from vivace.server.transport.sse import note_gone
from vivace.server.turns.activity import Activity
from vivace.server.turns.service import TurnService
from vivace.server.watch.turn_watch import Watch

LONGEST_S = 60 * 60.0
MAX_UNSENT = 256  # answers to messages that wait to be sent; a client that has more is not read from
TRY_AGAIN_LATER, RESTARTING = 1013, 1012
TEXT = (TextDelta, ReasoningDelta, CallDelta)

log = logging.getLogger(__name__)

_encode = msgspec.json.Encoder().encode


class SocketRoute:
    def __init__(self, service: TurnService, activity: Activity, watch: Watch) -> None:
        self._service = service
        self._activity = activity
        self._watch = watch
        self._open: set[SocketSession] = set()

    async def serve(self, websocket: WebSocket) -> None:
        caller = caller_of(websocket)
        caller = msgspec.structs.replace(caller, connection=secrets.token_hex(8))
        await websocket.accept(chosen_subprotocol(websocket.scope["subprotocols"]))
        session = SocketSession(websocket, self._service, self._activity, self._watch, caller)
        self._open.add(session)
        self._service.library.join(caller.connection)
        self._watch.metrics.sockets(len(self._open))
        try:
            await session.run()
        finally:
            self._open.discard(session)
            self._watch.metrics.sockets(len(self._open))
            self._service.library.leave(caller.connection)

    async def drain(self) -> None:
        """Refuse what waits on all sockets. Running turns go on."""
        await asyncio.gather(*(session.drain() for session in self._open))

    async def close(self) -> None:
        await asyncio.gather(*(session.close() for session in self._open))


class SocketSession:
    def __init__(
        self, websocket: WebSocket, service: TurnService, activity: Activity, watch: Watch, caller: Caller
    ) -> None:
        self._websocket = websocket
        self._wire: WebSocketProtocol = websocket.scope["extensions"][WIRE]
        self._service = service
        self._activity = activity
        self._watch = watch
        self._caller = caller
        self._machine = Connection()
        self._turns: dict[str, Turn] = {}
        self._cancelled: dict[str, Cancel] = {}  # before they had begun
        self._tasks: set[asyncio.Task[None]] = set()
        self._unsent: set[asyncio.Task[None]] = set()  # what was read, and is not answered yet
        self._parser = MessageParser(self._handle)
        self._order = LaneLocks()
        self._is_gone = False

    async def run(self) -> None:
        """Read until the client goes away, then end what it left running."""
        age = asyncio.get_running_loop().call_later(LONGEST_S, self._expire)
        try:
            while (message := await self._websocket.receive())["type"] == "websocket.receive":
                if self._is_gone:  # given up; what it had sent before is not looked at any more
                    break
                self._activity.touch()
                self._receive(message.get("text"))
                await asyncio.sleep(0)  # a thousand may have come at once: others are served in between
                await self._parser.has_room()
                while len(self._unsent) >= MAX_UNSENT:
                    await asyncio.wait(self._unsent, return_when=asyncio.FIRST_COMPLETED)
        finally:
            age.cancel()
            self._is_gone = True
            self._parser.close()
            for turn in self._turns.values():
                note_gone(turn)
            await self._perform(self._machine.closed())
            if self._tasks:
                await asyncio.wait(self._tasks)

    async def drain(self) -> None:
        await self._perform(self._machine.drain())

    async def close(self) -> None:
        await self._close(RESTARTING, "The server is restarting.")

    def _expire(self) -> None:
        self._start(self._machine.expire())

    def _receive(self, text: str | None) -> None:
        if text is None:
            self._start(self._machine.receive_bytes())
        else:
            self._parser.put(text)

    def _handle(self, message: Message) -> None:
        """Handle a message. This is a boundary: errors are logged and answered."""
        try:
            actions = self._machine.handle(message)
        except Exception:
            log.exception("a message failed")
            actions = [Send(frame_of(mistake()))]
        self._start(actions)

    def _start(self, actions: Sequence[Action]) -> None:
        """Perform actions without waiting for them."""
        if actions:
            task = self._spawn(self._perform(actions))
            self._unsent.add(task)
            task.add_done_callback(self._unsent.discard)

    def _perform(self, actions: Sequence[Action], turn: Turn | None = None) -> Coroutine[Any, Any, None]:
        """Take a place in the actions' lanes now; return what performs them, in their order.

        Each waits for all that is under way in its lane. Only a cancel never waits.
        """
        for action in actions:
            if isinstance(action, Cancel):
                self._interrupt(action.response_id, action)
        return self._perform_in_order(actions, turn, self._order.enter(self._lanes_of(actions)))

    async def _perform_in_order(
        self, actions: Sequence[Action], turn: Turn | None, places: dict[Lane, Place]
    ) -> None:
        try:
            for place in places.values():
                if place:
                    await place
            for action in actions:
                await self._do(action, turn)
        finally:
            self._order.leave(places)

    def _lanes_of(self, actions: Sequence[Action]) -> set[Lane]:
        """Return the lanes that these actions send in; all of them for a close, which comes last."""
        if any(isinstance(action, Close) for action in actions):
            return {*self._order.busy, None}
        return {action.message.stream_id or None for action in actions if isinstance(action, Send)}

    async def _do(self, action: Action, turn: Turn | None) -> None:
        match action:
            case Send(message=message):
                if turn and isinstance(message, Terminal):
                    message = await self._service.commit(turn, message)
                await self._send(message)
            case Start(response_id=response_id, request=request):
                self._spawn(self._answer(response_id, request))
            case Commit(message=message):
                assert turn is not None, "an end is a turn's"
                await self._service.commit(turn, message)
            case AnswerNow(response_id=response_id):
                if running := self._turns.get(response_id):
                    running.answer_now()
            case Forget(response_id=response_id):
                self._service.library.forget(response_id, self._caller)
            case Close(code=code, reason=reason):
                await self._close(code, reason)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _interrupt(self, response_id: str, cancel: Cancel) -> None:
        if turn := self._turns.get(response_id):
            turn.interrupt(cancel.reason, is_discarding=cancel.is_discarding)
        else:
            self._cancelled[response_id] = cancel  # it has not begun yet

    async def _send(self, message: AnyEvent | ErrorFrame) -> None:
        """Send a message, unless the client is gone. The reader notices that by itself."""
        if self._is_gone:
            return
        if not self._wire.is_free:
            await self._wait_for_client()
        self._is_gone = self._is_gone or not self._wire.is_open
        if not self._is_gone:
            self._wire.write(_encode(message))

    async def _wait_for_client(self) -> None:
        try:
            await self._wire.freed()
        except TimeoutError:
            log.warning("a client took nothing for %.0f s; closing its connection", BLOCKED_S)
            self._is_gone = True
            for turn in self._turns.values():
                note_gone(turn, "slow_client")
                turn.interrupt()
            await self._close(TRY_AGAIN_LATER, "The client is too slow.")

    async def _close(self, code: int, reason: str) -> None:
        self._is_gone = True
        try:
            async with asyncio.timeout(1.0):
                await self._websocket.close(code, reason)
        except (TimeoutError, WebSocketDisconnect, RuntimeError):
            log.debug("the connection was gone already")

    async def _answer(self, response_id: str, request: ResponseCreate) -> None:
        """Begin a turn and stream it. This is a boundary: errors are answered."""
        with self._activity.answering():
            try:
                admitted = await self._service.begin(request, self._caller, response_id)
            except Exception as error:
                if not isinstance(error, VivaceError):
                    log.exception("%s was not begun", response_id)
                    error = mistake()
                self._cancelled.pop(response_id, None)
                return await self._perform(self._machine.refused(response_id, error))
            turn = self._turns[response_id] = admitted.turn
            try:
                await self._stream(turn)
            finally:
                turn.interrupt()
                del self._turns[response_id]

    def _send_text(self, writer: ResponseWriter, response_id: str, lane: Lane, outcome: Outcome) -> bool:
        """Send text in the callback that brought it from the engine. Nearly every token goes this way.

        Return False, and leave it to `_stream`, if the client is behind or something else in its lane comes
        first.
        """
        wire = self._wire
        if not isinstance(outcome, TEXT) or self._is_gone or not wire.is_ready or lane in self._order.busy:
            return False
        if delta := writer.encode_delta(outcome):
            wire.write(delta)
            return True
        for action in self._machine.outcome(response_id, outcome):
            assert isinstance(action, Send), "text is sent, and nothing else comes of it"
            wire.write(_encode(action.message))
        return True

    async def _stream(self, turn: Turn) -> None:
        """Send a turn's events. This is a boundary: errors are logged and answered."""
        if cancel := self._cancelled.pop(turn.id, None):
            turn.interrupt(cancel.reason, is_discarding=cancel.is_discarding)
        if self._is_gone:
            turn.interrupt()
        try:
            await self._perform(self._machine.begun(turn.id, turn.model, turn.place))
            writer, lane = self._machine.writer(turn.id), turn.request.stream_id or None
            taker = partial(self._send_text, writer, turn.id, lane)
            async for outcome in turn.outcomes(taker):
                await self._perform(self._machine.outcome(turn.id, outcome), turn)
        except Exception:
            log.exception("%s failed", turn.id)
            with contextlib.suppress(KeyError):  # it is over already
                await self._perform(self._machine.outcome(turn.id, Broken(INTERNAL, mistake().message)), turn)
