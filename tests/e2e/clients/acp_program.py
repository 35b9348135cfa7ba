"""`vivace acp` as a process, with the SDK's client at its pipes."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from acp import spawn_agent_process
from acp.client.connection import ClientSideConnection

from tests.acp.editor import FILES, FakeEditorClient
from tests.e2e.terminal import PROGRAM, Home


@asynccontextmanager
async def started(
    home: Home, client: FakeEditorClient
) -> AsyncIterator[tuple[ClientSideConnection, asyncio.subprocess.Process]]:
    """Start the program as an editor does."""
    line = [*PROGRAM, "acp"]
    async with spawn_agent_process(client, *line, env=home.env(), cwd=home.work) as (agent, process):  # type: ignore[arg-type]
        await agent.initialize(protocol_version=1, client_capabilities=FILES)
        yield agent, process
