"""Who may come in: the right Host, no foreign Origin, and the token of this user.

Owns the token file and the gate in front of every route. A page in a browser can reach loopback, so the
Host (DNS rebinding) and the Origin (other sites) are checked before the token, and on every route.
A WebSocket may bring a ticket instead of the token (`tickets`): a page cannot set its headers. That of the
faces may bring a session's cookie (`faces.sessions`), and must say its Origin then.
"""

import contextlib
import hmac
import os
import secrets
from pathlib import Path

import msgspec
from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Receive, Scope, Send

from vivace.config import Settings
from vivace.errors import StartError, VivaceError
from vivace.protocol.shapes.refusal import Refusal
from vivace.server.caller import Caller
from vivace.server.faces.same_user import is_same_user
from vivace.server.faces.sessions import Sessions
from vivace.server.transport.access.keys import Keys, hash_of
from vivace.server.transport.access.tickets import Tickets, ticket_in
from vivace.server.transport.answers import error_response

OPEN_PATHS = ("/healthz", "/readyz", "/", "/enter")  # the last two hold no secret without a session
OPEN_BELOW = "/app/"
FACES_PATH = "/v1/vivace/faces"
HOSTS = ("127.0.0.1", "localhost", "[::1]")


def ensure_token(settings: Settings) -> str:
    """Return the token of this user. It is made at the first start and readable by nobody else."""
    path = settings.token_file
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        _make_token(path)
        token = path.read_text("ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise StartError(f"The token file {path} cannot be used: {error}.", "Remove it.") from error
    if len(token) < 32:
        raise StartError(f"The token file {path} holds no token.", "Remove it; a new one will be made.")
    if path.stat().st_mode & 0o077:
        raise StartError(f"Others may read the token file {path}.", f"Remove it, or `chmod 600 {path}`.")
    return token


def _make_token(path: Path) -> None:
    """Write the token aside and link it into place: whoever comes second finds a whole one."""
    if path.exists():
        return
    aside = path.with_name(f".token-{secrets.token_hex(8)}")
    descriptor = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        os.write(descriptor, secrets.token_urlsafe(32).encode())  # no newline: the file's text is the key
        with contextlib.suppress(FileExistsError):
            os.link(aside, path)
    finally:
        os.close(descriptor)
        aside.unlink()


def caller_of(request: HTTPConnection) -> Caller:
    """Return who the gate let in."""
    caller: Caller = request.scope["vivace.caller"]
    return caller


class Gate:
    """ASGI middleware that lets a request through or answers it."""

    def __init__(
        self, app: ASGIApp, *, port: int, token: str, keys: Keys, tickets: Tickets, sessions: Sessions
    ) -> None:
        self._app = app
        self._sessions = sessions
        self._bearer = f"Bearer {token}".encode()
        self._keys = keys
        self._tickets = tickets
        self._hosts = {f"{host}:{port}".encode() for host in HOSTS}
        self._origins = {b"http://" + host for host in self._hosts}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] in ("http", "websocket"):
            try:
                refusal: VivaceError | None = await self._refusal(scope)
            except VivaceError as error:  # the store of keys cannot be read
                refusal = error
            if refusal:
                return await error_response(refusal, scope)(scope, receive, send)
        return await self._app(scope, receive, send)

    async def _refusal(self, scope: Scope) -> Refusal | None:
        headers: list[tuple[bytes, bytes]] = scope["headers"]
        hosts = [value.lower() for name, value in headers if name == b"host"]
        if len(hosts) != 1 or hosts[0] not in self._hosts:
            return Refusal("This server answers to loopback names only.", code="wrong_host", status=421)
        if any(name == b"origin" and value.lower() not in self._origins for name, value in headers):
            return Refusal("Pages of other sites may not use this server.", code="wrong_origin", status=403)
        if scope["path"] in OPEN_PATHS or scope["path"].startswith(OPEN_BELOW):
            return None
        bearers = _bearers(headers)
        caller = await self._caller(bearers[0]) if len(bearers) == 1 else None
        if not bearers and scope["type"] == "websocket":
            caller = await self._caller_with_ticket(scope) or self._caller_with_session(scope)
        if caller:
            traces = [value for name, value in headers if name == b"traceparent"]
            trace = traces[0].decode("latin-1") if len(traces) == 1 else ""
            scope["vivace.caller"] = msgspec.structs.replace(caller, traceparent=trace)
            return None
        return Refusal(
            "A valid token is needed.",
            "Send `Authorization: Bearer TOKEN` or `x-api-key: TOKEN`; `vivace status` names the token file.",
            code="invalid_api_key",
            status=401,
        )

    async def _caller_with_ticket(self, scope: Scope) -> Caller | None:
        """Return whose ticket a WebSocket brings. A removed key's tickets are none."""
        ticket = ticket_in(scope["subprotocols"])
        caller = self._tickets.redeem(ticket) if ticket else None
        if caller and caller.secret_hash and not await self._keys.find_hashed(caller.secret_hash):
            return None
        return caller

    def _caller_with_session(self, scope: Scope) -> Caller | None:
        """Return the owner, if a face brings a session's cookie and says its Origin.

        Any page of this machine's loopback sends the cookie along; only the right Origin tells ours.
        """
        headers: list[tuple[bytes, bytes]] = scope["headers"]
        if scope["path"] != FACES_PATH or not any(name == b"origin" for name, _ in headers):
            return None
        session = self._sessions.find(headers)
        if session is None or not is_same_user(scope["client"], scope["server"]):
            return None
        scope["vivace.folder"] = session.folder
        return Caller()

    async def _caller(self, bearer: bytes) -> Caller | None:
        """Return this user, or the holder of a key."""
        if hmac.compare_digest(bearer, self._bearer):
            return Caller()
        kind, _, secret = bearer.partition(b" ")
        if kind != b"Bearer" or not secret.isascii():
            return None
        key = await self._keys.find(secret.decode("ascii"))
        return Caller(key.id, key.tenant, account=key, secret_hash=hash_of(secret.decode())) if key else None


def _bearers(headers: list[tuple[bytes, bytes]]) -> list[bytes]:
    """Return what the request brings. A bearer goes before `x-api-key`: Claude Code may send both."""
    bearers = [value for name, value in headers if name == b"authorization"]
    return bearers or [b"Bearer " + value for name, value in headers if name == b"x-api-key"]
