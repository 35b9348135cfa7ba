"""A whole server in the test's own event loop: real parts on a real port, whose constants a test may change.

For what no client can bring about at will: a store that is slow at one instant, a limit of ten seconds made
short. Everything else is tested on servers in processes of their own (`conftest`).
"""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Callable
from typing import Any, TypeVar

from vivace.client.warm import ServerAddress
from vivace.config import Settings
from vivace.protocol.shapes.requests import ResponseCreate
from vivace.server import process
from vivace.server.backends.base import Turn
from vivace.server.backends.native.backend import NativeBackend
from vivace.server.caller import Caller
from vivace.server.conversation.library import Library
from vivace.server.instance import acquire_instance, bind
from vivace.server.store.base import Record
from vivace.server.store.sqlite import SqliteStore
from vivace.server.transport.access.auth import ensure_token
from vivace.server.transport.websocket import SocketRoute
from vivace.server.turns.background import BackgroundResponses
from vivace.server.turns.service import TurnService

T = TypeVar("T")


class Inside:
    """A running server and its parts."""

    def __init__(self, settings: Settings, parts: dict[str, Any]) -> None:
        self.settings = settings
        self.port: int = parts["port"]
        self.address = ServerAddress(self.port, ensure_token(settings), 0)
        self.sockets: SocketRoute = parts["sockets"]
        self.service: TurnService = parts["responses"]._service
        self.backgrounds: BackgroundResponses = parts["responses"]._backgrounds
        self.library: Library = self.service.library
        self.native: NativeBackend = parts["about"]._native
        self.activity = parts["about"]._activity
        self.metrics = parts["about"]._watch.metrics
        self.routes = parts["routes"]
        self.server: process.Server = parts["server"]

    async def begin(self, request: ResponseCreate, caller: Caller, response_id: str = "") -> Turn:
        """Begin a turn as the routes do."""
        return (await self.service.begin(request, caller, response_id)).turn

    @property
    def store(self) -> "Gated":
        store = self.library.store
        assert isinstance(store, Gated)
        return store

    async def calm(self) -> None:
        """Wait until nothing runs, waits or is held for anyone, and nobody is connected."""
        self.store.gate.set()
        self.store.failure = None
        self.store.knocking.clear()
        async with asyncio.timeout(60):
            while kept := self.kept() or (await self.native.status()).turns:  # noqa: ASYNC110
                await asyncio.sleep(0.005)
        assert not kept

    def kept(self) -> dict[str, object]:
        """What is held for somebody, by where."""
        queue, tiers = self.service._queue, ("realtime", "background")
        held = {
            "answers": self.activity.answers,
            "turns": list(self.native._turns),
            "watched": self._watched(),
            "running": sum(map(queue.running, tiers)),  # type: ignore[arg-type]
            "waiting": sum(map(queue.waiting, tiers)),  # type: ignore[arg-type]
            "reserved": sum(account.open for account in self.service._limits._accounts.values()),
            "held": list(self.library._held),
            "sockets": list(self.sockets._open),
            "connections": list(self.library._unstored),
            "backgrounds": list(self.backgrounds._tasks),
        }
        return {where: what for where, what in held.items() if what}

    def _watched(self) -> float:
        """Return how many turns the metrics show that are not over."""
        families = self.metrics._turn_families
        return sum(
            series.value
            for gauge in (families.running, families.waiting)
            for series in gauge._series.values()
        )


class Gated(SqliteStore):
    """A store whose writes wait while the gate is shut, or fail while it is told to."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.gate = asyncio.Event()
        self.gate.set()
        self.knocking = asyncio.Event()  # a write waits at the gate
        self.free = 0  # so many more go through even so
        self.failure: Exception | None = None
        self.puts: list[str] = []

    async def put(self, record: Record) -> None:
        self.puts.append(record.id)
        if self.free:
            self.free -= 1
        elif not self.gate.is_set():
            self.knocking.set()
            await self.gate.wait()
        if self.failure:
            raise self.failure
        await super().put(record)


async def until(ask: Callable[[], T], timeout_s: float = 60.0) -> T:
    """Wait until `ask` gives something true, and give that back; the loop goes on meanwhile."""
    async with asyncio.timeout(timeout_s):
        while not (answer := ask()):  # noqa: ASYNC110 - of others' state
            await asyncio.sleep(0.002)
    return answer


@contextlib.asynccontextmanager
async def served_here(settings: Settings, send_buffer_bytes: int = 0) -> AsyncIterator[Inside]:
    """Serve until the block ends; then nothing of the server is left.

    With a small send buffer a client that does not read is noticed after kilobytes, not after megabytes.
    """
    parts: dict[str, Any] = {}
    servers: list[process.Server] = []
    build, kind, store = process.build_app, process.Server, process.SqliteStore  # type: ignore[attr-defined]

    def build_app(**given: Any) -> Any:
        parts.update(given)
        app = build(**given)
        parts["routes"] = app.routes
        return app

    class Server(kind):  # type: ignore[valid-type, misc]
        def __init__(self, *given: Any) -> None:
            super().__init__(*given)
            servers.append(self)

    instance = acquire_instance(settings)
    assert instance is not None
    listener = bind(0, or_another=True)
    if send_buffer_bytes:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer_bytes)
    started = asyncio.Event()
    process.build_app, process.Server, process.SqliteStore = build_app, Server, Gated  # type: ignore
    try:
        task = asyncio.create_task(process._serve(settings, instance, listener, on_started=started.set))
        waiting = asyncio.create_task(started.wait())
        await asyncio.wait([task, waiting], return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        if task.done():
            task.result()
    finally:
        process.build_app, process.Server, process.SqliteStore = build, kind, store  # type: ignore
    inside = Inside(settings, parts | {"server": servers[0]})
    await until(lambda: inside.native.is_ready)
    try:
        yield inside
        await inside.calm()
    finally:
        inside.store.gate.set()
        servers[0].leave()
        servers[0].leave()
        async with asyncio.timeout(60):
            await task
