"""The pipes to an MCP server that is a process of ours: bounded lines, a clean environment, a sure end.

Owns the process and its bytes. The SDK's own transport would take a line of any length into memory. Does not
own the protocol: messages go to the SDK's client as its transports give them (`connection`). Needs the extra
`mcp`.
"""

import asyncio
import contextlib
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vivace.agent.mcp.servers import NamedServer
from vivace.agent.tools.bounded import printable
from vivace.agent.trust.programs import programs_of
from vivace.errors import McpProblem

if TYPE_CHECKING:
    from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
    from mcp.shared.message import SessionMessage

MAX_MESSAGE_BYTES = 8 << 20
TAIL_BYTES = 2000  # of stderr, which say why a server did not start
GOODBYE_S = 1.0  # for a server to end by itself once its stdin is closed
# What a server gets of our environment: nothing that could be a secret.
KEPT = ("PATH", "HOME", "LANG", "LC_ALL", "TERM", "USER", "LOGNAME", "SHELL", "TMPDIR", "XDG_CACHE_HOME")


class StdioTransport:
    """A started server. As a context it gives the two streams that the SDK's client wants."""

    def __init__(self, named: NamedServer, folder: Path, ended: asyncio.Event) -> None:
        self._named = named
        self._folder = folder
        self._ended = ended  # set when nothing more comes from the server
        self._tail = b""
        self._tasks: list[asyncio.Task[None]] = []
        self._process: asyncio.subprocess.Process | None = None

    @property
    def last_words(self) -> str:
        """Return the last line that the server wrote to stderr."""
        lines = printable(self._tail).strip().splitlines()
        return lines[-1][:300] if lines else ""

    async def __aenter__(self) -> tuple[Any, Any]:
        import anyio

        self._process = await self._started()
        incoming, received = anyio.create_memory_object_stream[Any](0)
        outgoing, to_send = anyio.create_memory_object_stream[Any](0)
        self._tasks = [
            asyncio.create_task(self._receive(self._process, incoming)),
            asyncio.create_task(self._send(self._process, to_send)),
            asyncio.create_task(self._keep_tail(self._process)),
        ]
        return received, outgoing

    async def _started(self) -> asyncio.subprocess.Process:
        server = self._named.server
        self._check_programs()
        environment = {name: os.environ[name] for name in KEPT if name in os.environ}
        try:
            return await asyncio.create_subprocess_exec(
                server.command,
                *server.args,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                env=environment | self._named.env,
                cwd=self._folder,
                start_new_session=True,
                limit=MAX_MESSAGE_BYTES,
            )
        except (OSError, ValueError) as error:
            raise McpProblem(
                f"The MCP server {self._named.name} could not be started: {error}.",
                f"It is started with: {server.line}",
            ) from error

    def _check_programs(self) -> None:
        """Raise McpProblem if a program of the project is another one by now.

        A task may have written it. One that is new counts too; one that is missing does not, since the
        copy of the folder in which a background task works lacks some files.
        """
        if not self._named.is_project:
            return
        found = programs_of(Path(os.path.realpath(self._folder)), self._named.server).files
        for name, digest in found.items():
            if self._named.programs.get(name) != digest:
                raise McpProblem(
                    f"The MCP server {self._named.name} is not started: {name} is not what was trusted.",
                    "`vivace trust` shows what it would run, and asks.",
                )

    async def _receive(
        self, process: asyncio.subprocess.Process, incoming: "MemoryObjectSendStream[SessionMessage]"
    ) -> None:
        """Pass on each line that is a message. A line beyond all bounds ends the connection."""
        import anyio
        from mcp.shared.message import SessionMessage
        from mcp_types import jsonrpc_message_adapter

        assert process.stdout is not None
        async with incoming:
            with contextlib.suppress(ValueError, anyio.BrokenResourceError, anyio.ClosedResourceError):
                while line := await process.stdout.readline():
                    try:
                        message = jsonrpc_message_adapter.validate_json(line, by_name=False)
                    except ValueError:
                        continue  # not a message: some servers print to stdout
                    await incoming.send(SessionMessage(message))
        self._ended.set()

    async def _send(
        self, process: asyncio.subprocess.Process, to_send: "MemoryObjectReceiveStream[SessionMessage]"
    ) -> None:
        assert process.stdin is not None
        async with to_send:
            with contextlib.suppress(OSError):
                async for each in to_send:
                    text = each.message.model_dump_json(by_alias=True, exclude_unset=True)
                    process.stdin.write(text.encode() + b"\n")
                    await process.stdin.drain()

    async def _keep_tail(self, process: asyncio.subprocess.Process) -> None:
        assert process.stderr is not None
        while data := await process.stderr.read(65536):
            self._tail = (self._tail + data)[-TAIL_BYTES:]

    async def __aexit__(self, *_: object) -> None:
        """End the server and whatever it started and left in its group."""
        process = self._process
        assert process is not None
        assert process.stdin is not None
        process.stdin.close()
        try:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(process.wait(), GOODBYE_S)
        finally:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            await _gone(process)


async def _gone(process: asyncio.subprocess.Process) -> None:
    """Wait for a killed process, and read what it left: asyncio does not see the end of a full pipe."""
    assert process.stdout is not None
    with contextlib.suppress(TimeoutError):  # a process outside of the group may keep the pipe
        async with asyncio.timeout(GOODBYE_S):
            while await process.stdout.read(65536):
                pass
            await process.wait()
