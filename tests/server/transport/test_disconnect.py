"""A client that goes away takes its turn with it: queued, in prefill or in the middle of the answer."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.client import ClientConnection, connect

from tests.server.serving import script, status_of, until, until_ready
from vivace.client import warm
from vivace.client.warm import ServerAddress
from vivace.config import Settings

STEP_MS = 15
PROMPT = "word " * 100  # 500 tokens: 16 prefill steps
Leave = Callable[[], None]


@pytest.fixture
def slow(tmp_path: Path) -> str:
    """A model whose answer would take half a minute."""
    return script(tmp_path, replies={"": "x" * 2000}, step_ms=STEP_MS)


async def over_socket(address: ServerAddress, body: dict[str, Any]) -> Leave:
    connection = await open_socket(address)
    await connection.send(json.dumps({"type": "response.create"} | body))
    return connection.transport.abort


async def over_http(address: ServerAddress, body: dict[str, Any]) -> Leave:
    reader, writer = await asyncio.open_connection("127.0.0.1", address.port)
    data = json.dumps(body).encode()
    lines = ["POST /v1/responses HTTP/1.1", f"Host: 127.0.0.1:{address.port}", f"Content-Length: {len(data)}"]
    lines += [f"Authorization: Bearer {address.token}", "", ""]
    writer.write("\r\n".join(lines).encode() + data)
    await writer.drain()
    _READERS.append(reader)
    return writer.close


_READERS: list[asyncio.StreamReader] = []  # kept, or asyncio warns of readers that nobody reads


async def over_sse(address: ServerAddress, body: dict[str, Any]) -> Leave:
    return await over_http(address, body | {"stream": True})


async def open_socket(address: ServerAddress) -> ClientConnection:
    return await connect(
        address.socket_url, additional_headers={"Authorization": f"Bearer {address.token}"}, proxy=None
    )


@pytest.mark.parametrize("ask", [over_socket, over_sse, over_http])
@pytest.mark.parametrize("phase", ["prefill", "decode"])
async def test_leaving_frees_the_turn(
    ask: Callable[..., Any], phase: str, served: Settings, address: ServerAddress, slow: str
) -> None:
    """Before the first token or after it: within two steps of the disconnect the engine has let go."""
    leave = await ask(address, {"model": slow, "input": PROMPT})
    counter = "tokens_prefilled" if phase == "prefill" else "tokens_generated"
    await asyncio.to_thread(until, lambda: getattr(running(served, slow), counter, 0) > 0)
    before = status_of(served).engine
    leave()
    await asyncio.to_thread(until, lambda: status_of(served).engine.turns == 0, 2.0)
    after = status_of(served).engine
    steps = after.tokens_generated - before.tokens_generated
    steps += (after.tokens_prefilled - before.tokens_prefilled) // 32
    assert steps <= 4, "two of the turn's, and what ran while the question for the status was on its way"
    until(lambda: status_of(served).answers == 0)


def running(settings: Settings, model: str) -> Any:
    engine = status_of(settings).engine
    return engine if engine.model == model and engine.turns else None


async def test_leaving_while_waiting_for_the_model(
    start: Callable[..., Settings], slow: str, tmp_path: Path
) -> None:
    """A turn that waits for the only engine to change models is forgotten; the one that runs is not."""
    settings = start(model=slow, allow_scripted=True, max_models=1)
    until_ready(settings)
    address = warm.ensure_server(settings)
    other = script(tmp_path, "other", replies={"": "other"})
    leave_first = await over_socket(address, {"model": slow, "input": "hi"})
    await asyncio.to_thread(until, lambda: running(settings, slow))
    leave_second = await over_sse(address, {"model": other, "input": "hi"})
    await asyncio.to_thread(until, lambda: status_of(settings).answers == 2)
    leave_second()
    await asyncio.to_thread(until, lambda: status_of(settings).answers == 1)
    assert running(settings, slow)
    leave_first()
    await asyncio.to_thread(until, lambda: status_of(settings).answers == 0)
    assert status_of(settings).engine.model == slow


async def test_leaving_forgets_what_waits_on_the_socket(
    served: Settings, address: ServerAddress, slow: str
) -> None:
    """Requests that wait behind a running turn never reach the engine."""
    connection = await open_socket(address)
    for _ in range(3):
        await connection.send(json.dumps({"type": "response.create", "model": slow, "input": "hi"}))
    await asyncio.to_thread(until, lambda: running(served, slow))
    connection.transport.abort()
    await asyncio.to_thread(until, lambda: status_of(served).answers == 0)
    await asyncio.to_thread(until, lambda: status_of(served).engine.turns == 0)


async def test_cancel_ends_the_turn_with_a_terminal_event(address: ServerAddress, slow: str) -> None:
    """`response.cancel` is answered with `response.incomplete`, the text so far in it; the socket stays."""
    async with await open_socket(address) as connection:
        await connection.send(json.dumps({"type": "response.create", "model": slow, "input": "hi"}))
        deltas = ""
        while True:
            event = json.loads(await connection.recv())
            if event["type"] == "response.created":
                response_id = event["response"]["id"]
            deltas += event["delta"] if event["type"] == "response.output_text.delta" else ""
            if len(deltas) >= 3:
                await connection.send(json.dumps({"type": "response.cancel", "response_id": response_id}))
            if "response" in event and event["response"]["status"] != "in_progress":
                break
        assert event["type"] == "response.incomplete"
        assert event["response"]["incomplete_details"]["reason"] == "interrupted"
        assert event["response"]["output"][0]["content"][0]["text"] == deltas == "x" * len(deltas)
        more = {"type": "response.create", "input": "y", "previous_response_id": response_id}
        await connection.send(json.dumps(more | {"max_output_tokens": 1}))
        while json.loads(await connection.recv())["type"] != "response.incomplete":
            pass


async def test_a_malformed_message_leaves_the_turn_alone(address: ServerAddress) -> None:
    """Rubbish in the middle of a turn gets its error frame; the turn goes on to its end."""
    async with await open_socket(address) as connection:
        await connection.send(json.dumps({"type": "response.create", "input": "hi"}))
        await connection.send("{rubbish")
        await connection.send(b"\x00\x01")
        kinds = []
        while not kinds or kinds[-1] != "response.completed":
            event = json.loads(await connection.recv())
            kinds.append(event["type"])
            if event["type"] == "error":
                assert event["status"] == 400
                assert set(event["error"]) == {"type", "code", "message", "param"}
        assert kinds.count("error") == 2
