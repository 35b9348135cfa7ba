"""Requests to one upstream: one goes out, its answer is read in parts, and can be left at any moment.

Owns which connection is used, the time limits and the one retry. An answer that is left before its end (by
an error, an interrupt, a stop string) closes its connection, in whichever phase it is. Does not know what
is in the parts. No proxy is used, no redirect followed, no cookie kept.
"""

import asyncio
import contextlib
import os
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from urllib.parse import urlsplit

import h11

from vivace import __version__
from vivace.server.backends.upstream.connection import Connection
from vivace.server.backends.upstream.errors import Problems, UpstreamProblem
from vivace.server.backends.upstream.settings import Upstream

KEEP_S = 30.0  # an idle connection is kept this long
MAX_IDLE = 8
MAX_ERROR_BYTES = 64 * 1024
ERROR_BODY_S = 5.0
LAST_BYTES_S = 1.0  # for the end of a body whose last event has come: then its connection can be used again


class Reply:
    """An answer whose head has come."""

    def __init__(self, connection: Connection, head: h11.Response, problems: Problems) -> None:
        self.status = head.status_code
        self.headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in head.headers}
        self._connection = connection
        self._problems = problems

    async def read(self, wait_s: float) -> bytes:
        """Return the next bytes; b"" at the end. Raise `TimeoutError` if none come in time."""
        try:
            async with asyncio.timeout(wait_s):
                return await self._connection.body()
        except TimeoutError:
            raise
        except (OSError, h11.RemoteProtocolError) as error:
            raise self._problems.broken("broke off in the middle of its answer.") from error

    async def read_all(self, wait_s: float, max_bytes: int) -> bytes:
        """Return the whole body, or its first `max_bytes`."""
        chunks, size = [], 0
        while size < max_bytes and (chunk := await self.read(wait_s)):
            chunks.append(chunk)
            size += len(chunk)
        return b"".join(chunks)[:max_bytes]

    async def error_body(self) -> bytes:
        """Return as much of an error's body as is needed; what cannot be read is left out."""
        with contextlib.suppress(TimeoutError, UpstreamProblem):
            async with asyncio.timeout(ERROR_BODY_S):
                return await self.read_all(ERROR_BODY_S, MAX_ERROR_BYTES)
        return b""

    async def drain(self) -> None:
        """Read the rest, if it is little and comes soon."""
        with contextlib.suppress(TimeoutError, UpstreamProblem):
            async with asyncio.timeout(LAST_BYTES_S):
                await self.read_all(LAST_BYTES_S, MAX_ERROR_BYTES)


class ConnectionPool:
    """All connections to one upstream."""

    def __init__(self, upstream: Upstream) -> None:
        self._upstream = upstream
        self._url = urlsplit(upstream.url)
        self._idle: list[Connection] = []
        self._tls: ssl.SSLContext | None = None
        self._is_closed = False

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
        all_headers = self._headers(body, key) | dict(headers or {})
        try:
            async with asyncio.timeout(wait_s):
                connection, head = await self._exchange(path, body, all_headers, problems, on_sent)
        except TimeoutError:
            raise problems.timed_out("answer", wait_s) from None
        try:
            reply = Reply(connection, head, problems)
            if reply.headers.get("content-encoding", "identity") != "identity":
                raise problems.broken("compresses its answer, although it was asked not to.")
            yield reply
        finally:
            self._leave(connection)

    def close(self) -> None:
        self._is_closed = True
        self._drop_idle()

    async def _exchange(
        self,
        path: str,
        body: bytes | None,
        headers: dict[str, str],
        problems: Problems,
        on_sent: Callable[[], None] | None,
    ) -> tuple[Connection, h11.Response]:
        """Send a request; once more if a kept connection was dead before any byte of an answer."""
        method, target = "GET" if body is None else "POST", f"{self._url.path}/{path}"
        while True:
            kept = self._kept()
            connection = kept or await self._opened(problems)
            try:
                if on_sent:
                    on_sent()
                await connection.send(method, target, headers.items(), body or b"")
                return connection, await connection.head()
            except (OSError, h11.RemoteProtocolError) as error:
                connection.abort()
                if kept is None or connection.has_heard:
                    raise problems.broken("closed the connection without an answer.") from error
                self._drop_idle()  # they may be dead too: the next is a new one
            except BaseException:
                connection.abort()
                raise

    def _kept(self) -> Connection | None:
        while self._idle:
            connection = self._idle.pop()
            if connection.is_usable(KEEP_S):
                return connection
            connection.abort()
        return None

    def _drop_idle(self) -> None:
        while self._idle:
            self._idle.pop().abort()

    def _leave(self, connection: Connection) -> None:
        if connection.rest() and len(self._idle) < MAX_IDLE and not self._is_closed:
            self._idle.append(connection)
        else:
            connection.abort()

    async def _opened(self, problems: Problems) -> Connection:
        """Open a connection. Try twice, since a server that restarts refuses for a moment."""
        host, is_secure = self._url.hostname or "", self._upstream.is_secure
        port = self._url.port or (443 if is_secure else 80)
        for is_last in (False, True):
            try:
                tls = await self._trust() if is_secure else None
                async with asyncio.timeout(self._upstream.connect_s):
                    return await Connection.open(host, port, tls)
            except TimeoutError:
                raise problems.timed_out("take a connection", self._upstream.connect_s) from None
            except (OSError, UnicodeError) as error:  # UnicodeError: a name that no host can have
                if is_last or not isinstance(error, ConnectionError):
                    raise problems.unreachable(_reason(error)) from error
        raise AssertionError("one of the two ended it")

    async def _trust(self) -> ssl.SSLContext:
        """Return the TLS context, read once in a thread: SSL_CERT_FILE, or what the system trusts."""
        if self._tls is None:
            self._tls = await asyncio.to_thread(ssl.create_default_context)
        return self._tls

    def _headers(self, body: bytes | None, key: str) -> dict[str, str]:
        headers = {
            "Host": self._url.netloc,
            "Accept": "text/event-stream, application/json",
            "Accept-Encoding": "identity",  # events are not to be collected for a better ratio
            "User-Agent": f"vivace/{__version__}",
        }
        if body is not None:
            headers |= {"Content-Type": "application/json", "Content-Length": str(len(body))}
        if key:
            headers["Authorization"] = f"Bearer {key}"
        return headers


def _reason(error: Exception) -> str:
    if isinstance(error, ConnectionError) and error.errno:
        return os.strerror(error.errno)  # asyncio's own words are about addresses
    return str(error)
