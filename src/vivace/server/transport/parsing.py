"""Parsing what clients send without holding up the event loop.

Owns where it is done, and the order of a socket's messages while one of them is parsed. Does not own what
they may hold (`protocol`), nor reading them (`sse`, `websocket`).
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import TypeVar

from vivace.protocol.connection.messages import Message, parse_message
from vivace.protocol.shapes.refusal import mistake
from vivace.protocol.shapes.requests import MAX_BODY_BYTES

LARGE_BYTES = 256 * 1024  # above this (some ms) it is done beside the event loop
MAX_WAITING = 64  # messages of one socket that are not parsed, or behind one that is not
MAX_WAITING_CHARS = 2 * MAX_BODY_BYTES

log = logging.getLogger(__name__)
T = TypeVar("T")


async def parsed(parse: Callable[[bytes], T], body: bytes) -> T:
    return await asyncio.to_thread(parse, body) if len(body) > LARGE_BYTES else parse(body)


class MessageParser:
    """Parse the messages of one socket and hand them to `handle`.

    Requests are handled in the order they came. A cancel, an interrupt or a steer does not wait for a large
    request that came before it: it is about a response that runs already.
    """

    def __init__(self, handle: Callable[[Message], None]) -> None:
        self._handle = handle
        self._waiting: deque[str | Message] = deque()  # the first is a text, which is being parsed
        self._waiting_chars = 0
        self._task: asyncio.Task[None] | None = None

    def put(self, text: str) -> None:
        """Handle a message now, or when what must come before it is handled."""
        message = text if len(text) > LARGE_BYTES else _parse(text)
        if isinstance(message, Message) and not (self._waiting and message.is_request):
            return self._handle(message)
        self._waiting.append(message)
        self._waiting_chars += len(text)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._parse_waiting())
        return None

    async def has_room(self) -> None:
        """Wait while too much is unparsed."""
        while self._waiting_chars > MAX_WAITING_CHARS or len(self._waiting) > MAX_WAITING:
            assert self._task is not None, "it parses what waits"
            await asyncio.wait([self._task])

    def close(self) -> None:
        """Handle no more."""
        self._waiting.clear()
        if self._task:
            self._task.cancel()

    async def _parse_waiting(self) -> None:
        while self._waiting:
            head = self._waiting[0]
            message = head if isinstance(head, Message) else await asyncio.to_thread(_parse, head)
            self._waiting.popleft()
            self._waiting_chars -= message.size
            self._handle(message)


def _parse(text: str) -> Message:
    """Parse at the boundary: whatever goes wrong here is logged and answered."""
    try:
        return parse_message(text)
    except Exception:
        log.exception("a message could not be parsed")
        return Message(mistake(), len(text))
