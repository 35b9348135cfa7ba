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
import time
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass
from typing import Any

import msgspec
import uvicorn
from starlette.types import ASGIApp

from vivace.config import Settings
from vivace.protocol.messages.thoughts import ThoughtSigner
from vivace.protocol.rundir import HOST
from vivace.protocol.shapes.requests import MAX_BODY_BYTES
from vivace.server.backends.native.backend import NativeBackend
from vivace.server.backends.upstream.backend import UpstreamBackend
from vivace.server.backends.upstream.settings import read_upstreams
from vivace.server.conversation.library import Library
from vivace.server.faces.host_process import HostProcess
from vivace.server.faces.relay import FaceRelay
from vivace.server.instance import Instance
from vivace.server.store.base import Store
from vivace.server.store.sqlite import SqliteStore
from vivace.server.transport.access.auth import ensure_token
from vivace.server.transport.access.keys import Keys
from vivace.server.transport.app import build_app
from vivace.server.transport.protocols import HttpProtocol, WebSocketProtocol
from vivace.server.transport.routes.about import About
from vivace.server.transport.routes.chat import ChatRoute
from vivace.server.transport.routes.completions import CompletionRoute
from vivace.server.transport.routes.messages import MessagesRoute
from vivace.server.transport.routes.responses import ResponsesRoute
from vivace.server.transport.websocket import SocketRoute
from vivace.server.tuning import BackgroundTuner
from vivace.server.turns.activity import Activity
from vivace.server.turns.background import BackgroundResponses
from vivace.server.turns.limits import Allowance, Limits
from vivace.server.turns.queue import TurnQueue
from vivace.server.turns.service import TurnService
from vivace.server.watch.history import History
from vivace.server.watch.loop_lag import measure_loop_lag
from vivace.server.watch.metrics import Metrics
from vivace.server.watch.tracing import start_tracing
from vivace.server.watch.turn_watch import Watch

SWITCH_S = 0.0005  # how long a thread that parses may keep the event loop waiting: Python's 5 ms are 8 tokens
LAST_EVENTS_S = 2.0  # for clients to take the terminal events of the turns that a shutdown ended
CLOSE_S = 2
SWEEP_EVERY_S = 3600.0
RESTARTED = {"code": "server_restarted", "message": "The server ended before this response did."}

log = logging.getLogger(__name__)


