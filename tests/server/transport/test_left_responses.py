"""What becomes of a response whose client has left: the same over a socket as over events of HTTP."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.server.serving import script, status_of, until
from tests.server.talking import ask, post, talking
from vivace.client.warm import ServerAddress
from vivace.config import Settings

PROMPT = "word " * 100  # 500 tokens: 16 prefill steps
Json = dict[str, Any]
Listen = Callable[[ServerAddress, Json, str], Any]


@pytest.fixture
def slow(tmp_path: Path) -> str:
    """A model whose answer would take half a minute."""
    return script(tmp_path, replies={"short": "done", "": "x" * 2000}, step_ms=15)


async def over_socket(address: ServerAddress, body: Json, kind: str) -> list[Json]:
    """What came up to the first event of this kind; then the connection breaks."""
    async with talking(address) as talker:
        await talker.create(**body)
        await talker.until_type(kind)
        talker.connection.transport.abort()
    return talker.heard


async def over_sse(address: ServerAddress, body: Json, kind: str) -> list[Json]:
    reader, writer = await asyncio.open_connection("127.0.0.1", address.port)
    writer.write(post(address, body | {"stream": True}))
    events: list[Json] = []
    while not events or events[-1]["type"] != kind:
        line = await reader.readline()
        if line.startswith(b"data: "):
            events.append(json.loads(line.removeprefix(b"data: ")))
    writer.transport.abort()
    return events


async def left(listen: Listen, address: ServerAddress, served: Settings, body: Json, kind: str) -> str:
    """The id of a response whose client left when it had heard this kind of event, once it is over."""
    events = await listen(address, body, kind)
    await asyncio.to_thread(until, lambda: status_of(served).answers == 0)
    return str(events[0]["response"]["id"])


async def get(address: ServerAddress, response_id: str) -> tuple[int, Any]:
    return await asyncio.to_thread(ask, address, "GET", f"/v1/responses/{response_id}")


@pytest.mark.parametrize("listen", [over_socket, over_sse])
@pytest.mark.parametrize("kind", ["response.in_progress", "response.output_text.delta"])
async def test_it_is_stored_as_far_as_it_came(
    listen: Listen, kind: str, served: Settings, address: ServerAddress, slow: str
) -> None:
    """Before the first token or after it: incomplete, because it was interrupted."""
    response_id = await left(listen, address, served, {"model": slow, "input": PROMPT}, kind)
    status, response = await get(address, response_id)
    assert (status, response["status"]) == (200, "incomplete")
    assert response["incomplete_details"] == {"reason": "interrupted"}
    text = "".join(part["text"] for item in response["output"] for part in item["content"])
    assert text == "x" * len(text)
    assert bool(text) == (kind == "response.output_text.delta")


@pytest.mark.parametrize("listen", [over_socket, over_sse])
async def test_it_can_be_gone_on_from(
    listen: Listen, served: Settings, address: ServerAddress, slow: str
) -> None:
    """With its prompt and what it had said, none of which is prefilled again."""
    asked = {"model": slow, "input": PROMPT}
    response_id = await left(listen, address, served, asked, "response.output_text.delta")
    more = {"model": slow, "input": "short", "previous_response_id": response_id}
    status, response = await asyncio.to_thread(ask, address, "POST", "/v1/responses", more)
    assert (status, response["output"][0]["content"][0]["text"]) == (200, "done")
    assert response["usage"]["input_tokens_details"]["cached_tokens"] > len(PROMPT)
    _, page = await asyncio.to_thread(
        ask, address, "GET", f"/v1/responses/{response['id']}/input_items?order=asc"
    )
    assert [item["role"] for item in page["data"]] == ["user", "assistant", "user"]


@pytest.mark.parametrize("listen", [over_socket, over_sse])
async def test_what_is_not_to_be_stored_is_forgotten(
    listen: Listen, served: Settings, address: ServerAddress, slow: str
) -> None:
    """`store: false` leaves nothing behind, and nothing goes on from it."""
    asked = {"model": slow, "input": "hi", "store": False}
    response_id = await left(listen, address, served, asked, "response.output_text.delta")
    assert (await get(address, response_id))[0] == 404
    more = {"model": slow, "input": "short", "previous_response_id": response_id}
    status, answer = await asyncio.to_thread(ask, address, "POST", "/v1/responses", more)
    assert (status, answer["error"]["code"]) == (400, "previous_response_not_found")
