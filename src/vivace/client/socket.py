"""One WebSocket with all of its lanes: what comes is sorted, what goes is sent in order.

Owns which turn of a lane is next. One `response.create` of a lane is under way at a time, so that every event
and every error frame of a lane belongs to one turn. It never waits for whoever reads a turn: each has its own
buffer. Does not own the frames (`websocket`), the turns (`turn`) nor when a new socket is opened
(`responses`).
"""

import asyncio
import time
from collections import deque
from typing import Any, Protocol

import msgspec
from msgspec import UNSET

from vivace.client.turn import OnProgress, Turn
from vivace.client.websocket import HandshakeRefused, WebSocket
from vivace.errors import RequestRefused, ServerGone
from vivace.protocol.shapes.events import AnyEvent
from vivace.protocol.shapes.parsing import check_lane
from vivace.protocol.shapes.refusal import ErrorFrame
from vivace.protocol.shapes.requests import MAX_BODY_BYTES

OPEN_S = 10.0


class Address(Protocol):
    """Where a server is: this user's own (`warm.ServerAddress`), or any other that speaks the protocol."""

    @property
    def socket_url(self) -> str: ...

    @property
    def token(self) -> str: ...


_decode = msgspec.json.Decoder(AnyEvent | ErrorFrame).decode


class Lane:
    """The turns of one `stream_id`, first in, first out."""

    def __init__(self) -> None:
        self.current: Turn | None = None
        self.waiting: deque[Turn] = deque()

    @property
    def turns(self) -> list[Turn]:
        return [*([self.current] if self.current else []), *self.waiting]


class ResponsesSocket:
    def __init__(self, on_progress: OnProgress = lambda _: None) -> None:
        self._on_progress = on_progress
        self.opened_at = time.monotonic()
        self.is_open = True
        self._connection = WebSocket(self._read, self._on_lost)
        self._lanes: dict[str | None, Lane] = {}

    async def open(self, address: Address) -> None:
        """Connect to the server, or raise `RequestRefused` (a wrong token) or `ServerGone`."""
        try:
            async with asyncio.timeout(OPEN_S):
                await self._connection.open(address.socket_url, address.token)
        except HandshakeRefused as error:
            if error.status:
                message = f"The server refused the connection ({error.status})."
                raise RequestRefused(message, status=error.status) from error
            raise _unreachable(error) from error
        except OSError as error:  # a time-out is one, too
            raise _unreachable(error) from error

    @property
    def is_idle(self) -> bool:
        return not any(lane.current for lane in self._lanes.values())

    def begin(self, request: dict[str, Any], lane: str | None) -> Turn:
        """Put a turn at the end of its lane. It starts at once if the lane is free."""
        if lane is not None:
            check_lane(lane)
        if len(msgspec.json.encode(request)) > MAX_BODY_BYTES - 1024:  # refused there without naming its lane
            raise RequestRefused("The request is too large.", code="request_too_large", status=413)
        turn = Turn(request, lane, self._send, self._on_progress)
        self._lanes.setdefault(lane, Lane()).waiting.append(turn)
        self._advance(lane)
        return turn

    async def close(self) -> None:
        """Close the connection, which ends every turn on it at the server."""
        self._lose(ServerGone("The connection was closed."))
        await self._connection.close()

    def _send(self, message: dict[str, Any]) -> None:
        if self.is_open:
            self._connection.send(msgspec.json.encode(message))

    def _advance(self, name: str | None) -> None:
        """Start the lane's next turn, unless one is under way. A turn that was left is passed over."""
        lane = self._lanes[name]
        if lane.current and lane.current.is_over:
            lane.current = None
        while lane.current is None and lane.waiting:
            turn = lane.waiting.popleft()
            if turn.is_left or not self.is_open:
                turn.end(None if turn.is_left else _lost())
                continue
            lane.current = turn
            turn.begin()

    def _read(self, data: bytearray) -> None:
        """Hand a message to its turn."""
        try:
            message = _decode(data)
        except msgspec.MsgspecError as problem:
            self._lose(ServerGone(f"The server sent what this client cannot read: {problem}.", _HINT))
            self._connection.abort()
        else:
            self._take(message)

    def _on_lost(self) -> None:
        self._lose(_lost())

    def _take(self, message: AnyEvent | ErrorFrame) -> None:
        name = None if message.stream_id is UNSET else message.stream_id
        if isinstance(message, ErrorFrame) and message.error.param == "response_id":
            return  # it answers a cancel or an interrupt that came after its response was forgotten
        lane = self._lanes.get(name)
        if lane and lane.current:
            lane.current.take(message)
            self._advance(name)
        elif isinstance(message, ErrorFrame) and name is None:
            self._refuse_unbegun(message)

    def _refuse_unbegun(self, message: ErrorFrame) -> None:
        """End every turn that has not begun: the server could not tell whose message it refused."""
        for name, lane in self._lanes.items():
            if lane.current and lane.current.response_id is None:
                lane.current.take(message)
                self._advance(name)

    def _lose(self, error: ServerGone) -> None:
        self.is_open = False
        for lane in self._lanes.values():
            for turn in lane.turns:
                turn.end(error)
            lane.current = None
            lane.waiting.clear()


async def open_socket(address: Address, on_progress: OnProgress = lambda _: None) -> ResponsesSocket:
    """Return a socket to this server. `on_progress` is told while a turn waits for its model."""
    socket = ResponsesSocket(on_progress)
    await socket.open(address)
    return socket


_HINT = "Try again; `vivace status` says more."


def _lost() -> ServerGone:
    return ServerGone("The connection to the server was lost.", _HINT)


def _unreachable(error: Exception) -> ServerGone:
    return ServerGone(
        f"The server cannot be reached: {error or 'it does not answer'}.", "See `vivace status`."
    )
