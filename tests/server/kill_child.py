"""A server that kills itself with -9 at one point of a response's way, for `test_kill`.

    python -m tests.server.kill_child SETTINGS POINT COUNT

The COUNTth response that comes to the point is the one. Nothing of this is in the server itself.
"""

import os
import signal
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from vivace.config import load_settings
from vivace.protocol.shapes.events import Terminal
from vivace.server import instance, process
from vivace.server.conversation.library import Library
from vivace.server.store.sqlite import SqliteStore
from vivace.server.transport.websocket import SocketSession

Method = Callable[..., Awaitable[Any]]


def main() -> None:
    given, point, count = sys.argv[1:]
    settings = load_settings().having(**msgspec.json.decode(given, type=dict))
    left = int(count)

    def die() -> None:
        nonlocal left
        left -= 1
        if not left:
            os.kill(os.getpid(), signal.SIGKILL)

    match point:
        case "before the put":
            Library.commit = _before(Library.commit, die)  # type: ignore[method-assign]
        case "after the put":
            Library.commit = _after(Library.commit, die)  # type: ignore[method-assign]
        case "after the promise":
            Library.begin = _after(Library.begin, die)  # type: ignore[method-assign]
        case "after the end was told":
            SocketSession._send = _after_the_end(SocketSession._send, die)  # type: ignore[method-assign]
        case "after the deletion":
            SqliteStore.delete = _after(SqliteStore.delete, die)  # type: ignore[method-assign]
        case _:
            raise AssertionError(point)
    held = instance.acquire_instance(settings)
    assert held is not None
    listener = instance.bind(settings.port, or_another=True)
    process.run_server(settings, held, listener, on_started=lambda: None)


def _before(method: Method, die: Callable[[], None]) -> Any:
    async def call(*given: Any) -> Any:
        die()
        return await method(*given)

    return call


def _after(method: Method, die: Callable[[], None]) -> Any:
    async def call(*given: Any) -> Any:
        result = await method(*given)
        die()
        return result

    return call


def _after_the_end(method: Method, die: Callable[[], None]) -> Any:
    async def call(self: SocketSession, message: Any) -> None:
        await method(self, message)
        if isinstance(message, Terminal):
            die()

    return call


if __name__ == "__main__":
    main()
