"""A relay between a client and the server that keeps what they say: how tests know what a real client sent.

Bytes pass as they are, but for the port in `Host`, which must be the server's own. A side that goes away
takes the other with it at once, so that a dropped connection is still one. An answer can be cut in the
middle. Owns reading of WebSocket frames; of plain HTTP the request lines and the bytes of answers are kept.
"""

import contextlib
import json
import re
import socket
import struct
from typing import Any

from tests.e2e.listening import Listener, hang_up

Json = dict[str, Any]
ENDS = ("response.completed", "response.incomplete", "response.failed")


class Line:
    """One WebSocket: the messages in both directions, in their order."""

    def __init__(self) -> None:
        self.sent: list[Json] = []  # by the client
        self.heard: list[Json] = []
        self.is_closed = False

    def kinds(self) -> list[str]:
        """Of what the client heard; of deltas in a row only the first."""
        kinds = [message["type"] for message in self.heard]
        return [kind for at, kind in enumerate(kinds) if not at or kind != kinds[at - 1]]

    def creates(self) -> list[Json]:
        """The requests that want an answer."""
        return [each for each in self.sent if each["type"] == "response.create" and "generate" not in each]

    def ends(self) -> list[Json]:
        """How they ended."""
        warm_ups = len([each for each in self.sent if "generate" in each])
        return [message["response"] for message in self.heard if message["type"] in ENDS][warm_ups:]

    def text(self) -> str:
        """All that was said so far."""
        kind = "response.output_text.delta"
        return "".join(message["delta"] for message in self.heard if message["type"] == kind)


class Wiretap:
    """Listens on a port of its own."""

    def __init__(self, port: int) -> None:
        self._server_port = port
        self.requests: list[str] = []  # method and path, of upgrades too
        self.lines: list[Line] = []
        self.heard = ""  # by all clients, over plain HTTP
        self.cut_at = ""  # the next answer that says this ends there, as if the network had failed
        self._listener = Listener(self._connect)
        self.close = self._listener.close

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._listener.port}/v1"

    def lines_about(self, words: str) -> list[Line]:
        """Those on which somebody asked just this, the oldest first."""
        return [line for line in self.lines if words in map(last_words, line.creates())]

    def _connect(self, client: socket.socket) -> None:
        try:
            server = self._listener.connect(self._server_port)
        except OSError:  # nobody is there: the client is to see the same
            return hang_up(client)
        line = Line()
        self._listener.run(self._down, client, server, line)
        return self._up(client, server, line)

    def _up(self, client: socket.socket, server: socket.socket, line: Line) -> None:
        """From the client to the server."""
        mine, its = (f"127.0.0.1:{port}".encode() for port in (self._listener.port, self._server_port))
        frames: Frames | None = None
        with contextlib.suppress(OSError):
            while data := client.recv(1 << 16):
                if frames:
                    line.sent += frames.read(data)
                elif found := re.match(rb"([A-Z]+ \S+) HTTP/1.1\r\n", data):
                    data = data.replace(mine, its, 1)
                    self.requests.append(found[1].decode("latin-1"))
                    if b"upgrade: websocket" in data.lower():
                        frames = Frames()
                        self.lines.append(line)
                server.sendall(data)
        line.is_closed = True
        hang_up(client, server)

    def _down(self, client: socket.socket, server: socket.socket, line: Line) -> None:
        """From the server to the client."""
        head = b""
        frames: Frames | None = None
        with contextlib.suppress(OSError):
            while data := server.recv(1 << 16):
                if frames is None and not head.startswith(b"HTTP/1.1 2"):
                    head += data
                    if head.startswith(b"HTTP/1.1 101") and b"\r\n\r\n" in head:
                        frames = Frames()
                        line.heard += frames.read(head.partition(b"\r\n\r\n")[2])
                elif frames:
                    line.heard += frames.read(data)
                if frames is None:
                    self.heard += data.decode("utf-8", "replace")
                client.sendall(data)
                if self._is_cut(data):
                    break
        hang_up(client, server)

    def _is_cut(self, data: bytes) -> bool:
        """Return whether the answer is to end here. It is cut once."""
        if not self.cut_at or self.cut_at.encode() not in data:
            return False
        self.cut_at = ""
        return True


class Frames:
    """Reads JSON messages from one direction of a WebSocket, in whatever pieces it comes."""

    def __init__(self) -> None:
        self._bytes = bytearray()
        self._message = b""

    def read(self, data: bytes) -> list[Json]:
        self._bytes += data
        messages = []
        while frame := self._frame():
            is_last, opcode, payload = frame
            if opcode > 2:  # control
                continue
            self._message += payload
            if is_last:
                messages.append(json.loads(self._message))
                self._message = b""
        return messages

    def _frame(self) -> tuple[bool, int, bytes] | None:
        """The next whole frame, taken off."""
        held, at = self._bytes, 2
        if len(held) < at:
            return None
        size = held[1] & 0x7F
        if size >= 126:
            form = ">H" if size == 126 else ">Q"
            at += struct.calcsize(form)
            if len(held) < at:
                return None
            (size,) = struct.unpack_from(form, held, 2)
        mask = bytes(held[at : at + 4]) if held[1] & 0x80 else b""
        at += len(mask)
        if len(held) < at + size or (held[1] & 0x80 and len(mask) < 4):
            return None
        payload = bytes(held[at : at + size])
        is_last, opcode = bool(held[0] & 0x80), held[0] & 0x0F
        del held[: at + size]
        if mask:
            payload = bytes(byte ^ mask[index & 3] for index, byte in enumerate(payload))
        return is_last, opcode, payload


def last_words(create: Json) -> str:
    """The text of the last message of a request."""
    messages = [item for item in create["input"] if item["type"] == "message"]
    return "".join(part["text"] for part in messages[-1]["content"]) if messages else ""
