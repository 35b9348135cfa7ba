"""Server-sent events from a stranger: bytes in, cut anywhere, events out.

Owns lines (LF, CR or CRLF), comments, data in several lines, a byte order mark, and the limit on what is
held until an event is whole. Bytes that are no UTF-8 become U+FFFD. Does not know what is in the data.
"""

import re
from typing import NamedTuple

MAX_EVENT_BYTES = 8 * 1024 * 1024

_LINE_END = re.compile(rb"\r\n|\r|\n")


class TooLong(Exception):
    """An event that never ends."""


class ServerEvent(NamedTuple):
    name: str  # "" if it has none
    data: str


class EventStream:
    def __init__(self, max_bytes: int = MAX_EVENT_BYTES) -> None:
        self._max_bytes = max_bytes
        self._line: list[bytes] = []  # the line that has not ended yet
        self._data: list[str] = []  # of the event that has not ended yet
        self._name = ""
        self._held_bytes = 0  # of both
        self._is_after_cr = False  # a line feed that comes now belongs to the line end before it
        self._is_first_line = True

    def feed(self, chunk: bytes) -> list[ServerEvent]:
        """Return the events that are whole now; raise `TooLong` if one exceeds the limit."""
        if not chunk:
            return []
        if self._is_after_cr and chunk.startswith(b"\n"):
            chunk = chunk[1:]
        self._is_after_cr = chunk.endswith(b"\r")
        *ended, rest = _LINE_END.split(chunk)
        events: list[ServerEvent] = []
        for piece in ended:
            self._hold(piece)
            line, self._line = b"".join(self._line), []
            self._read_line(line, events)
        self._hold(rest)
        return events

    def finish(self) -> list[ServerEvent]:
        """Return the last event. Some servers leave out the empty line after it."""
        line, self._line, events = b"".join(self._line), [], list[ServerEvent]()
        if line:
            self._read_line(line, events)
        self._read_line(b"", events)
        return events

    def _hold(self, piece: bytes) -> None:
        if piece:
            self._line.append(piece)
            self._held_bytes += len(piece)
            if self._held_bytes > self._max_bytes:
                raise TooLong

    def _read_line(self, line: bytes, events: list[ServerEvent]) -> None:
        text = line.decode("utf-8", "replace")
        if self._is_first_line:
            text, self._is_first_line = text.removeprefix("\ufeff"), False
        if not text:
            if self._data:
                events.append(ServerEvent(self._name, "\n".join(self._data)))
            self._name, self._data, self._held_bytes = "", [], 0
            return
        field, _, value = text.partition(":")
        value = value.removeprefix(" ")
        if field == "data":
            self._data.append(value)
            return
        self._held_bytes -= len(line)
        if field == "event":
            self._name = value
