"""What the server tells of itself: whether it lives and is ready, its models, its numbers.

Owns those routes. Does not own what they tell of.
"""

import os
import time
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from vivace import __version__
from vivace.config import Settings
from vivace.protocol.shapes.refusal import Refusal
from vivace.protocol.shapes.status import EngineStatus, Health, ServerStatus
from vivace.server.backends.native.backend import NativeBackend
from vivace.server.caller import Caller
from vivace.server.transport.access.auth import caller_of
from vivace.server.transport.answers import REQUEST_ID, json_response, new_request_id, speaks_messages
from vivace.server.transport.routes.codex_catalog import codex_card
from vivace.server.tuning import BackgroundTuner
from vivace.server.turns.activity import Activity
from vivace.server.turns.service import TurnService
from vivace.server.watch.history import History
from vivace.server.watch.metrics_text import CONTENT_TYPE
from vivace.server.watch.turn_watch import Watch

EPOCH = "1970-01-01T00:00:00Z"  # when a model was made is not known


class About:
    def __init__(
        self,
        settings: Settings,
        native: NativeBackend,
        service: TurnService,
        activity: Activity,
        watch: Watch,
        port: int,
        tuner: BackgroundTuner,
        history: History,
    ) -> None:
        self._settings = settings
        self._native = native
        self._service = service
        self._activity = activity
        self._watch = watch
        self._port = port
        self._tuner = tuner
        self._history = history

    async def healthz(self, _: Request) -> Response:
        """Answer that the server lives."""
        return json_response(Health(os.getpid(), __version__))

    async def readyz(self, _: Request) -> Response:
        """Answer whether the engine is up and would answer a request now."""
        is_ready = self._native.is_ready
        return json_response({"status": "ready" if is_ready else "loading"}, 200 if is_ready else 503)

    async def metrics(self, request: Request) -> Response:
        page = self._watch.text(caller_of(request), await self._native.status())
        return Response(page, headers={"content-type": CONTENT_TYPE})

    async def models(self, request: Request) -> Response:
        """List the models that can be asked for, the default first."""
        names = self._service.models()
        if not speaks_messages(request.scope):
            return json_response({"object": "list", "data": [_entry(name) for name in names]})
        ends = {"has_more": False, "first_id": names[0], "last_id": names[-1]}
        headers = {REQUEST_ID: new_request_id()}
        return json_response({"data": [_message_entry(name) for name in names]} | ends, headers=headers)

    async def model(self, request: Request) -> Response:
        name = request.path_params["model"]
        is_messages = speaks_messages(request.scope)
        if is_messages and name not in self._service.models():
            name = self._settings.alias(name) or name
        if name not in self._service.models():
            raise Refusal(
                f"There is no model {name!r} here.", code="model_not_found", status=404, param="model"
            )
        if is_messages:
            return json_response(_message_entry(name), headers={REQUEST_ID: new_request_id()})
        return json_response(_entry(name))

    async def codex_catalog(self, _: Request) -> Response:
        """Answer in the form that the Codex CLI reads (`model_catalog_url`)."""
        status = await self._native.status()
        window = status.session_tokens or self._settings.context_tokens
        cards = [codex_card(name, window, rank) for rank, name in enumerate(self._service.models(), 1)]
        return json_response({"models": cards})

    async def history(self, request: Request) -> Response:
        """Answer how fast the server was over the last hour."""
        return json_response(self._history.read(caller_of(request)))

    async def status(self, request: Request) -> Response:
        caller = caller_of(request)
        if not caller.is_owner:
            return json_response(self._status_for(caller, await self._native.status()))
        status = ServerStatus(
            pid=os.getpid(),
            version=__version__,
            port=self._port,
            uptime_s=time.monotonic() - self._activity.started,
            answers=self._activity.answers,
            log_file=str(self._settings.run_dir / "server.log"),
            engine=await self._native.status(),
            tuning=self._tuner.status,
        )
        return json_response(status)

    def _status_for(self, caller: Caller, engine: EngineStatus) -> ServerStatus:
        """Return what a tenant may know: which server and model it is, and its own turns.

        What others do, what is loaded for them and where the owner's files are is not told; figures are 0.
        """
        own = self._watch.metrics.of(caller.tenant)
        totals = own.totals()
        known = EngineStatus(
            model=engine.model if engine.model in self._service.models() else "",
            is_ready=engine.is_ready,
            pid=None,
            threads=0,
            load_ms=0.0,
            turns=own.under_way,
            sessions=0,
            kv_tokens=0,
            kv_cells=0,
            session_tokens=engine.session_tokens,
            trained_tokens=engine.trained_tokens,
            parked_bytes=0,
            tokens_prefilled=int(totals.queried - totals.hits),
            tokens_generated=int(totals.generated),
            device=engine.device,
            loading=engine.loading,
        )
        return ServerStatus(
            pid=os.getpid(),
            version=__version__,
            port=self._port,
            uptime_s=time.monotonic() - self._activity.started,
            answers=own.under_way,
            log_file="",
            engine=known,
        )


def _entry(name: str) -> dict[str, Any]:
    return {"id": name, "object": "model", "created": 0, "owned_by": "vivace"}


def _message_entry(name: str) -> dict[str, Any]:
    """Return the same in the shape of Anthropic's API."""
    return {"type": "model", "id": name, "display_name": name, "created_at": EPOCH, "lifecycle": "active"}
