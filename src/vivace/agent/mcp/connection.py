"""One MCP server while a task runs: connected in a task of its own, listed once, called with a limit of time.

Owns its life. One that has died is started anew by the next call; whatever goes wrong is an `McpProblem`,
which becomes the output of a call. What a server asks of us (a model, a person, our folders) is not offered.
Needs the extra `mcp`. Does not own permissions (`tool`).
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vivace import __version__
from vivace.agent.mcp.servers import NamedServer
from vivace.agent.mcp.stdio import MAX_MESSAGE_BYTES, StdioTransport
from vivace.agent.tools.bounded import printable
from vivace.errors import ConfigError, McpProblem, VivaceError

if TYPE_CHECKING:
    from mcp import Client
    from mcp.types import CallToolResult, Tool

START_S = 60.0  # a server may have to be fetched first
MAX_TOOLS = 128  # of one server
MAX_PAGES = 20


@dataclass
class _Live:
    """A connection that stands, and the task that holds it."""

    client: "Client"
    holding: "asyncio.Task[None]"
    ended: asyncio.Event  # the server says nothing more


class ServerConnection:
    def __init__(self, named: NamedServer, folder: Path) -> None:
        self.named = named
        self._folder = folder
        self._live: _Live | None = None
        self._closing = asyncio.Event()
        self._starting = asyncio.Lock()

    @property
    def name(self) -> str:
        return self.named.name

    async def list_tools(self) -> "list[Tool]":
        """Return the server's tools, at most `MAX_TOOLS`."""
        found: list[Tool] = []
        async with self._guarded(START_S) as client:
            cursor = None
            for _ in range(MAX_PAGES):
                page = await client.list_tools(cursor=cursor)
                found += page.tools
                cursor = page.next_cursor
                if cursor is None or len(found) >= MAX_TOOLS:
                    break
        return found[:MAX_TOOLS]

    async def call(self, tool: str, arguments: dict[str, Any]) -> "CallToolResult":
        """Call a tool. The result is not checked against the server's schema, which could be a trap."""
        from mcp.types import CallToolRequest, CallToolRequestParams, CallToolResult

        request = CallToolRequest(params=CallToolRequestParams(name=tool, arguments=arguments))
        async with self._guarded(self.named.server.timeout_seconds) as client:
            return await client.session.send_request(request, CallToolResult)

    async def close(self) -> None:
        """End the connection and the server with it."""
        self._closing.set()
        if self._live is not None:
            await asyncio.gather(self._live.holding, return_exceptions=True)
            self._live = None

    @contextlib.asynccontextmanager
    async def _guarded(self, seconds: float) -> "AsyncIterator[Client]":
        """Yield the client. Whatever goes wrong, or takes too long, is an McpProblem."""
        client = await self._connected()
        try:
            async with asyncio.timeout(seconds):
                yield client
        except TimeoutError as error:
            raise McpProblem(f"The MCP server {self.name} did not answer in {seconds:g} s.") from error
        except Exception as error:
            said = printable(str(error)).replace("\n", " ")[:300] or type(error).__name__
            raise McpProblem(f"The MCP server {self.name} failed: {said}") from error

    async def _connected(self) -> "Client":
        async with self._starting:
            live = self._live
            if live is not None and (live.ended.is_set() or live.holding.done()):
                await asyncio.gather(live.holding, return_exceptions=True)
                live = None
            self._live = live or await self._start()
            return self._live.client

    async def _start(self) -> _Live:
        """Connect in a task that holds the connection: the SDK's contexts end in the task that began them."""
        check_installed()
        ready: asyncio.Future[Client] = asyncio.get_running_loop().create_future()
        ended = asyncio.Event()
        holding = asyncio.create_task(self._hold(ready, ended))
        try:
            async with asyncio.timeout(START_S):
                first: set[asyncio.Future[Any]] = {ready, holding}
                await asyncio.wait(first, return_when=asyncio.FIRST_COMPLETED)
        except BaseException as error:
            holding.cancel()
            await asyncio.gather(holding, return_exceptions=True)
            if isinstance(error, TimeoutError):
                raise McpProblem(f"The MCP server {self.name} did not start in {START_S:g} s.") from error
            raise
        if ready.done():
            return _Live(ready.result(), holding, ended)
        raise _not_started(self.name, holding)

    async def _hold(self, ready: "asyncio.Future[Client]", ended: asyncio.Event) -> None:
        from mcp import Client
        from mcp.types import Implementation

        process = StdioTransport(self.named, self._folder, ended) if self.named.server.command else None
        info = Implementation(name="vivace", version=__version__)
        try:
            async with Client(process or self._http(), client_info=info, cache=None) as client:
                if not ready.done():
                    ready.set_result(client)
                await _first_of(self._closing, ended)
        except (McpProblem, ConfigError):
            raise
        except Exception as error:
            words = process.last_words if process else ""
            raise McpProblem(words or printable(_root_of(error))[:300]) from error

    def _http(self) -> Any:
        from vivace.agent.mcp.http import http_transport

        return http_transport(self.named, MAX_MESSAGE_BYTES)


async def _first_of(*events: asyncio.Event) -> None:
    waiting = [asyncio.create_task(event.wait()) for event in events]
    try:
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in waiting:
            task.cancel()


def _not_started(name: str, holding: "asyncio.Task[None]") -> VivaceError:
    error = holding.exception() if not holding.cancelled() else None
    if isinstance(error, VivaceError) and error.hint:
        return error
    said = error.message if isinstance(error, McpProblem) else "it ended"
    return McpProblem(f"The MCP server {name} did not start: {said}", "`vivace mcp list` tries it alone.")


def _root_of(error: BaseException) -> str:
    """Return the words of what went wrong first, out of the groups in which it comes."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return str(error) or type(error).__name__


def check_installed() -> None:
    """Raise McpProblem if the SDK is not here."""
    from vivace.extras import find_extra

    if find_extra("mcp").missing:
        raise McpProblem("MCP servers need the extra mcp, which is not installed.", "vivace extras add mcp")
