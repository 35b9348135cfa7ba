"""The routes, and the gate in front of them.

Owns which path leads where. Does not own sockets, processes or tokens.
"""

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.routing import Route, WebSocketRoute

from vivace.errors import VivaceError
from vivace.server.transport.about import About
from vivace.server.transport.answers import on_http_error, on_mistake, on_vivace_error
from vivace.server.transport.auth import Gate
from vivace.server.transport.chat_route import ChatRoute
from vivace.server.transport.completion_route import CompletionRoute
from vivace.server.transport.keys import Keys
from vivace.server.transport.responses_route import ResponsesRoute
from vivace.server.transport.tickets import TicketRoute, Tickets
from vivace.server.transport.websocket import SocketRoute


def build_app(
    *,
    about: About,
    responses: ResponsesRoute,
    chat: ChatRoute,
    completions: CompletionRoute,
    sockets: SocketRoute,
    keys: Keys,
    port: int,
    token: str,
) -> Starlette:
    one = "/v1/responses/{response_id}"
    tickets = Tickets()
    return Starlette(
        routes=[
            Route("/healthz", about.healthz),
            Route("/readyz", about.readyz),
            Route("/metrics", about.metrics),
            Route("/v1/models", about.models),
            Route("/v1/models/codex", about.codex_catalog),
            Route("/v1/models/{model:path}", about.model),
            Route("/v1/vivace/status", about.status),
            Route("/v1/vivace/tickets", TicketRoute(tickets).create, methods=["POST"]),
            Route("/v1/responses", responses.create, methods=["POST"]),
            WebSocketRoute("/v1/responses", sockets.serve),
            Route(one, responses.retrieve),
            Route(one, responses.delete, methods=["DELETE"]),
            Route(f"{one}/cancel", responses.cancel, methods=["POST"]),
            Route(f"{one}/input_items", responses.input_items),
            Route("/v1/chat/completions", chat.create, methods=["POST"]),
            Route("/v1/completions", completions.create, methods=["POST"]),
            Route("/infill", completions.infill, methods=["POST"]),
        ],
        middleware=[Middleware(Gate, port=port, token=token, keys=keys, tickets=tickets)],
        exception_handlers={
            VivaceError: on_vivace_error,
            HTTPException: on_http_error,
            Exception: on_mistake,
        },
    )
