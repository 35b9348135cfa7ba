"""The way to an MCP server behind a URL: streamable HTTP, with a bound on every answer.

Owns the limits of the HTTP client. The SDK bounds events of a stream; a plain answer is bounded here.
Redirects to another origin are not followed (the SDK sees to that): headers go where they were meant to go.
Needs the extra `mcp`; imported when a server has a URL.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2

from vivace.agent.mcp.servers import NamedServer

CONNECT_S = 20.0


@asynccontextmanager
async def http_transport(named: NamedServer, most_bytes: int) -> AsyncIterator[tuple[Any, Any]]:
    """Yield the two streams of the SDK's transport."""
    from mcp.client.streamable_http import streamable_http_client

    timeout = httpx2.Timeout(CONNECT_S, read=named.server.timeout_seconds)
    bounded = _Bounded(httpx2.AsyncHTTPTransport(), most_bytes)
    async with (
        httpx2.AsyncClient(headers=named.headers, timeout=timeout, transport=bounded) as client,
        streamable_http_client(
            named.server.url, http_client=client, max_sse_event_size=most_bytes
        ) as streams,
    ):
        yield streams[0], streams[1]


class _Bounded(httpx2.AsyncBaseTransport):
    """Ends an answer that is longer than allowed, unless it is a stream of events."""

    def __init__(self, inner: httpx2.AsyncBaseTransport, most_bytes: int) -> None:
        self._inner = inner
        self._most_bytes = most_bytes

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        response = await self._inner.handle_async_request(request)
        if not response.headers.get("content-type", "").startswith("text/event-stream"):
            assert isinstance(response.stream, httpx2.AsyncByteStream)
            response.stream = _Cut(response.stream, self._most_bytes)
        return response

    async def aclose(self) -> None:
        await self._inner.aclose()


class _Cut(httpx2.AsyncByteStream):
    def __init__(self, inner: httpx2.AsyncByteStream, most_bytes: int) -> None:
        self._inner = inner
        self._left = most_bytes

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for data in self._inner:
            self._left -= len(data)
            if self._left < 0:
                raise httpx2.DecodingError("the answer is longer than allowed")
            yield data

    async def aclose(self) -> None:
        await self._inner.aclose()
