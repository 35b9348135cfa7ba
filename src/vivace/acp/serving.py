"""`vivace acp` when it runs: the protocol on stdin and stdout until the client leaves.

Owns the two pipes: nothing but the protocol is ever written to stdout, whatever a library prints. Does not
own what is said (`agent`).
"""

import asyncio
import logging
import os
import sys
from typing import Any, cast

from acp.core import AgentSideConnection

from vivace.acp.agent import VivaceAgent
from vivace.agent.effort import Effort
from vivace.config import Settings

MAX_LINE_BYTES = 50_000_000  # of one message: a prompt may hold whole files


def serve(settings: Settings, effort: Effort | None = None) -> None:
    """Speak ACP until stdin ends."""
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="%(name)s: %(message)s")
    output = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)  # what else is printed goes where errors go
    asyncio.run(_serve(settings, effort, output))


async def _serve(settings: Settings, effort: Effort | None, output: object) -> None:
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=MAX_LINE_BYTES)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    transport, protocol = await loop.connect_write_pipe(asyncio.streams.FlowControlMixin, output)
    writer = asyncio.StreamWriter(transport, protocol, None, loop)
    agent = VivaceAgent(settings, effort)
    connection = AgentSideConnection(
        cast(Any, agent), writer, reader, listening=False, use_unstable_protocol=True
    )
    try:
        await connection.listen()
    finally:
        await asyncio.shield(connection.close())
        await agent.close()
