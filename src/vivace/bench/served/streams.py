"""Bytes from the server to the JSON of its events: WebSocket frames, and server-sent events in HTTP chunks.

Owns reading, as little of it as the server makes necessary: what is measured is the server, and a client's
library would be most of it. Does not own sockets. Both readers take bytes as they come, cut anywhere.
"""

import struct

from vivace.errors import RequestRefused

TEXT, CLOSE, PING, PONG = 1, 8, 9, 10
FINAL = 0x80
DATA = b"\ndata: "
_SHORT, _LONG = struct.Struct(">H"), struct.Struct(">Q")


class FrameReader:
    """The server's side of a WebSocket: unmasked, each message in one frame."""

    def __init__(self) -> None:
        self._buffer = b""
        self.pings: list[bytes] = []  # to be answered
        self.is_closed = False

    def feed(self, data: bytes) -> list[bytes]:
        """Return the JSON of each event that is complete now."""
        buffer, at = self._buffer + data, 0
        events = []
        while at < len(buffer) and (frame := _frame(buffer, at)):
            kind, start, at = frame
            if kind == FINAL | TEXT:
                events.append(buffer[start:at])
            elif kind == FINAL | PING:
                self.pings.append(buffer[start:at])
            elif kind == FINAL | CLOSE:
                self.is_closed = True
            else:
                assert kind == FINAL | PONG, f"a frame that our server never sends: {kind:#x}"
        self._buffer = buffer[at:]
        return events


def _frame(buffer: bytes, at: int) -> tuple[int, int, int] | None:
    """Return the first byte and the payload's start and end of the frame at `at`, or None if incomplete."""
    held = len(buffer) - at
    if held < 2:
        return None
    length, start = buffer[at + 1], at + 2
    if length == 126:
        if held < 4:
            return None
        (length,), start = _SHORT.unpack_from(buffer, start), at + 4
    elif length == 127:
        if held < 10:
            return None
        (length,), start = _LONG.unpack_from(buffer, start), at + 10
    end = start + length
    return (buffer[at], start, end) if end <= len(buffer) else None


def framed(payload: bytes, key: bytes, kind: int = TEXT) -> bytes:
    """Return a client's frame, masked."""
    length = len(payload)
    if length < 126:
        head = bytes([FINAL | kind, 0x80 | length])
    elif length < 1 << 16:
        head = bytes([FINAL | kind, 0x80 | 126]) + _SHORT.pack(length)
    else:
        head = bytes([FINAL | kind, 0x80 | 127]) + _LONG.pack(length)
    mask = (key * (length // 4 + 1))[:length]
    masked = int.from_bytes(payload, "big") ^ int.from_bytes(mask, "big")
    return head + key + masked.to_bytes(length, "big")


class EventReader:
    """An HTTP answer in chunks, whose body is server-sent events: a line `event:` and a line `data:` each."""

    def __init__(self) -> None:
        self._buffer = b""
        self._body = b""
        self.status = 0  # of the answer, from when its head is there
        self.is_over = False

    def feed(self, data: bytes) -> list[bytes]:
        """Return the JSON of each event that is complete now."""
        self._buffer += data
        if not self.status and not self._read_head():
            return []
        if self.status != 200:  # no events: an error, which is told at once
            raise RequestRefused(f"The server refused: {self._buffer.decode()}.", status=self.status)
        *events, self._body = (self._body + self._read_chunks()).split(b"\n\n")
        return [event[event.index(DATA) + len(DATA) :] for event in events]

    def _read_head(self) -> bool:
        head, blank, rest = self._buffer.partition(b"\r\n\r\n")
        if blank:
            self.status, self._buffer = int(head.split(b" ", 2)[1]), rest
        return bool(blank)

    def _read_chunks(self) -> bytes:
        """Return the body of all complete chunks."""
        buffer, at, body = self._buffer, 0, b""
        while (line_end := buffer.find(b"\r\n", at)) >= 0:
            start = line_end + 2
            end = start + int(buffer[at:line_end], 16)
            if len(buffer) < end + 2:
                break
            at = end + 2
            self.is_over = self.is_over or start == end
            body += buffer[start:end]
        self._buffer = buffer[at:]
        return body
