"""Headers that every answer of the server has, for browsers.

Owns the policy: nothing from elsewhere is loaded, no inline script runs, no other site may show us in a frame
or read an answer. Does not own who may come in (`transport.access.auth`).
"""

from starlette.types import ASGIApp, Message, Receive, Scope, Send


def headers(port: int) -> list[tuple[bytes, bytes]]:
    """Return the headers of a server at this port."""
    sockets = f"ws://127.0.0.1:{port} ws://localhost:{port}"  # 'self' alone leaves them out in some browsers
    policy = (
        "default-src 'self'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; "
        f"connect-src 'self' {sockets}; object-src 'none'; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'"
    )
    return [
        (b"content-security-policy", policy.encode()),
        (b"x-content-type-options", b"nosniff"),
        (b"x-frame-options", b"DENY"),
        (b"referrer-policy", b"no-referrer"),
        (b"cross-origin-opener-policy", b"same-origin"),
        (b"cross-origin-resource-policy", b"same-origin"),
        (b"permissions-policy", b"camera=(), microphone=(), geolocation=()"),
    ]


class Hardened:
    """ASGI middleware that adds the headers."""

    def __init__(self, app: ASGIApp, *, port: int) -> None:
        self._app = app
        self._headers = headers(port)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            return await self._app(scope, receive, send)

        async def send_with_headers(message: Message) -> None:
            if message["type"] in ("http.response.start", "websocket.http.response.start"):
                message["headers"] = [*message.get("headers", []), *self._headers]
            await send(message)

        return await self._app(scope, receive, send_with_headers)
