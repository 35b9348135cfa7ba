"""The engine's end of the stream to its server: bytes to frames and back.

Owns the socket it is given; where that comes from does not matter (today one half of a socket pair). Does not
own what frames mean (`engine`).
"""

import select
import socket

from vivace.engine.wire.frames import FrameError, FromEngine, ToEngine, engine_unpacker, pack

READ_BYTES = 1 << 16  # memory for a megabyte takes longer than reading a prompt


class Link:
    """Frames are received between passes, and looked at in the middle of a long one."""

    def __init__(self, stream: socket.socket) -> None:
        self._stream = stream
        self._poll = select.poll()
        self._poll.register(stream, select.POLLIN)
        self._unpacker = engine_unpacker()
        self._waiting: list[ToEngine] = []
        self.is_closed = False
        self.error: FrameError | None = None  # why it is closed, if the other side sent nonsense

    def send(self, *frames: FromEngine) -> None:
        """Send frames in one write. Where nobody listens they are dropped: reading finds the end, too."""
        try:
            self._stream.sendall(b"".join(map(pack, frames)))
        except OSError:
            return

    def receive(self, wait_s: float | None) -> list[ToEngine]:
        """Return the frames that have come. Wait up to `wait_s` for the first; None: until it or the end."""
        self._read()
        while not self._waiting and not self.is_closed and wait_s != 0.0:
            self._poll.poll(None if wait_s is None else wait_s * 1e3)
            self._read()
            wait_s = None if wait_s is None else 0.0
        received, self._waiting = self._waiting, []
        return received

    def peek(self) -> list[ToEngine] | None:
        """Return the frames that `receive` would, and leave them there; None if the other side is gone."""
        self._read()
        return None if self.is_closed else self._waiting

    def _read(self) -> None:
        while not self.is_closed and self._poll.poll(0):
            try:
                data = self._stream.recv(READ_BYTES)
                self._waiting += self._unpacker.feed(data)
            except OSError:
                data = b""
            except FrameError as error:
                data, self.error = b"", error
            self.is_closed = not data
