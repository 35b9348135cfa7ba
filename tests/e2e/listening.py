"""Listening on loopback, and passing bytes on: what the wiretap and the outside world have in common.

Owns sockets and threads from the first connection to the last, so that none is left when a test is over.
"""

import contextlib
import socket
import threading
from collections.abc import Callable


class Listener:
    """Each connection is given to `take`, in a thread of its own."""

    def __init__(self, take: Callable[[socket.socket], None]) -> None:
        self._take = take
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._sockets: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._is_closing = False
        self.run(self._accept)

    def connect(self, port: int) -> socket.socket:
        server = socket.create_connection(("127.0.0.1", port))
        return self._kept(server)

    def run(self, work: Callable[..., None], *args: object) -> None:
        """Beside everything else, until it ends by itself: at the latest when all sockets are hung up."""
        thread = threading.Thread(target=work, args=args, daemon=True)
        self._threads.append(thread)
        thread.start()

    def close(self) -> None:
        self._is_closing = True
        with contextlib.suppress(OSError):
            socket.create_connection(("127.0.0.1", self.port)).close()  # wakes `accept`, on every system
        self._threads[0].join()
        hang_up(*self._sockets)
        for thread in self._threads:
            thread.join()
        for each in (self._listener, *self._sockets):
            each.close()

    def _accept(self) -> None:
        while True:
            client, _ = self._listener.accept()
            self._kept(client)
            if self._is_closing:
                return
            self.run(self._take, client)

    def _kept(self, one: socket.socket) -> socket.socket:
        one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._sockets.append(one)
        return one


def hang_up(*sides: socket.socket) -> None:
    for side in sides:
        with contextlib.suppress(OSError):
            side.shutdown(socket.SHUT_RDWR)
