"""`vivace acp` when it runs: the protocol on stdin and stdout until the client leaves.

Owns the two pipes: one JSON object a line, and nothing but the protocol is ever written to stdout, whatever a
library prints. What is no message is answered as such. Does not own what is said (`agent`).
"""

import asyncio
import json
import logging
import os
import sys
from typing import Any, BinaryIO, cast

from acp import RequestError
from acp.core import AgentSideConnection

from vivace.acp.agent import VivaceAgent
from vivace.acp.requests import Requests
from vivace.agent.effort import Effort
from vivace.config import Settings

MAX_LINE_BYTES = 50_000_000  # of one message: a prompt may hold whole files


def serve(settings: Settings, effort: Effort | None = None) -> None:
    """Speak ACP until stdin ends."""
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="%(name)s: %(message)s")
    output = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)  # what else is printed goes where errors go
    asyncio.run(_serve(settings, effort, output))


async def _serve(settings: Settings, effort: Effort | None, output: BinaryIO) -> None:
    requests = Requests(await _lines(output))
    agent = VivaceAgent(settings, requests, effort)
    connection = AgentSideConnection(cast(Any, agent), requests, listening=False, use_unstable_protocol=True)
    try:
        await connection.listen()
    finally:
        await asyncio.shield(connection.close())
        await agent.close()


async def _lines(output: BinaryIO) -> "LineTransport":
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=MAX_LINE_BYTES)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    transport, protocol = await loop.connect_write_pipe(asyncio.streams.FlowControlMixin, output)
    return LineTransport(reader, asyncio.StreamWriter(transport, protocol, None, loop))


class LineTransport:
    """Messages as lines of JSON. Implements `acp`'s `Transport`."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._sending = asyncio.Lock()

    async def send(self, message: dict[str, Any]) -> None:
        """Write a message. Raise ConnectionError if nobody reads any more."""
        data = json.dumps(message, separators=(",", ":")).encode() + b"\n"
        async with self._sending:
            self._writer.write(data)
            await self._writer.drain()

    async def receive(self) -> dict[str, Any] | None:
        """Return the next message; None at the end."""
        while True:
            try:
                line = await self._reader.readline()
            except ValueError:  # longer than any message
                await self._refuse(RequestError.invalid_request({"details": "The message is too long."}))
                continue
            if not line:
                return None
            try:
                message = json.loads(line) if line.strip() else {}
            except (ValueError, RecursionError):
                await self._refuse(RequestError.parse_error())
                continue
            if isinstance(message, dict):
                if message:
                    return message
            else:
                await self._refuse(RequestError.invalid_request())

    async def close(self) -> None:
        self._writer.close()

    async def _refuse(self, error: RequestError) -> None:
        await self.send({"jsonrpc": "2.0", "id": None, "error": error.to_error_obj()})
