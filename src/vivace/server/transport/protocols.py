"""Uvicorn's protocols for HTTP and WebSocket, with what we need of them besides.

Owns how a WebSocket's messages leave: each is one frame, written at once. By way of ASGI and the library
it would take 15 µs longer, for every token. Owns when a client that takes nothing is given up; no timer runs
for one that does, since one for each message would cost 10 µs. Does not own messages or reading.
"""

import asyncio
import logging
import struct
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

BLOCKED_S = 10.0  # a client that takes nothing for so long is given up
CUT_S = 10.0  # for a client to take what it was sent before a connection was closed
WIRE = "vivace.wire"  # the extension of a WebSocket's scope that is its `WebSocketProtocol`
WHOLE_TEXT = 0x81  # the first byte of a frame that is a whole text message
_short_head, _head, _long_head = (struct.Struct(form).pack for form in (">BB", ">BBH", ">BBQ"))

log = logging.getLogger(__name__)


class HttpProtocol(H11Protocol):
    """Uvicorn's protocol, with a limit on how long a client may take nothing of an answer."""

    _patience: asyncio.TimerHandle | None = None

    def pause_writing(self) -> None:
        super().pause_writing()
        self._patience = self.loop.call_later(BLOCKED_S, self._give_up)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._rest()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._rest()

    def _rest(self) -> None:
        if self._patience:
            self._patience.cancel()
            self._patience = None

    def _give_up(self) -> None:
        """Close the connection. Its turns end as if the client had gone."""
        log.warning("a client took nothing for %.0f s; closing its connection", BLOCKED_S)
        self.transport.abort()


class WebSocketProtocol(WebSocketsSansIOProtocol):
    """Uvicorn's protocol, with direct writes and a limit on how long a close may take.

    Uvicorn's own waits for the client to take everything before it closes, and logs an error for every
    upgrade that is refused with an answer.
    """

    async def run_asgi(self) -> None:
        extensions: Any = self.scope["extensions"]
        extensions[WIRE] = self
        await super().run_asgi()

    @property
    def is_open(self) -> bool:
        return not self.close_sent and not self.transport.is_closing()

    @property
    def is_free(self) -> bool:
        """Return whether the client takes what it is sent. If not, writes pile up in memory."""
        return self.writable.is_set()

    @property
    def is_ready(self) -> bool:
        """Return whether a message may be written now."""
        return self.writable.is_set() and not self.close_sent and not self.transport.is_closing()

    async def freed(self) -> None:
        """Wait until the client takes what it is sent or has gone; else raise `TimeoutError`."""
        async with asyncio.timeout(BLOCKED_S):
            while not self.is_free:
                await self.writable.wait()

    def write(self, text: bytes) -> None:
        """Send a message."""
        self.transport.write(framed(text))

    async def send(self, message: Any) -> None:
        if message["type"] == "websocket.close":
            self.writable.set()
            self.loop.call_later(CUT_S, self.transport.abort)
        await super().send(message)
        if message["type"] == "websocket.http.response.body" and not message.get("more_body"):
            self.handshake_complete = True


def framed(text: bytes) -> bytes:
    """Return a text message in one WebSocket frame, unmasked as servers send it."""
    length = len(text)
    if length < 126:
        return _short_head(WHOLE_TEXT, length) + text
    if length < 1 << 16:
        return _head(WHOLE_TEXT, 126, length) + text
    return _long_head(WHOLE_TEXT, 127, length) + text
