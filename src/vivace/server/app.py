"""The routes, and the gate in front of them.

Owns which path leads where. Does not own sockets, processes or tokens.
"""

import os
import time

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route, WebSocketRoute

from vivace import __version__
from vivace.config import Settings
from vivace.errors import VivaceError
from vivace.models import store
from vivace.models.catalog import CATALOG
from vivace.protocol.status import Health, ServerStatus
from vivace.server.activity import Activity
from vivace.server.answers import json_response, on_http_error, on_mistake, on_vivace_error
from vivace.server.auth import Gate
from vivace.server.backends.native import NativeBackend
from vivace.server.socket import SocketRoute
from vivace.server.sse import ResponsesRoute


def build_app(
    settings: Settings, backend: NativeBackend, activity: Activity, *, port: int, token: str
) -> Starlette:
    about = About(settings, backend, activity, port)
    return Starlette(
        routes=[
            Route("/healthz", about.healthz),
            Route("/readyz", about.readyz),
            Route("/v1/models", about.models),
            Route("/v1/vivace/status", about.status),
            Route("/v1/responses", ResponsesRoute(backend, activity).create, methods=["POST"]),
            WebSocketRoute("/v1/responses", SocketRoute(backend, activity).serve),
        ],
        middleware=[Middleware(Gate, port=port, token=token)],
        exception_handlers={
            VivaceError: on_vivace_error,
            HTTPException: on_http_error,
            Exception: on_mistake,
        },
    )


class About:
    """Routes that tell of the server itself."""

    def __init__(self, settings: Settings, backend: NativeBackend, activity: Activity, port: int) -> None:
        self._settings = settings
        self._backend = backend
        self._activity = activity
        self._port = port

    async def healthz(self, _: Request) -> Response:
        """The server lives."""
        return json_response(Health(os.getpid(), __version__))

    async def readyz(self, _: Request) -> Response:
        """The engine is up: a request would be answered now."""
        is_ready = self._backend.is_ready
        return json_response({"status": "ready" if is_ready else "loading"}, 200 if is_ready else 503)

    async def models(self, _: Request) -> Response:
        """The models that are on this machine, the one that is used first."""
        present = [card.name for card in CATALOG if store.is_complete(self._settings, card)]
        names = dict.fromkeys([self._settings.model, *present])
        entries = [{"id": name, "object": "model", "created": 0, "owned_by": "vivace"} for name in names]
        return json_response({"object": "list", "data": entries})

    async def status(self, _: Request) -> Response:
        status = ServerStatus(
            pid=os.getpid(),
            version=__version__,
            port=self._port,
            uptime_s=time.monotonic() - self._activity.started,
            answers=self._activity.answers,
            log_file=str(self._settings.run_dir / "server.log"),
            engine=await self._backend.status(),
        )
        return json_response(status)
