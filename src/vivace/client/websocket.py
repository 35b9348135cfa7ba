"""The client's side of a WebSocket (RFC 6455): the handshake, whole messages in, text messages out.

Owns the frames, and how often the socket is read. Written by hand because the library takes 50 ms to import,
which every command would pay, and 25 µs a message, which every token would pay. Extensions are not offered,
so the server uses none. Does not know what the messages mean (`socket`).
"""

import asyncio
import base64
import contextlib
import hashlib
import os
import socket
from collections.abc import Callable
from urllib.parse import urlsplit

CLOSE_S = 2.0  # for the server to answer a close
READS_PER_S, BURST = 125, 16  # a flood is read this often, many messages at a time; a burst at once
REST_S = 1 / READS_PER_S

_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"  # of every WebSocket, by the standard
_FINAL, _RESERVED, _OPCODE, _MASKED = 0x80, 0x70, 0x0F, 0x80
_CONTINUATION, _TEXT, _BINARY, _CLOSE, _PING, _PONG = 0, 1, 2, 8, 9, 10
_NORMAL = (1000).to_bytes(2, "big")

OnMessage = Callable[[bytearray], None]


class HandshakeRefused(Exception):
    """The server did not become a WebSocket. `status` is that of its HTTP answer, 0 if it gave none."""

    def __init__(self, status: int) -> None:
        super().__init__(f"the server answered with status {status}" if status else "no HTTP answer")
        self.status = status


class BadFrame(Exception):
    """The server sent what no WebSocket server may send."""


