"""The Responses API over one WebSocket that stays open: what the CLI, the agent and the screen speak.

Owns the connection and turning answers into events or typed errors. One turn at a time: the next `stream`
waits for the one before. Does not retry: on `ServerGone` the caller asks `warm` for a server again.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from types import TracebackType
from typing import Any

import msgspec
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus

from vivace.client.warm import ServerAddress
from vivace.errors import RequestRefused, ServerGone
from vivace.protocol.shapes.events import (
    AnyEvent,
    Response,
    ResponseCompleted,
    ResponseCreated,
    ResponseFailed,
    ResponseIncomplete,
)
from vivace.protocol.shapes.refusal import ErrorFrame

OPEN_S = 10.0

_decode = msgspec.json.Decoder(AnyEvent | ErrorFrame).decode


class ResponsesClient:
    def __init__(self, address: ServerAddress) -> None:
        self._address = address
        self._socket: ClientConnection | None = None
        self._in_turn = asyncio.Lock()
        self._abandoned: str | None = None  # a cancelled response whose last events are still to come

    async def __aenter__(self) -> "ResponsesClient":
        await self._connected()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._close()

    async def stream(self, request: dict[str, Any]) -> AsyncGenerator[AnyEvent]:
        """The events of one turn, to its terminal event. Leaving early cancels the turn.

        `request` is the body of a create. Raises `RequestRefused` for an error frame or a failed response,
        `ServerGone` when the connection is lost.
        """
        async with self._in_turn:
            socket = await self._connected()
            response_id: str | None = None
            is_over = False
            try:
                await self._send(socket, {"type": "response.create"} | request)
                async for event in self._events(socket):
                    if isinstance(event, ResponseCreated):
                        response_id = event.response.id
                    is_over = event.is_terminal
                    yield _checked(event)
                    if is_over:
                        return
            except RequestRefused:
                is_over = True
                raise
            finally:
                if not is_over:
                    await self._abandon(socket, response_id)

    async def complete(self, request: dict[str, Any]) -> Response:
        """The finished response: completed, or incomplete with the reason in it."""
        async for event in self.stream(request):
            if isinstance(event, ResponseCompleted | ResponseIncomplete):
                return event.response
        raise AssertionError("a stream ends with a terminal event or raises")

    async def prefill(self, request: dict[str, Any]) -> Response:
        """Put the input into the KV and generate nothing; continue from the response's id."""
        return await self.complete(request | {"generate": False})

    async def score(self, request: dict[str, Any], candidates: list[str]) -> list[float]:
        """Log-probability of each candidate as what the assistant would say next."""
        response = await self.complete(request | {"generate": False, "candidates": candidates})
        assert isinstance(response.scores, list)
        return response.scores

    async def _connected(self) -> ClientConnection:
        if self._socket is None:
            self._abandoned = None
            self._socket = await _open(self._address)
        return self._socket

    async def _close(self) -> None:
        socket, self._socket = self._socket, None
        if socket:
            await socket.close()

    async def _send(self, socket: ClientConnection, message: dict[str, Any]) -> None:
        try:
            await socket.send(msgspec.json.encode(message).decode())
        except ConnectionClosed as error:
            raise await self._gone() from error

    async def _events(self, socket: ClientConnection) -> AsyncIterator[AnyEvent]:
        """Events of the turn that was just sent: the rest of an abandoned one before it is dropped."""
        while True:
            try:
                message = _decode(await socket.recv(decode=False))
            except ConnectionClosed as error:
                raise await self._gone() from error
            if self._abandoned:
                if not isinstance(message, ErrorFrame) and message.is_terminal:
                    self._abandoned = None
            elif isinstance(message, ErrorFrame):
                body = message.error
                raise RequestRefused(body.message, code=body.code, status=message.status)
            else:
                yield message

    async def _abandon(self, socket: ClientConnection, response_id: str | None) -> None:
        """End a turn that nobody wants any more. Without its id, the connection has to go."""
        if socket is not self._socket:
            return
        if response_id is None:
            self._socket = None
            socket.transport.abort()
            return
        self._abandoned = response_id
        await self._send(socket, {"type": "response.cancel", "response_id": response_id})

    async def _gone(self) -> ServerGone:
        await self._close()
        return ServerGone("The connection to the server was lost.", "Try again; `vivace status` says more.")


async def _open(address: ServerAddress) -> ClientConnection:
    try:
        return await connect(
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


def _checked(event: AnyEvent) -> AnyEvent:
    if isinstance(event, ResponseFailed):
        error = event.response.error
        assert error is not None
        raise RequestRefused(error.message, code=error.code, status=500)
    return event
