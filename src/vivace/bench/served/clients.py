"""Two clients on blocking sockets: one WebSocket that stays open, and one HTTP connection for each request.

Own the connection and nothing of what is said on it. Both are as thin as they can be, and equally so: what an
SDK adds to either is not ours to measure.
"""

import base64
import os
import secrets
import socket
import struct
from types import TracebackType
from typing import Any, Self

import msgspec

from vivace.bench.served.streams import PONG, EventReader, FrameReader, framed
from vivace.client.warm import ServerAddress
from vivace.errors import RequestRefused, ServerGone
from vivace.protocol.rundir import HOST

READ_BYTES = 1 << 18
SILENCE_S = 120

_encode = msgspec.json.Encoder().encode


def connected(port: int) -> socket.socket:
    link = socket.create_connection((HOST, port))
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    # The kernel's time limit: with Python's own, each read would first ask whether something is there.
    link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", SILENCE_S, 0))
    return link


class Client:
    """Events from one connection, as the JSON that came."""

    link: socket.socket
    reader: FrameReader | EventReader

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self.link.close()

    def read(self) -> list[bytes]:
        """Wait for data and return the events that are whole now, perhaps none."""
        try:
            data = self.link.recv(READ_BYTES)
        except OSError as error:
            raise ServerGone(f"The server said nothing: {error}.") from error
        if not data:
            raise ServerGone("The server closed the connection.", "See its log.")
        return self.reader.feed(data)


class SocketClient(Client):
    reader: FrameReader

    def __init__(self, address: ServerAddress) -> None:
        self.link = connected(address.port)
        self.reader = FrameReader()
        key = secrets.token_bytes(16)
        self.link.sendall(_upgrade(address, key))
        head = b""
        while b"\r\n\r\n" not in head:
            head += self.link.recv(READ_BYTES) or b"\r\n\r\n"
        if not head.startswith(b"HTTP/1.1 101"):
            self.close()
            raise RequestRefused(f"No WebSocket: {head.splitlines()[0]!r}.")

    def read(self) -> list[bytes]:
        events = super().read()
        while self.reader.pings:
            self.link.sendall(framed(self.reader.pings.pop(), os.urandom(4), PONG))
        return events

    def send(self, message: dict[str, Any]) -> None:
        try:
            self.link.sendall(framed(_encode({"type": "response.create"} | message), os.urandom(4)))
        except OSError as error:
            raise ServerGone("The server closed the connection.", "See its log.") from error


class HttpClient(Client):
    """One request on a connection of its own, answered with events."""

    def __init__(self, address: ServerAddress, body: dict[str, Any]) -> None:
        self.link = connected(address.port)
        self.reader = EventReader()
        self.link.sendall(_request(address, _encode(body | {"stream": True})))


def _upgrade(address: ServerAddress, key: bytes) -> bytes:
    return _head(
        address,
        "GET",
        Upgrade="websocket",
        Connection="Upgrade",
        **{"Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": base64.b64encode(key).decode()},
    )


def _request(address: ServerAddress, body: bytes) -> bytes:
    fields = {"Content-Type": "application/json", "Content-Length": str(len(body)), "Connection": "close"}
    return _head(address, "POST", **fields) + body


def _head(address: ServerAddress, method: str, **fields: str) -> bytes:
    lines = [
        f"{method} /v1/responses HTTP/1.1",
        f"Host: {HOST}:{address.port}",
        f"Authorization: Bearer {address.token}",
        *(f"{name}: {value}" for name, value in fields.items()),
    ]
    return "\r\n".join([*lines, "", ""]).encode()