class FrameReader:
    """Makes frames of bytes, however they come."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._message = bytearray()  # of a message in several frames
        self._is_in_message = False

    def feed(self, data: bytes) -> list[tuple[int, bytearray]]:
        """Return what is whole now: (opcode, payload) of each message and of each control frame."""
        buffer = self._buffer
        buffer += data
        found: list[tuple[int, bytearray]] = []
        at, end = 0, len(buffer)
        while end - at >= 2:
            first, length, start = buffer[at], buffer[at + 1], at + 2
            if length >= 126:
                if length & _MASKED:
                    raise BadFrame("a masked frame")
                start += 2 if length == 126 else 8
                if end < start:
                    break
                length = int.from_bytes(buffer[at + 2 : start], "big")
            if end - start < length:
                break
            at = start + length
            if first == _FINAL | _TEXT and not self._is_in_message:  # nearly every frame
                found.append((_TEXT, buffer[start:at]))
            else:
                self._take(first, buffer[start:at], found)
        del buffer[:at]
        return found

    def _take(self, first: int, payload: bytearray, found: list[tuple[int, bytearray]]) -> None:
        """Take a frame of a message in several frames, or a control frame."""
        opcode = first & _OPCODE
        if first & _RESERVED:
            raise BadFrame("a frame of an extension")
        if opcode in (_CLOSE, _PING, _PONG):
            if not first & _FINAL:
                raise BadFrame("a control frame in parts")
            found.append((opcode, payload))
            return
        if opcode not in (_CONTINUATION, _TEXT, _BINARY) or self._is_in_message != (opcode == _CONTINUATION):
            raise BadFrame(f"opcode {opcode} out of place")
        self._message += payload
        self._is_in_message = not first & _FINAL
        if not self._is_in_message:
            found.append((_TEXT, self._message))
            self._message = bytearray()


def framed(opcode: int, payload: bytes) -> bytes:
    """Return one whole frame, masked as clients send it."""
    length = len(payload)
    if length < 126:
        head = bytes((_FINAL | opcode, _MASKED | length))
    elif length < 1 << 16:
        head = bytes((_FINAL | opcode, _MASKED | 126)) + length.to_bytes(2, "big")
    else:
        head = bytes((_FINAL | opcode, _MASKED | 127)) + length.to_bytes(8, "big")
    mask = os.urandom(4)
    repeated = int.from_bytes(mask * (length // 4) + mask[: length % 4], "big")
    return head + mask + (int.from_bytes(payload, "big") ^ repeated).to_bytes(length, "big")


def _accept(key: bytes) -> bytes:
    """Return what a server must answer to this key."""
    return base64.b64encode(hashlib.sha1(key + _GUID, usedforsecurity=False).digest())


class WebSocket(asyncio.Protocol):
    """One connection. `on_message` is called for each message, `on_lost` once, when it is gone."""

    def __init__(self, on_message: OnMessage, on_lost: Callable[[], None]) -> None:
        self._on_message, self._on_lost = on_message, on_lost
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._reader = FrameReader()
        self._head = b""  # of the handshake's answer
        self._key = base64.b64encode(os.urandom(16))
        self._opened: asyncio.Future[None] = self._loop.create_future()
        self._closed: asyncio.Future[None] = self._loop.create_future()
        self._is_close_sent = False
        self._recent_reads, self._read_at_s = 0.0, 0.0

    async def open(self, url: str, token: str) -> None:
        """Connect. Raise OSError if nobody listens, `HandshakeRefused` if it is not for us."""
        parts = urlsplit(url)
        is_secure = parts.scheme == "wss"
        host, port = parts.hostname or "", parts.port or (443 if is_secure else 80)
        await self._loop.create_connection(lambda: self, host, port, ssl=is_secure or None)
        assert self._transport is not None
        self._transport.write(
            f"GET {parts.path or '/'} HTTP/1.1\r\nHost: {parts.netloc}\r\n"
            f"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
            f"Sec-WebSocket-Key: {self._key.decode()}\r\nAuthorization: Bearer {token}\r\n\r\n".encode()
        )
        try:
            await self._opened
        except BaseException:
            self.abort()
            raise

    def send(self, text: bytes) -> None:
        if self._transport is not None and not self._is_close_sent:
            self._transport.write(framed(_TEXT, text))

    async def close(self) -> None:
        """Say that we leave, and wait until the connection is gone."""
        self._send_close()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_S):
                await asyncio.shield(self._closed)
        self.abort()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    # ---- called by the event loop ------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)

    def data_received(self, data: bytes) -> None:
        if not self._opened.done():
            data = self._take_head(data)
        try:
            for opcode, payload in self._reader.feed(data):
                if opcode == _TEXT:
                    self._on_message(payload)
                else:
                    self._take_control(opcode, payload)
        except BadFrame:
            self.abort()
        self._rest()

    def connection_lost(self, error: Exception | None) -> None:
        del error
        if not self._opened.done():
            self._opened.set_exception(HandshakeRefused(0))
        if not self._closed.done():
            self._closed.set_result(None)
            self._on_lost()

    def _take_head(self, data: bytes) -> bytes:
        """Read the answer to the handshake; return what follows it."""
        head, separator, rest = (self._head + data).partition(b"\r\n\r\n")
        if not separator:
            self._head = head
            return b""
        status, _, lines = head.partition(b"\r\n")
        code = [*status.split(b" "), b""][1]
        fields = [line.split(b":", 1) for line in lines.split(b"\r\n") if b":" in line]
        accepted = [value.strip() for name, value in fields if name.lower() == b"sec-websocket-accept"]
        if code != b"101" or accepted != [_accept(self._key)]:
            self._opened.set_exception(HandshakeRefused(int(code) if code.isdigit() else 0))
            return b""
        self._opened.set_result(None)
        return rest

    def _take_control(self, opcode: int, payload: bytearray) -> None:
        assert self._transport is not None
        if opcode == _PING:
            self._transport.write(framed(_PONG, bytes(payload)))
        elif opcode == _CLOSE:
            self._send_close()
            self._transport.close()

    def _send_close(self) -> None:
        if self._transport is not None and not self._is_close_sent and not self._transport.is_closing():
            self._is_close_sent = True
            self._transport.write(framed(_CLOSE, _NORMAL))

    def _rest(self) -> None:
        """Leave a flood in the system's buffer for a moment: reading more at a time costs less."""
        now_s = self._loop.time()
        passed = (now_s - self._read_at_s) * READS_PER_S
        self._recent_reads, self._read_at_s = max(0.0, min(BURST, self._recent_reads) - passed) + 1, now_s
        if self._recent_reads > BURST and self._transport is not None and not self._is_close_sent:
            self._transport.pause_reading()
            self._loop.call_later(REST_S, self._go_on)

    def _go_on(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()
