"""The Responses API over one WebSocket that stays open: what the CLI, the agent and every face speak.

Owns the connection's life. Turns of different lanes run at the same time on one socket; turns of one lane run
one after the other. Nothing is sent twice: a lost connection ends every turn on it with `ServerGone`, and the
next turn opens a new one, where only stored responses can be continued (`previous_response_not_found` for the
others). A socket takes new turns for 55 minutes, since the server refuses them after 60; then the next turn
opens another one, and the old one closes when its turns are over. Does not start servers: that is `warm`.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Any

from vivace.client.socket import Address, ResponsesSocket, open_socket
from vivace.client.turn import OnProgress, Turn
from vivace.protocol.shapes.events import AnyEvent, Response

MAX_AGE_S = 55 * 60.0


class ResponsesClient:
    def __init__(
        self, address: Address, on_progress: OnProgress = lambda _: None, *, max_age_s: float = MAX_AGE_S
    ) -> None:
        """`on_progress` is called as a turn waits for its model to be loaded or to read, then with None."""
        self._address = address
        self._on_progress = on_progress
        self._max_age_s = max_age_s
        self._socket: ResponsesSocket | None = None
        self._retired: list[ResponsesSocket] = []  # too old for new turns; some still run
        self._opening = asyncio.Lock()

    async def __aenter__(self) -> "ResponsesClient":
        await self._connected()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        sockets = [*self._retired, *([self._socket] if self._socket else [])]
        self._socket, self._retired = None, []
        for socket in sockets:
            await socket.close()

    @asynccontextmanager
    async def turn(self, request: dict[str, Any], *, lane: str | None = None) -> AsyncIterator[Turn]:
        """Begin a turn, behind those of the same lane. Leaving the block cancels it if it still runs.

        `request` is the body of a create. At most 32 lanes can be named on one connection.
        """
        turn = (await self._connected()).begin(request, lane)
        try:
            yield turn
        finally:
            turn.cancel()

    async def stream(self, request: dict[str, Any], *, lane: str | None = None) -> AsyncGenerator[AnyEvent]:
        """Yield the events of one turn, to its end. Closing the generator cancels the turn."""
        async with self.turn(request, lane=lane) as turn:
            async for event in turn:
                yield event

    async def complete(self, request: dict[str, Any], *, lane: str | None = None) -> Response:
        """Return the finished response: completed, or incomplete with the reason in it."""
        async with self.turn(request, lane=lane) as turn:
            return await turn.response()

    async def prefill(self, request: dict[str, Any], *, lane: str | None = None) -> Response:
        """Put the input into the KV and generate nothing; continue from the response's id."""
        return await self.complete(request | {"generate": False}, lane=lane)

    async def _connected(self) -> ResponsesSocket:
        async with self._opening:
            await self._close_retired()
            socket = self._socket
            if socket and socket.is_open and time.monotonic() - socket.opened_at < self._max_age_s:
                return socket
            if socket:
                self._retired.append(socket)
            self._socket = None
            self._socket = await open_socket(self._address, self._on_progress)
            return self._socket

    async def _close_retired(self) -> None:
        done = [socket for socket in self._retired if socket.is_idle]
        self._retired = [socket for socket in self._retired if socket not in done]
        for socket in done:
            await socket.close()
