"""Sends frames: at once, or while the runner is busy with the next pass.

Sending wakes whoever sleeps at the other end; between two passes the device may have nothing to do meanwhile.
Owns the order: whatever is sent goes behind what is held. Does not own sockets (`worker`).
"""

from typing import Protocol

from vivace.engine.wire.frames import FromEngine


class Send(Protocol):
    """Sends frames, in their order and with one write."""

    def __call__(self, *frames: FromEngine) -> None: ...


class FrameSender:
    def __init__(self, send: Send) -> None:
        self._send = send
        self._held: list[FromEngine] = []

    def send(self, frame: FromEngine) -> None:
        self.hold(frame)
        self.flush()

    def hold(self, frame: FromEngine) -> None:
        """Send the frame with the next `flush`, which must follow within microseconds."""
        self._held.append(frame)

    def flush(self) -> None:
        if self._held:
            frames, self._held = self._held, []
            self._send(*frames)
