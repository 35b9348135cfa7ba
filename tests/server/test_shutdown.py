"""A server that is told to stop says goodbye: every running turn ends with its terminal event."""

import asyncio
import os
import signal
from pathlib import Path

import pytest

from tests.client.test_warm import Start
from tests.server.serving import fetch, script, send, sse_events, until
from vivace.client import warm
from vivace.client.responses import ResponsesClient
from vivace.client.warm import ensure_server
from vivace.errors import VivaceError
from vivace.protocol.shapes.events import OutputTextDelta, ResponseCompleted, ResponseIncomplete


@pytest.fixture
def slow(tmp_path: Path) -> str:
    return script(tmp_path, replies={"": "x" * 3000}, step_ms=10)


async def test_sigterm_ends_turns_with_a_terminal_event(start: Start, slow: str) -> None:
    """On a socket, as a stream and as JSON: `incomplete`, with the text so far; then the server is gone."""
    settings = start(model=slow, drain_seconds=0.1)
    address = ensure_server(settings)
    over_sse = asyncio.to_thread(
        lambda: sse_events(send(address, "POST", "/v1/responses", {"input": "a", "stream": True}))
    )
    as_json = asyncio.to_thread(fetch, address, "POST", "/v1/responses", {"input": "b"})
    others = [asyncio.create_task(over_sse), asyncio.create_task(as_json)]
    is_told = False
    async with ResponsesClient(address) as client:
        async for event in client.stream({"input": "c"}):
            if isinstance(event, OutputTextDelta) and not is_told:
                is_told = True
                await asyncio.to_thread(until, lambda: warm.read_status(settings).engine.turns == 3)  # type: ignore[union-attr]
                os.kill(address.pid, signal.SIGTERM)
    assert isinstance(event, ResponseIncomplete)
    assert event.response.output_text.startswith("x")
    events, (_, answer) = await asyncio.gather(*others)
    assert events[-1]["type"] == "response.incomplete"
    assert answer["status"] == "incomplete"
    await asyncio.to_thread(until, lambda: warm._is_lock_free(settings))


async def refused(client: ResponsesClient) -> str:
    """Ask until it is refused; the code."""
    while True:
        try:
            await client.complete({"input": "d", "generate": False})
        except VivaceError as error:
            return error.code


async def test_sigterm_lets_a_running_turn_finish(start: Start, tmp_path: Path) -> None:
    """The turn goes on to its own end; what is asked meanwhile is refused with 503."""
    settings = start(model=script(tmp_path, replies={"": "x" * 400}, step_ms=5), drain_seconds=60)
    address = ensure_server(settings)
    is_told = False
    async with ResponsesClient(address) as client, ResponsesClient(address) as other:
        async for event in client.stream({"input": "c"}):
            if isinstance(event, OutputTextDelta) and not is_told:
                is_told = True
                os.kill(address.pid, signal.SIGTERM)
                assert await refused(other) in ("shutting_down", "server_gone")
    assert isinstance(event, ResponseCompleted)
    assert event.response.output_text == "x" * 400
    await asyncio.to_thread(until, lambda: warm._is_lock_free(settings))


async def test_a_second_sigterm_does_not_wait(start: Start, slow: str) -> None:
    """Told twice, the server ends what runs and leaves."""
    settings = start(model=slow, drain_seconds=600)
    async with ResponsesClient(ensure_server(settings)) as client:
        is_told = False
        async for event in client.stream({"input": "c"}):
            if isinstance(event, OutputTextDelta) and not is_told:
                is_told = True
                await asyncio.to_thread(warm.stop_server, settings, is_hurried=True)
    assert isinstance(event, ResponseIncomplete)


async def test_an_open_socket_does_not_hold_the_server(start: Start, slow: str) -> None:
    """An idle connection is closed; what is asked on it afterwards is an error, not silence."""
    settings = start(model=slow)
    async with ResponsesClient(ensure_server(settings)) as client:
        await asyncio.to_thread(warm.stop_server, settings)
        with pytest.raises(VivaceError):
            await client.complete({"input": "hi"})
