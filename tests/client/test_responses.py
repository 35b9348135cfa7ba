"""Our own client: leaving early, errors, a server that goes away."""

import asyncio
import os
import signal
from contextlib import aclosing

import pytest

from tests.server.serving import LONG, script, status_of, until, until_ready
from vivace.client.responses import ResponsesClient
from vivace.client.warm import ServerAddress, ensure_server
from vivace.config import Settings
from vivace.errors import RequestRefused, ServerGone
from vivace.protocol.shapes.events import OutputTextDelta


async def test_leaving_early_cancels_the_turn(served: Settings, address: ServerAddress) -> None:
    """Who closes the stream ends the turn, and the same socket serves the next one."""
    before = status_of(served).engine.tokens_generated
    async with ResponsesClient(address) as client:
        async with aclosing(client.stream({"input": "long"})) as events:
            async for event in events:
                if isinstance(event, OutputTextDelta):
                    break
        await asyncio.to_thread(until, lambda: status_of(served).engine.turns == 0)
        assert status_of(served).engine.tokens_generated - before < len(LONG) / 2
        assert (await client.complete({"input": "hi"})).output_text == "Hello there."


async def test_a_cancelled_task_cancels_the_turn(served: Settings, address: ServerAddress) -> None:
    """Ctrl-C in the caller is an interrupt of the turn."""
    async with ResponsesClient(address) as client:
        began = asyncio.Event()

        async def listen() -> None:
            async for event in client.stream({"input": "long"}):
                if isinstance(event, OutputTextDelta):
                    began.set()

        task = asyncio.create_task(listen())
        await began.wait()
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()
        await asyncio.to_thread(until, lambda: status_of(served).engine.turns == 0)
        assert (await client.complete({"input": "hi"})).output_text == "Hello there."


async def test_refusals_are_typed_and_the_socket_goes_on(address: ServerAddress) -> None:
    """An error frame is a `RequestRefused` with code and status."""
    async with ResponsesClient(address) as client:
        with pytest.raises(RequestRefused) as caught:
            await client.complete({"input": "hi", "tools": [{"type": "web_search"}]})
        assert (caught.value.code, caught.value.status) == ("unsupported_parameter", 400)
        assert (await client.complete({"input": "hi"})).output_text == "Hello there."


async def test_a_wrong_token_is_refused(address: ServerAddress) -> None:
    """The upgrade is answered with 401."""
    with pytest.raises(RequestRefused) as caught:
        await ResponsesClient(ServerAddress(address.port, "wrong", 0)).complete({"input": "hi"})
    assert caught.value.status == 401


async def test_a_server_that_is_not_there_is_gone() -> None:
    """Nobody listens: a clear error."""
    with pytest.raises(ServerGone):
        await ResponsesClient(ServerAddress(1, "t", 0)).complete({"input": "hi"})


async def test_a_server_killed_in_the_middle_is_gone_and_comes_back(start, tmp_path) -> None:  # type: ignore[no-untyped-def]
    """The stream ends with `ServerGone`; asking for a server again starts one, and no engine is left over."""
    settings = start(model=script(tmp_path, replies={"": "x" * 500}, step_ms=5))
    address = ensure_server(settings)
    engine_pid = until_ready(settings).engine.pid
    assert engine_pid

    async def kill_in_the_middle() -> None:
        async with ResponsesClient(address) as client:
            async for event in client.stream({"input": "hi"}):
                if isinstance(event, OutputTextDelta):
                    os.kill(address.pid, signal.SIGKILL)

    with pytest.raises(ServerGone):
        await kill_in_the_middle()
    await asyncio.to_thread(until, lambda: not alive(engine_pid))
    again = ensure_server(settings)
    assert again.pid != address.pid
    async with ResponsesClient(again) as client:
        assert (await client.complete({"input": "hi", "max_output_tokens": 3})).output_text == "xxx"


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
