"""The server process: uvicorn on one loopback socket, from the first connection to the last event.

Owns start, idle exit, signals and the order of the shutdown: no new turns, running turns end with their
terminal event, then sockets close, then the engine. Does not own routes (`app`) or locks (`instance`).
"""

import asyncio
import contextlib
import logging
import signal
import socket
import sys
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import uvicorn

from vivace.config import Settings
from vivace.protocol.requests import MAX_BODY_BYTES
from vivace.protocol.rundir import HOST
from vivace.server.activity import Activity
from vivace.server.app import build_app
from vivace.server.auth import ensure_token
from vivace.server.backends.native import NativeBackend
from vivace.server.instance import Instance

LAST_EVENTS_S = 2.0  # for clients to take the terminal events of the turns that a shutdown ended
CLOSE_S = 2

log = logging.getLogger(__name__)


class Server(uvicorn.Server):
    """Uvicorn, with our own signals and with a farewell to running turns before its own shutdown."""

    def __init__(
        self,
        config: uvicorn.Config,
        on_started: Callable[[], None],
        farewell: Callable[[], Coroutine[Any, Any, None]],
    ) -> None:
        super().__init__(config)
        self._on_started = on_started
        self._farewell = farewell

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Not uvicorn's: it would raise SIGTERM again at the end, and our exit would not be 0."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.leave)
        yield

    def leave(self) -> None:
        self.should_exit = True

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._on_started()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for server in self.servers:
            server.close()
        await self._farewell()
        await super().shutdown(sockets)


def run_server(
    settings: Settings, instance: Instance, listener: socket.socket, on_started: Callable[[], None]
) -> None:
    """Serve until told to stop or idle for too long."""
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        runner.run(_serve(settings, instance, listener, on_started))


async def _serve(
    settings: Settings, instance: Instance, listener: socket.socket, on_started: Callable[[], None]
) -> None:
    activity, backend, port = Activity(), NativeBackend(settings), listener.getsockname()[1]
    app = build_app(settings, backend, activity, port=port, token=ensure_token(settings))

    def started() -> None:
        instance.announce(port)
        log.info("serving at http://%s:%d", HOST, port)
        on_started()

    async def farewell() -> None:
        await backend.stop_turns()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(activity.all_answered(), LAST_EVENTS_S)

    server = Server(_uvicorn_config(app), started, farewell)
    idle = asyncio.create_task(_leave_when_idle(server, activity, settings.idle_minutes * 60))
    backend.start()
    try:
        await server.serve(sockets=[listener])
    finally:
        idle.cancel()
        await backend.close()
        instance.release()
        log.info("stopped")


async def _leave_when_idle(server: Server, activity: Activity, idle_s: float) -> None:
    await activity.unused_for(idle_s)
    log.info("nothing to do for %.0f s; leaving", idle_s)
    server.leave()


def _uvicorn_config(app: Any) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http="h11",
        ws="websockets-sansio",
        ws_max_size=2 * MAX_BODY_BYTES,  # up to this a message is answered with an error; above, a close
        ws_per_message_deflate=False,
        lifespan="off",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        timeout_graceful_shutdown=CLOSE_S,
    )


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    if sys.platform == "win32":
        return None
    import uvloop

    return uvloop.new_event_loop


def start_logging() -> None:
    """To stderr, which is the log file of a server in the background. No text of any turn is logged."""
    logging.basicConfig(
        level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    for noisy in ("uvicorn.error", "asyncio"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
