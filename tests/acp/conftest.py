"""An agent and the SDK's client in one process, with a real server and a scripted model behind it."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from acp._transport import Transport, memory_transport_pair
from acp.connection import StreamEvent
from acp.core import AgentSideConnection, ClientSideConnection
from acp.schema import ClientCapabilities

from tests.acp.editor import NOTHING, FakeEditorClient
from tests.server.conftest import served
from tests.server.serving import LONG, script
from vivace.acp.agent import VivaceAgent
from vivace.acp.requests import Requests
from vivace.config import Settings

__all__ = ["served"]


class Wire:
    """The client's end: the connection, what it was told, and one session."""

    def __init__(self, agent: ClientSideConnection, client: FakeEditorClient, folder: Path) -> None:
        self.agent, self.client, self.folder = agent, client, folder
        self.session = ""
        self.raw: list[dict[str, Any]] = []  # all messages, of both sides
        self._transport: Transport | None = None

    def tap(self, transport: Transport) -> None:
        """Say what goes beside the SDK's client, which does not know every method."""
        self._transport = transport

    def observe(self, event: StreamEvent) -> None:
        self.raw.append(event.message)
        self.client.notice()

    async def send_raw(self, **message: Any) -> None:
        assert self._transport is not None
        await self._transport.send({"jsonrpc": "2.0", **message})

    async def take_back(self, method: str) -> None:
        """Cancel the last request with this method, by `$/cancel_request`."""
        asked = [each["id"] for each in self.raw if each.get("method") == method]
        await self.send_raw(method="$/cancel_request", params={"requestId": asked[-1]})

    async def answer_to(self, request_id: str) -> dict[str, Any]:
        """Return the answer to a request that was sent raw."""

        def answers() -> list[dict[str, Any]]:
            return [each for each in self.raw if each.get("id") == request_id and "method" not in each]

        await self.client.until(lambda: bool(answers()))
        return answers()[0]

    async def prompt(self, text: str, *more: Any) -> str:
        """Send a prompt; return its stop reason."""
        from acp import text_block

        blocks = [text_block(text), *more] if text else list(more)
        async with asyncio.timeout(60):
            answer = await self.agent.prompt(session_id=self.session, prompt=blocks)
        return answer.stop_reason


Open = Callable[..., Awaitable[Wire]]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path.resolve() / "repository"
    folder.mkdir()
    return folder


@pytest.fixture
async def open_wire(served: Settings, tmp_path: Path, folder: Path) -> AsyncIterator[Open]:
    """Connect a client to an agent whose model gives these replies, and begin a session."""
    closing: list[Callable[[], Awaitable[None]]] = []

    async def connect(
        replies: dict[str, str] | None = None,
        capabilities: ClientCapabilities = NOTHING,
        *,
        begins: bool = True,
        **options: Any,
    ) -> Wire:
        said = replies or {"long": LONG, "": "Hello there."}
        model = script(tmp_path, replies=said, **({"context_tokens": 20000} | options))
        settings = served.having(model=model, state_dir=served.state_dir)
        here, there = memory_transport_pair()
        requests = Requests(here)
        client, agent = FakeEditorClient(), VivaceAgent(settings, requests)
        ours = AgentSideConnection(agent, requests, use_unstable_protocol=True)  # type: ignore[arg-type]
        wires: list[Wire] = []
        theirs = ClientSideConnection(
            client,  # type: ignore[arg-type]
            there,
            use_unstable_protocol=True,
            observers=[lambda event: wires[0].observe(event)],
        )
        closing.extend([theirs.close, ours.close, agent.close])
        wire = Wire(theirs, client, folder)
        wire.tap(there)
        wires.append(wire)
        await theirs.initialize(protocol_version=1, client_capabilities=capabilities)
        if begins:
            wire.session = (await theirs.new_session(cwd=str(folder), mcp_servers=[])).session_id
        return wire

    yield connect
    async with asyncio.timeout(60):
        for close in closing:
            await close()
