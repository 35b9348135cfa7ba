"""The rest of the world, as a client under test sees it: a proxy that lets nobody through and notes who was
wanted. Only loopback is let through, for clients that would ask a proxy even for that.
"""

import contextlib
import re
import socket

from tests.e2e.listening import Listener, hang_up


class Outside:
    def __init__(self) -> None:
        self.wanted: list[str] = []  # request lines
        self._listener = Listener(self._answer)
        self.close = self._listener.close

    def env(self) -> dict[str, str]:
        """Variables that send a process here."""
        names = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")
        proxies = dict.fromkeys((*names, *map(str.lower, names)), f"http://127.0.0.1:{self._listener.port}")
        return proxies | {"NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1"}

    def _answer(self, client: socket.socket) -> None:
        with contextlib.suppress(OSError):
            line = client.recv(1 << 16).partition(b"\r\n")[0].decode("latin-1")
            if found := re.match(r"CONNECT 127\.0\.0\.1:(\d+) ", line):
                server = self._listener.connect(int(found[1]))
                client.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
                self._listener.run(_pass_on, server, client)
                _pass_on(client, server)
            elif line:
                self.wanted.append(line)
                client.sendall(b"HTTP/1.1 403 Forbidden\r\ncontent-length: 0\r\n\r\n")
        hang_up(client)


def _pass_on(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(1 << 16):
            target.sendall(data)
    hang_up(source, target)