class Server(uvicorn.Server):
    """Uvicorn, with our own signals; running turns end before its own shutdown."""

    def __init__(
        self,
        config: uvicorn.Config,
        on_started: Callable[[], None],
        drain: Callable[[], Coroutine[Any, Any, None]],
    ) -> None:
        super().__init__(config)
        self._on_started = on_started
        self._hurry = asyncio.Event()
        self._drain = drain

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Not uvicorn's: it would raise SIGTERM again at the end, and our exit would not be 0."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.leave)
        yield

    def leave(self) -> None:
        """Once: when running answers have finished. Twice: now."""
        if self.should_exit:
            self._hurry.set()
        self.should_exit = True

    async def unless_hurried(self, work: Coroutine[Any, Any, None], limit_s: float) -> None:
        """Wait for something, but not for longer than this, nor if a second signal comes."""
        tasks = [asyncio.create_task(work), asyncio.create_task(self._hurry.wait())]
        await asyncio.wait(tasks, timeout=limit_s, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            task.cancel()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._on_started()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for server in self.servers:
            server.close()
        await self._drain()
        await super().shutdown(sockets)


def run_server(
    settings: Settings,
    instance: Instance,
    listener: socket.socket,
    on_started: Callable[[], None],
    idle_s: float | None = None,
) -> None:
    """Serve until a signal, or until nothing was asked for `idle_s` seconds if that is given."""
    sys.setswitchinterval(SWITCH_S)
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        runner.run(_serve(settings, instance, listener, on_started, idle_s))


async def _serve(
    settings: Settings,
    instance: Instance,
    listener: socket.socket,
    on_started: Callable[[], None],
    idle_s: float | None = None,
) -> None:
    """Build all parts and serve. Close what was built in the opposite order, however far it came."""
    async with contextlib.AsyncExitStack() as stack:
        stack.callback(log.info, "stopped")
        stack.callback(instance.release)
        port = listener.getsockname()[1]
        parts = await _build_parts(settings, stack)
        sockets = SocketRoute(parts.service, parts.activity, parts.watch)
        host = HostProcess(settings)
        stack.push_async_callback(host.close)
        faces = FaceRelay(host, parts.activity)

        def started() -> None:
            instance.announce(port)
            log.info("serving at http://%s:%d", HOST, port)
            on_started()

        async def drain() -> None:
            await _drain(server, parts, sockets, settings.drain_seconds)
            await faces.close()

        server = Server(_uvicorn_config(_build_routes(settings, parts, sockets, faces, port)), started, drain)
        parts.watch.metrics.announce_models(parts.service.models())
        for work in _background_work(settings, parts, server, idle_s):
            stack.push_async_callback(_cancelled, asyncio.create_task(work))
        parts.native.start()
        parts.upstreams.start()
        await server.serve(sockets=[listener])


@dataclass(frozen=True, slots=True)
class Parts:
    """What the routes are made of."""

    activity: Activity
    watch: Watch
    store: Store
    keys: Keys
    native: NativeBackend
    upstreams: UpstreamBackend
    tuner: BackgroundTuner
    service: TurnService
    history: History


async def _build_parts(settings: Settings, stack: contextlib.AsyncExitStack) -> Parts:
    store = await stack.enter_async_context(SqliteStore(settings.database))
    await store.end_unfinished(msgspec.json.encode(RESTARTED))
    activity, metrics, tracing = Activity(), Metrics(), start_tracing()
    if tracing:
        stack.callback(tracing.close)
    watch, library, keys = Watch(metrics, tracing), Library(store, metrics), Keys(store)
    stack.push_async_callback(keys.close)
    upstreams = UpstreamBackend(
        read_upstreams(settings.upstreams), library.conversation, metrics.upstream_answered
    )
    stack.push_async_callback(upstreams.close)
    native = NativeBackend(settings, library, metrics)
    stack.push_async_callback(native.close)
    queue = TurnQueue(settings.max_running, settings.max_waiting)
    limits = Limits(_allowance(settings))
    service = TurnService([native, upstreams], library, limits, queue, keys, watch, settings.alias)
    tuner = BackgroundTuner(settings, native, activity)
    return Parts(activity, watch, store, keys, native, upstreams, tuner, service, History(metrics))


def _build_routes(
    settings: Settings, parts: Parts, sockets: SocketRoute, faces: FaceRelay, port: int
) -> ASGIApp:
    service, activity, token = parts.service, parts.activity, ensure_token(settings)
    return build_app(
        about=About(settings, parts.native, service, activity, parts.watch, port, parts.tuner, parts.history),
        responses=ResponsesRoute(service, BackgroundResponses(service, activity), activity),
        chat=ChatRoute(service.begin, activity, service.commit),
        completions=CompletionRoute(service.begin, activity),
        messages=MessagesRoute(service.begin, service.count_tokens, activity, ThoughtSigner(token)),
        sockets=sockets,
        faces=faces,
        keys=parts.keys,
        port=port,
        token=token,
    )


def _background_work(
    settings: Settings, parts: Parts, server: Server, idle_s: float | None
) -> Iterator[Coroutine[Any, Any, None]]:
    """Give what runs beside the routes as long as the server does. It ends before the engine does."""
    yield parts.tuner.run()
    yield _sweep(parts.store, settings.keep_days)
    yield measure_loop_lag(parts.watch.metrics)
    yield parts.history.run()
    if idle_s is not None:
        yield _leave_when_idle(server, parts.activity, idle_s)


async def _drain(server: Server, parts: Parts, sockets: SocketRoute, limit_s: float) -> None:
    """Let running turns finish for `limit_s`, then end them; send their last events and close the sockets."""
    parts.service.stop_accepting()
    await sockets.drain()
    await server.unless_hurried(parts.activity.all_answered(), limit_s)
    await parts.service.stop_turns()
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(parts.activity.all_answered(), LAST_EVENTS_S)
    await sockets.close()


async def _cancelled(task: "asyncio.Task[None]") -> None:
    """Cancel a task and wait until it is over."""
    task.cancel()
    await asyncio.wait([task])


async def _sweep(store: Store, keep_days: float) -> None:
    """Forget what is older than the user wants to keep. A disk that fails now may work at the next sweep."""
    while keep_days:
        try:
            if count := await store.sweep(int(time.time() - keep_days * 86400)):
                log.info("forgot %d responses older than %g days", count, keep_days)
        except Exception as error:  # noqa: BLE001 - the boundary of a task that runs as long as the server
            log.warning("old responses could not be removed: %s", error)
        await asyncio.sleep(SWEEP_EVERY_S)


def _allowance(settings: Settings) -> Allowance:
    names = Allowance.__struct_fields__
    return Allowance(**{name: getattr(settings, name) for name in names})


async def _leave_when_idle(server: Server, activity: Activity, idle_s: float) -> None:
    await activity.unused_for(idle_s)
    log.info("nothing to do for %.0f s; leaving", idle_s)
    server.leave()


def _uvicorn_config(app: Any) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http=HttpProtocol,
        ws=WebSocketProtocol,
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
