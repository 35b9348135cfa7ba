"""The routes, and the gate in front of them.

Owns which path leads where. Does not own sockets, processes or tokens.
"""

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.routing import Route, WebSocketRoute

from vivace.errors import VivaceError
from vivace.server.faces.app_files import AppFiles
from vivace.server.faces.hardening import Hardened
from vivace.server.faces.relay import FaceRelay
from vivace.server.faces.sessions import Entrance, Sessions
from vivace.server.transport.access.auth import FACES_PATH, Gate
from vivace.server.transport.access.keys import Keys
from vivace.server.transport.access.tickets import BROWSER_VALID_S, TicketRoute, Tickets
from vivace.server.transport.answers import on_http_error, on_mistake, on_vivace_error
from vivace.server.transport.routes.about import About
from vivace.server.transport.routes.chat import ChatRoute
from vivace.server.transport.routes.completions import CompletionRoute
from vivace.server.transport.routes.messages import MessagesRoute
from vivace.server.transport.routes.responses import ResponsesRoute
from vivace.server.transport.websocket import SocketRoute


def build_app(
    *,
    about: About,
    responses: ResponsesRoute,
    chat: ChatRoute,
    completions: CompletionRoute,
    messages: MessagesRoute,
    sockets: SocketRoute,
    faces: FaceRelay,
    keys: Keys,
    port: int,
    token: str,
) -> Starlette:
    one = "/v1/responses/{response_id}"
    tickets, browser_tickets, sessions = Tickets(), Tickets(valid_s=BROWSER_VALID_S), Sessions(port)
    files = AppFiles()
    entrance = Entrance(browser_tickets, sessions, files)
    return Starlette(
        routes=[
            Route("/", entrance.front),
            Route("/enter", entrance.enter),
            Route("/app/{name:path}", files.serve),
            WebSocketRoute(FACES_PATH, faces.serve),
            Route("/healthz", about.healthz),
            Route("/readyz", about.readyz),
            Route("/metrics", about.metrics),
            Route("/v1/models", about.models),
            Route("/v1/models/codex", about.codex_catalog),
            Route("/v1/models/{model:path}", about.model),
            Route("/v1/vivace/status", about.status),
            Route("/v1/vivace/history", about.history),
            Route("/v1/vivace/tickets", TicketRoute(tickets, browser_tickets).create, methods=["POST"]),
            Route("/v1/responses", responses.create, methods=["POST"]),
            WebSocketRoute("/v1/responses", sockets.serve),
            Route(one, responses.retrieve),
            Route(one, responses.delete, methods=["DELETE"]),
            Route(f"{one}/cancel", responses.cancel, methods=["POST"]),
            Route(f"{one}/input_items", responses.input_items),
            Route("/v1/chat/completions", chat.create, methods=["POST"]),
            Route("/v1/completions", completions.create, methods=["POST"]),
            Route("/v1/messages", messages.create, methods=["POST"]),
            Route("/v1/messages/count_tokens", messages.count_tokens, methods=["POST"]),
            Route("/infill", completions.infill, methods=["POST"]),
        ],
        middleware=[
            Middleware(Hardened, port=port),
            Middleware(Gate, port=port, token=token, keys=keys, tickets=tickets, sessions=sessions),
        ],
        exception_handlers={
            VivaceError: on_vivace_error,
            HTTPException: on_http_error,
            Exception: on_mistake,
        },
    )
