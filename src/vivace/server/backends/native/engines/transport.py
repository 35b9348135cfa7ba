"""What carries frames between the server and one engine.

Owns bytes: frames are packed and unpacked here, and the end of the connection is noticed here. Does not own
what frames mean or the process behind them (`process`), nor when another one is started
(`supervisor`).

Today that is one end of a socket pair. An engine on another machine needs a second `EngineTransport`, which
has shaken hands (version, key) before it is given to anyone; nothing else has to know.
"""

import asyncio
import logging
import socket
from collections.abc import Callable
from typing import Protocol, Self, cast

from vivace.engine.wire.frames import FrameError, FromEngine, ToEngine, pack, server_unpacker

OnFrames = Callable[[list[FromEngine]], None]  # all that came in one read, in order

log = logging.getLogger(__name__)


class EngineTransport(Protocol):
    """Carries frames. Those of the engine go to the `on_frames` that it was opened with, as they come."""

    @property
    def is_closed(self) -> bool:
        """Return whether either side has ended the connection. `on_closed` is called once when it ends."""
        ...

    def send(self, frame: ToEngine) -> None:
        """Send a frame; do nothing if the connection is closed."""
        ...

    def close(self) -> None:
        """Close the connection once everything that was sent has left."""
        ...


class SocketTransport(asyncio.Protocol):
    """Frames over a connected stream socket."""

    def __init__(self, on_frames: OnFrames, on_closed: Callable[[], None]) -> None:
        self._on_frames = on_frames
        self._on_closed = on_closed
        self._unpacker = server_unpacker()
        self._transport: asyncio.Transport | None = None
        self._is_closed = False

    @classmethod
    async def open(cls, connected: socket.socket, on_frames: OnFrames, on_closed: Callable[[], None]) -> Self:
        """Take over a connected socket."""
        loop = asyncio.get_running_loop()
        _, made = await loop.create_unix_connection(lambda: cls(on_frames, on_closed), sock=connected)
        return made

    @property
    def is_closed(self) -> bool:
        return self._is_closed

    def send(self, frame: ToEngine) -> None:
        assert self._transport is not None, "open comes first"
        if not self._is_closed:
            self._transport.write(pack(frame))

    def close(self) -> None:
        if self._transport:
            self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's own do not inherit from it

    def data_received(self, data: bytes) -> None:
        try:
            frames = self._unpacker.feed(data)
        except FrameError as error:
            log.error("the engine sent bytes that are no frame: %s", error)
            assert self._transport is not None
            self._transport.abort()
        else:
            self._on_frames(frames)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        self._is_closed = True
        self._on_closed()
