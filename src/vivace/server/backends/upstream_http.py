"""Connections to one upstream: a request goes out, its answer comes back in chunks, and closing is at once.

Owns the HTTP client, the time limits and the one retry. An answer that is left before its end (by an error,
an interrupt, a stop string) closes its connection, in whichever phase it is. Does not know what is in the
chunks.

Nothing of the environment is used for an upstream on this machine: a proxy has no business there.
"""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import Any

import httpx

from vivace import __version__
from vivace.server.backends.upstream_errors import Problems, UpstreamProblem
from vivace.server.backends.upstream_settings import Upstream

KEEP_S = 30.0  # an idle connection is kept this long
MAX_IDLE = 8
MAX_ERROR_BYTES = 64 * 1024
ERROR_BODY_S = 5.0
LAST_BYTES_S = 1.0  # for the end of a body whose last event has come: then its connection can be used again


class Reply:
    """An answer whose head is there."""

    def __init__(self, response: httpx.Response, problems: Problems) -> None:
        self.status = response.status_code
        self.headers: Mapping[str, str] = response.headers
        self._chunks: AsyncIterator[bytes] = response.aiter_raw()
        self._problems = problems

    async def read(self, wait_s: float) -> bytes:
        """The next bytes; b"" at the end. TimeoutError if none come in time."""
        try:
            async with asyncio.timeout(wait_s):
                async for chunk in self._chunks:
                    if chunk:
                        return chunk
                return b""
        except httpx.HTTPError as error:
            raise self._problems.broken("broke off in the middle of its answer.") from error

    async def read_all(self, wait_s: float, max_bytes: int) -> bytes:
        """The whole body, or its first `max_bytes`."""
        chunks, size = [], 0
        while size < max_bytes and (chunk := await self.read(wait_s)):
            chunks.append(chunk)
            size += len(chunk)
        return b"".join(chunks)[:max_bytes]

    async def error_body(self) -> bytes:
        """As much of it as is needed; what cannot be had is not worth an error of its own."""
        with contextlib.suppress(TimeoutError, UpstreamProblem):
            async with asyncio.timeout(ERROR_BODY_S):
                return await self.read_all(ERROR_BODY_S, MAX_ERROR_BYTES)
        return b""

    async def drain(self) -> None:
        """Take what is left, if it is little and comes soon."""
        with contextlib.suppress(TimeoutError, UpstreamProblem):
            async with asyncio.timeout(LAST_BYTES_S):
                await self.read_all(LAST_BYTES_S, MAX_ERROR_BYTES)


class Link:
    """All connections to one upstream."""

    def __init__(self, upstream: Upstream) -> None:
        self._upstream = upstream
        self._client: httpx.AsyncClient | None = None
        self._making: asyncio.Task[httpx.AsyncClient] | None = None

    @contextlib.asynccontextmanager
    async def ask(
        self,
        path: str,
        body: bytes | None = None,
        *,
        key: str = "",
        headers: Mapping[str, str] | None = None,
        problems: Problems,
        wait_s: float | None = None,
        on_sent: Callable[[], None] | None = None,
    ) -> AsyncIterator[Reply]:
        """POST the body, or GET without one."""
        wait_s = wait_s or self._upstream.first_byte_s
        try:
            async with asyncio.timeout(wait_s):
                response = await self._send(path, body, _headers(body, key) | dict(headers or {}), on_sent)
        except TimeoutError:
            raise problems.timed_out("answer", wait_s) from None
        except httpx.ConnectTimeout:
            raise problems.timed_out("take a connection", self._upstream.connect_s) from None
        except (httpx.ConnectError, httpx.InvalidURL, httpx.UnsupportedProtocol, httpx.ProxyError) as error:
            raise problems.unreachable(error) from error
        except httpx.HTTPError as error:
            raise problems.broken("closed the connection without an answer.") from error
        try:
            if response.headers.get("content-encoding", "identity") != "identity":
                raise problems.broken("compresses its answer, although it was asked not to.")
            yield Reply(response, problems)
        finally:
            await response.aclose()

    async def close(self) -> None:
        if self._making:
            self._making.cancel()
            await asyncio.wait([self._making])
        if self._client:
            await self._client.aclose()

    async def _send(
        self, path: str, body: bytes | None, headers: dict[str, str], on_sent: Callable[[], None] | None
    ) -> httpx.Response:
        """Once more if no byte was sent, or if a connection that had been kept turned out to be dead."""
        client = self._client or await self._made()
        for is_last in (False, True):
            trace = _Trace(on_sent)
            request = client.build_request(
                "GET" if body is None else "POST",
                f"{self._upstream.url}/{path}",
                content=body,
                headers=headers,
                extensions={"trace": trace.hear},
            )
            try:
                return await client.send(request, stream=True)
            except httpx.TimeoutException:
                raise
            except httpx.TransportError:
                if is_last or (trace.is_sent and trace.is_new):
                    raise
        raise AssertionError("unreachable")

    async def _made(self) -> httpx.AsyncClient:
        """Made at the first use, and beside the event loop: to read certificates takes 0.1 to 0.5 s."""
        if self._making is None:
            self._making = asyncio.create_task(asyncio.to_thread(self._make))
        try:
            self._client = await asyncio.shield(self._making)
        except (
            OSError,
            ValueError,
            ImportError,
        ) as error:  # of certificates or a proxy that were set wrongly
            self._making = None
            raise httpx.ConnectError(str(error)) from error
        return self._client

    def _make(self) -> httpx.AsyncClient:
        upstream = self._upstream
        limits = httpx.Limits(
            max_connections=None, max_keepalive_connections=MAX_IDLE, keepalive_expiry=KEEP_S
        )
        return httpx.AsyncClient(
            timeout=httpx.Timeout(None, connect=upstream.connect_s),
            limits=limits,
            trust_env=not upstream.is_loopback,
            verify=_trust() if upstream.is_secure else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT),  # nobody
            follow_redirects=False,  # the key is for this host
            cookies=CookieJar(DefaultCookiePolicy(allowed_domains=[])),  # none are kept
        )


def _trust() -> ssl.SSLContext:
    """Who may sign: SSL_CERT_FILE or SSL_CERT_DIR if they are set, also for an upstream on this machine."""
    return httpx.create_ssl_context()


class _Trace:
    """What the HTTP client did for one request."""

    def __init__(self, on_sent: Callable[[], None] | None) -> None:
        self.is_new = False  # the connection was made for this request
        self.is_sent = False
        self._on_sent = on_sent

    async def hear(self, event: str, _: dict[str, Any]) -> None:
        if event == "connection.connect_tcp.started":
            self.is_new = True
        elif event == "http11.send_request_headers.started":
            self.is_sent = True
            if self._on_sent:
                self._on_sent()


def _headers(body: bytes | None, key: str) -> dict[str, str]:
    headers = {
        "Accept": "text/event-stream, application/json",
        "Accept-Encoding": "identity",  # events are not to be collected for a better ratio
        "User-Agent": f"vivace/{__version__}",
    }
    if body is not None:
        headers["Content-Type"] = "application/json"
    if key:
        headers["Authorization"] = f"Bearer {key}"
    return headers
