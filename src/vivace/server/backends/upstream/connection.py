"""One connection to an upstream: a socket, TLS if it must be, and HTTP/1.1 on it (`h11` does the grammar).

Owns the socket from its first step. `abort` closes it at once, in whichever phase it is, without a farewell
that the other side would have to answer. Does not own time limits or which connection is used
(`http`).
"""

import asyncio
import ssl
import time
from collections.abc import Iterable
from typing import Any

import h11

READ_BYTES = 64 * 1024
MAX_HEAD_BYTES = 64 * 1024

Headers = Iterable[tuple[str, str]]


class CountingReader(asyncio.StreamReader):
    """A reader that knows whether bytes have come that nobody has read."""

    def __init__(self) -> None:
        super().__init__(limit=READ_BYTES)
        self.unread_bytes = 0

    def feed_data(self, data: Any) -> None:
        self.unread_bytes += len(data)
        super().feed_data(data)

    async def read(self, n: int = -1) -> bytes:
        data = await super().read(n)
        self.unread_bytes -= len(data)
        return data


class Connection:
    def __init__(self, reader: CountingReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._http = h11.Connection(h11.CLIENT, max_incomplete_event_size=MAX_HEAD_BYTES)
        self._rested_at = 0.0  # when its last answer was whole
        self.has_heard = False  # a byte of the answer to this request has come

    @classmethod
    async def open(cls, host: str, port: int, tls: ssl.SSLContext | None) -> "Connection":
        loop, reader = asyncio.get_running_loop(), CountingReader()
        protocol = asyncio.StreamReaderProtocol(reader)
        transport, _ = await loop.create_connection(
            lambda: protocol, host, port, ssl=tls, server_hostname=host if tls else None
        )
        return cls(reader, asyncio.StreamWriter(transport, protocol, reader, loop))

    def is_usable(self, keep_s: float) -> bool:
        """Return whether it can take another request: it is not old, and the upstream has not closed it."""
        is_open = not self._writer.transport.is_closing() and not self._reader.at_eof()
        return is_open and not self._reader.unread_bytes and time.monotonic() - self._rested_at < keep_s

    async def send(self, method: str, target: str, headers: Headers, body: bytes) -> None:
        """Send a request. If it could not be sent whole, raise only if no answer can say why."""
        self.has_heard = False
        head = self._http.send(h11.Request(method=method, target=target, headers=list(headers)))
        end = [self._http.send(event) for event in (h11.Data(data=body), h11.EndOfMessage())]
        self._writer.write(b"".join(part for part in (head, *end) if part))
        try:
            await self._writer.drain()
        except ConnectionError:
            if self._reader.at_eof():
                raise

    async def head(self) -> h11.Response:
        """Return status and headers. Raise `OSError` or `h11.RemoteProtocolError` if none come."""
        while True:
            event = await self._next()
            if isinstance(event, h11.Response):
                return event
            if not isinstance(event, h11.InformationalResponse):
                raise ConnectionResetError("closed without an answer")

    async def body(self) -> bytes:
        """Return all of the body that has come since the last call, or b"" at its end."""
        parts: list[bytes] = []
        while self._http.their_state is h11.SEND_BODY:
            try:
                event = self._http.next_event()
            except h11.RemoteProtocolError:
                if any(parts):
                    break  # what came before that was well said
                raise
            if isinstance(event, h11.Data):
                parts.append(bytes(event.data))
            elif event is h11.NEED_DATA:
                if any(parts):
                    break
                await self._receive()
        return b"".join(parts)

    def rest(self) -> bool:
        """Return whether it can take another request: the answer is whole, and neither side closes."""
        is_done = self._http.our_state is h11.DONE and self._http.their_state is h11.DONE
        if (
            not is_done or self._http.trailing_data[0]
        ):  # what comes unasked would be taken for the next answer
            return False
        self._http.start_next_cycle()
        self._rested_at = time.monotonic()
        return True

    def abort(self) -> None:
        self._writer.transport.abort()

    async def _next(self) -> h11.Event | type[h11.PAUSED]:
        while (event := self._http.next_event()) is h11.NEED_DATA:
            await self._receive()
        return event  # type: ignore[return-value]

    async def _receive(self) -> None:
        data = await self._reader.read(READ_BYTES)
        self.has_heard = self.has_heard or bool(data)
        self._http.receive_data(data)
