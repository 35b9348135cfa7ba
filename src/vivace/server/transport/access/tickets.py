"""Tickets: how a page in a browser opens a WebSocket, where it cannot set the Authorization header.

`POST /v1/vivace/tickets` with the usual bearer token, an allowed Origin and the JSON body `{}` gives

    {"object": "ticket", "ticket": "vt_…", "expires_in_s": 30}

and the page opens its socket with two subprotocols, of which the server chooses the first:

    new WebSocket("ws://127.0.0.1:PORT/v1/responses", ["vivace", "bearer." + ticket])

With `{"purpose": "browser"}` the ticket is for `/enter?ticket=…` instead, within 5 minutes, and only the
owner gets one (`server.faces.sessions`). A ticket of one kind is none of the other.

A ticket opens one socket, within 30 seconds, for whoever asked for it: the socket has the key's tenant and
limits, and stops working when the key is removed. Host and Origin are checked as for every request.

Owns tickets while they are valid. Does not own who may ask for one (`auth`).
"""

import hmac
import secrets
import time
from collections.abc import Callable, Sequence
from typing import Literal

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from vivace.protocol.shapes.parsing import decode
from vivace.protocol.shapes.refusal import Refusal
from vivace.server.caller import Caller
from vivace.server.transport.answers import json_response
from vivace.server.transport.sse import read_body

PREFIX = "vt_"
NAME_CHARS = 16  # of a ticket's public part, by which it is found
VALID_S = 30.0
BROWSER_VALID_S = 300.0  # a person may have to copy the address
MAX_PER_KEY = 16  # beyond these the key's oldest ticket is no longer valid
MAX_TICKETS = 1024
SUBPROTOCOL = "vivace"
BEARER = "bearer."


class TicketRequest(msgspec.Struct, forbid_unknown_fields=True):
    """The body that asks for a ticket: an empty object, or what it is for."""

    purpose: Literal["socket", "browser"] = "socket"


class TicketAnswer(msgspec.Struct, frozen=True):
    ticket: str
    expires_in_s: float
    object: str = "ticket"


class _Issued(msgspec.Struct, frozen=True):
    secret: bytes
    caller: Caller
    until: float


class Tickets:
    def __init__(self, clock: Callable[[], float] = time.monotonic, valid_s: float = VALID_S) -> None:
        self._clock = clock
        self.valid_s = valid_s
        self._issued: dict[str, _Issued] = {}  # by the public part, oldest first

    def issue(self, caller: Caller) -> str:
        """Return a new ticket of this caller."""
        self._drop_expired()
        own = [name for name, issued in self._issued.items() if issued.caller.key == caller.key]
        for name in own[: max(0, len(own) - MAX_PER_KEY + 1)]:
            del self._issued[name]
        while len(self._issued) >= MAX_TICKETS:
            del self._issued[next(iter(self._issued))]
        name, secret = secrets.token_hex(NAME_CHARS // 2), secrets.token_urlsafe(32)
        self._issued[name] = _Issued(secret.encode(), caller, self._clock() + self.valid_s)
        return f"{PREFIX}{name}{secret}"

    def redeem(self, ticket: str) -> Caller | None:
        """Return whose ticket it is, once; None if it is none, too old, or used."""
        self._drop_expired()
        if not ticket.startswith(PREFIX) or not ticket.isascii():
            return None
        rest = ticket.removeprefix(PREFIX)
        name, secret = rest[:NAME_CHARS], rest[NAME_CHARS:].encode()
        issued = self._issued.get(name)
        if issued is None or not hmac.compare_digest(issued.secret, secret):
            return None
        del self._issued[name]
        return issued.caller

    def _drop_expired(self) -> None:
        now = self._clock()
        while self._issued and now >= self._issued[name := next(iter(self._issued))].until:
            del self._issued[name]


class TicketRoute:
    def __init__(self, tickets: Tickets, browser_tickets: Tickets) -> None:
        self._tickets = {"socket": tickets, "browser": browser_tickets}

    async def create(self, request: Request) -> Response:
        wanted = decode(await read_body(request), TicketRequest)
        caller: Caller = request.scope["vivace.caller"]
        if wanted.purpose == "browser" and not caller.is_owner:
            raise Refusal("The browser app is for the owner.", code="owner_only", status=403)
        tickets = self._tickets[wanted.purpose]
        answer = TicketAnswer(tickets.issue(caller), tickets.valid_s)
        return json_response(answer, headers={"cache-control": "no-store"})


def ticket_in(subprotocols: Sequence[str]) -> str | None:
    """Return the ticket among the offered subprotocols, if there is exactly one."""
    found = [offered.removeprefix(BEARER) for offered in subprotocols if offered.startswith(BEARER)]
    return found[0] if len(found) == 1 else None


def chosen_subprotocol(subprotocols: Sequence[str]) -> str | None:
    """Return the subprotocol to answer with. A ticket is not sent back."""
    return SUBPROTOCOL if SUBPROTOCOL in subprotocols else None
