"""Frames on their way out: at once, or while the runner is busy with the pass that comes next.

Sending wakes whoever sleeps at the other end; between two passes the device may have nothing to do meanwhile.
Owns the order: whatever is sent goes behind what is held. Does not own sockets (`worker`).
"""

from collections.abc import Callable

from vivace.engine.wire.frames import FromEngine

Send = Callable[[FromEngine], None]


class Outbox:
    def __init__(self, send: Send) -> None:
        self._send = send
        self._held: list[FromEngine] = []

    def send(self, frame: FromEngine) -> None:
        self.flush()
        self._send(frame)

    def hold(self, frame: FromEngine) -> None:
        """Send it with the next `flush`, which must be a matter of microseconds."""
        self._held.append(frame)

    def flush(self) -> None:
        while self._held:
            self._send(self._held.pop(0))
