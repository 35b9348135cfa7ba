"""Sessions of browsers: a one-time ticket becomes a cookie.

`vivace web` gets a ticket with the owner's token and opens `/enter?ticket=…`. The answer uses the ticket up
and sets a cookie that scripts cannot read and that no other site can send. Only its hash is kept here. A
session ends after 12 hours without use, and with the server. The cookie opens the faces' WebSocket and
nothing else: no POST can be made with it. Does not own who may ask for a ticket (`transport.access.tickets`).
"""

import hashlib
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from http.cookies import CookieError, SimpleCookie
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response

from vivace.server.faces.app_files import AppFiles
from vivace.server.faces.same_user import is_same_user
from vivace.server.transport.access.tickets import Tickets

VALID_S = 12 * 3600.0  # since it was used last
MAX_SESSIONS = 64


@dataclass
class Session:
    folder: str  # that the app opens with
    until: float


class Sessions:
    def __init__(self, port: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.cookie = f"vivace-{port}"  # cookies do not know ports: two servers would overwrite each other's
        self._clock = clock
        self._sessions: dict[bytes, Session] = {}  # by the hash of the secret, the oldest first

    def begin(self, folder: str) -> str:
        """Return the secret of a new session."""
        while len(self._sessions) >= MAX_SESSIONS:
            del self._sessions[next(iter(self._sessions))]
        secret = secrets.token_urlsafe(32)
        self._sessions[_hash(secret)] = Session(folder, self._clock() + VALID_S)
        return secret

    def find(self, headers: list[tuple[bytes, bytes]]) -> Session | None:
        """Return the session whose cookie a request brings, if it brings exactly one that is valid."""
        found = [value for name, value in headers if name == b"cookie"]
        try:
            morsel = SimpleCookie(found[0].decode("latin-1")).get(self.cookie) if len(found) == 1 else None
        except CookieError:
            return None
        session = self._sessions.get(_hash(morsel.value)) if morsel else None
        if session is None or self._clock() >= session.until:
            return None
        session.until = self._clock() + VALID_S
        return session


class Entrance:
    """The routes `/` and `/enter`."""

    def __init__(self, tickets: Tickets, sessions: Sessions, files: AppFiles) -> None:
        self._tickets, self._sessions, self._files = tickets, sessions, files

    async def enter(self, request: Request) -> Response:
        """Use the ticket up, set the cookie, and lead on to the app.

        The address with the ticket is worthless then. A page leads on, and no redirect: after one, a browser
        that was sent here by something else would not bring the cookie along.
        """
        is_ours = is_same_user(request.scope["client"], request.scope["server"])
        caller = self._tickets.redeem(request.query_params.get("ticket", "")) if is_ours else None
        if caller is None or not caller.is_owner:
            return self._files.answer(request, "signed-out.html", status=403)
        secret = self._sessions.begin(_folder(request.query_params.get("folder", "")))
        answer = self._files.answer(request, "entered.html")
        answer.headers["cache-control"] = "no-store"
        answer.set_cookie(self._sessions.cookie, secret, path="/", httponly=True, samesite="strict")
        return answer

    async def front(self, request: Request) -> Response:
        """Show the app, or how to get in."""
        is_in = self._sessions.find(request.scope["headers"]) is not None
        return self._files.answer(request, "index.html" if is_in else "signed-out.html")


def _folder(given: str) -> str:
    """Return the folder that was named, if it can be one."""
    return given if given and "\0" not in given and Path(given).is_absolute() else ""


def _hash(secret: str) -> bytes:
    return hashlib.sha256(secret.encode("utf-8", "replace")).digest()
