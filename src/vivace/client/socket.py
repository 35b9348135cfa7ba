"""One WebSocket with all of its lanes: a reader that sorts what comes, a writer that sends in order.

Owns which turn of a lane is next. One `response.create` of a lane is under way at a time, so that every event
and every error frame of a lane belongs to one turn. The reader never waits for whoever reads a turn: each has
its own buffer. Does not own the turns (`turn`) nor when a new socket is opened (`responses`).
"""

import asyncio
import contextlib
import time
from collections import deque
from typing import Any, Protocol

import msgspec
from msgspec import UNSET
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus

from vivace.client.turn import Turn
from vivace.errors import RequestRefused, ServerGone
from vivace.protocol.shapes.events import AnyEvent
from vivace.protocol.shapes.refusal import ErrorFrame
from vivace.protocol.shapes.requests import MAX_BODY_BYTES, check_lane

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
    def __init__(self, connection: ClientConnection) -> None:
        self.opened_at = time.monotonic()
        self.is_open = True
        self._connection = connection
        self._lanes: dict[str | None, Lane] = {}
        self._outgoing: asyncio.Queue[str] = asyncio.Queue()
        self._tasks = [asyncio.create_task(self._read()), asyncio.create_task(self._write())]

    @property
    def is_idle(self) -> bool:
        return not any(lane.current for lane in self._lanes.values())

    def begin(self, request: dict[str, Any], lane: str | None) -> Turn:
        """Put a turn at the end of its lane. It starts at once if the lane is free."""
        if lane is not None:
            check_lane(lane)
        if len(msgspec.json.encode(request)) > MAX_BODY_BYTES - 1024:  # refused there without naming its lane
            raise RequestRefused("The request is too large.", code="request_too_large", status=413)
        turn = Turn(request, lane, self._send)
        self._lanes.setdefault(lane, Lane()).waiting.append(turn)
        self._advance(lane)
        return turn

    async def close(self) -> None:
        """Close the connection, which ends every turn on it at the server."""
        self._lose(ServerGone("The connection was closed."))
        await self._connection.close()
        await self._stop_tasks()

    async def _stop_tasks(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _send(self, message: dict[str, Any]) -> None:
        if self.is_open:
            self._outgoing.put_nowait(msgspec.json.encode(message).decode())

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

    async def _read(self) -> None:
        """Hand everything to its turn until the connection ends; then end all turns."""
        error = _lost()
        try:
            while True:
                self._take(_decode(await self._connection.recv(decode=False)))
        except ConnectionClosed:
            pass
        except msgspec.MsgspecError as problem:
            error = ServerGone(f"The server sent what this client cannot read: {problem}.", error.hint)
            self._connection.transport.abort()
        finally:
            self._lose(error)

    async def _write(self) -> None:
        with contextlib.suppress(ConnectionClosed):  # which the reader notices
            while True:
                await self._connection.send(await self._outgoing.get())

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
        """The server could not tell whose message it refused. No turn may wait for an answer in vain."""
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


async def open_socket(address: Address) -> ResponsesSocket:
    """Connect to the server, or raise `RequestRefused` (a wrong token) or `ServerGone`."""
    try:
        connection = await connect(
            address.socket_url,
            additional_headers={"Authorization": f"Bearer {address.token}"},
            compression=None,
            max_size=None,
            open_timeout=OPEN_S,
            proxy=None,
        )
    except InvalidStatus as error:
        status = error.response.status_code
        raise RequestRefused(f"The server refused the connection ({status}).", status=status) from error
    except (OSError, TimeoutError, InvalidHandshake) as error:
        raise ServerGone(f"The server cannot be reached: {error}.", "See `vivace status`.") from error
    return ResponsesSocket(connection)


def _lost() -> ServerGone:
    return ServerGone("The connection to the server was lost.", "Try again; `vivace status` says more.")
