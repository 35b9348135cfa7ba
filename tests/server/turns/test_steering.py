"""Steering on a real socket: the turn turns around, what it said stays, and only the steer is prefilled."""

import asyncio
import itertools
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from openai import AsyncOpenAI
from websockets.asyncio.client import ClientConnection, connect

from tests.server.serving import script, status_of, until
from vivace.client.warm import ServerAddress
from vivace.config import Settings

ENDS = ("response.completed", "response.incomplete", "response.failed")


class Socket:
    """A client that speaks JSON, and keeps everything that it heard."""

    def __init__(self, connection: ClientConnection) -> None:
        self._connection = connection
        self.heard: list[dict[str, Any]] = []

    async def say(self, kind: str, **fields: Any) -> None:
        await self._connection.send(json.dumps({"type": kind} | fields))

    async def until(self, is_it: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """Hear events until one is it."""
        while True:
            self.heard.append(json.loads(await self._connection.recv()))
            if is_it(self.heard[-1]):
                return self.heard[-1]

    async def until_type(self, *kinds: str) -> dict[str, Any]:
        return await self.until(lambda event: event["type"] in kinds)

    async def until_said(self, letters: int) -> str:
        """The response that runs, when it has said so much more."""
        created = await self.until_type("response.created")
        said = 0
        while said < letters:
            said += len((await self.until_type("response.output_text.delta"))["delta"])
        return str(created["response"]["id"])

    def text(self, response_id: str) -> str:
        """What the events told of this response, by their items."""
        item = response_id.replace("resp_", "msg_")
        return "".join(
            event["delta"]
            for event in self.heard
            if event["type"] == "response.output_text.delta" and event["item_id"] == item
        )


@pytest.fixture
async def socket(address: ServerAddress) -> AsyncIterator[Socket]:
    headers = {"Authorization": f"Bearer {address.token}"}
    async with connect(address.socket_url, additional_headers=headers, proxy=None) as connection:
        yield Socket(connection)


@pytest.fixture
def slow(tmp_path: Path) -> str:
    return script(tmp_path, replies={"turn": "Turned.", "": "x" * 500}, step_ms=5)


async def test_a_steer_keeps_the_partial_and_goes_on(socket: Socket, slow: str) -> None:
    """Accepted, incomplete with `steered`, created at once; the successor goes on after log and steer."""
    await socket.say("response.create", model=slow, input="go", metadata={"a": "b"})
    first = await socket.until_said(5)
    await socket.say("response.steer", previous_response_id=first, input="turn around")
    accepted = await socket.until_type("response.steer.accepted")
    assert accepted["steer"]["previous_response_id"] == first
    ended = await socket.until_type(*ENDS)
    assert ended["type"] == "response.incomplete"
    assert ended["response"]["incomplete_details"]["reason"] == "steered"
    assert ended["response"]["output"][0]["content"][0]["text"] == socket.text(first)
    created = await socket.until_type("response.created")
    assert created["response"]["previous_response_id"] == first
    assert created["response"]["metadata"] == {"a": "b"}, "the successor inherits the settings"
    done = await socket.until_type(*ENDS)
    assert done["response"]["output"][0]["content"][0]["text"] == "Turned."
    times = done["response"]["vivace"]["waterfall"]
    said = '(I had asked: "go" Answer that again, with this change:)\n\nturn around'
    told = f"<|im_end|>\n<|im_start|>user\n{said}<|im_end|>\n<|im_start|>assistant\n"
    tokens = len(told.replace("<|im_end|>", "e").replace("<|im_start|>", "s"))
    assert times["new_tokens"] <= tokens + 2
    assert ended["response"]["usage"]["total_tokens"] - 1 <= times["cached_tokens"]


async def test_numbers_have_no_gap_through_a_steer(socket: Socket, slow: str) -> None:
    """The parent's events, the acceptance among them, are numbered in one row; the successor begins at 0."""
    await socket.say("response.create", model=slow, input="go")
    first = await socket.until_said(3)
    await socket.say("response.steer", previous_response_id=first, input="turn")
    await socket.until_type(*ENDS)
    parents = [event["sequence_number"] for event in socket.heard]
    assert parents == list(range(len(parents)))
    await socket.until_type(*ENDS)
    successors = [event["sequence_number"] for event in socket.heard[len(parents) :]]
    assert successors == list(range(len(successors)))


async def test_codex_interrupts_and_goes_on_from_there(socket: Socket, slow: str) -> None:
    """`response.interrupt` that discards partial items: what was not whole is as if it was never said."""
    await socket.say("response.create", model=slow, input="go", store=False)
    first = await socket.until_said(5)
    await socket.say("response.interrupt", response_id=first, mode="discard_partial_items")
    ended = await socket.until_type(*ENDS)
    assert ended["response"]["incomplete_details"]["reason"] == "interrupted"
    assert ended["response"]["output"] == []
    kinds = [event["type"] for event in socket.heard]
    assert "response.interrupt.accepted" in kinds
    assert "response.output_item.interrupted" in kinds
    assert "response.output_item.done" not in kinds
    await socket.say("response.create", model=slow, input="turn", previous_response_id=first, store=False)
    done = await socket.until_type(*ENDS)
    assert done["response"]["output"][0]["content"][0]["text"] == "Turned."
    told = len("sgo") + len("user\n") + len("turn") + len("user\n") + len("assistant\n") + 8
    assert done["response"]["usage"]["input_tokens"] <= told, "the partial is not in the log"


async def test_lanes_run_at_the_same_time(socket: Socket, slow: str) -> None:
    """Two lanes' events interleave, each with its name; the default lane's have none."""
    for lane in ("a", "b", None):
        named = {"stream_id": lane} if lane else {}
        await socket.say("response.create", model=slow, input="go", max_output_tokens=60, **named)
    for _ in range(3):
        await socket.until_type(*ENDS)
    order = [event.get("stream_id") for event in socket.heard]
    assert set(order) == {"a", "b", None}
    changes = sum(before != after for before, after in itertools.pairwise(order))
    assert changes > 6, "they did not run one after the other"


async def test_a_fork_goes_on_from_an_older_response(socket: Socket, slow: str) -> None:
    """Another lane continues a response that is not the latest; both remain."""
    await socket.say("response.create", model=slow, input="one", max_output_tokens=4, store=False)
    first = (await socket.until_type(*ENDS))["response"]
    more = {"model": slow, "max_output_tokens": 4, "store": False, "previous_response_id": first["id"]}
    await socket.say("response.create", input="two", stream_id="side", **more)
    fork = await socket.until_type(*ENDS)
    assert fork["stream_id"] == "side"
    await socket.say("response.create", input="three", **more)
    after = await socket.until_type(*ENDS)
    for event in (fork, after):
        cached = event["response"]["usage"]["input_tokens_details"]["cached_tokens"]
        assert cached >= first["usage"]["total_tokens"] - 1


async def test_text_being_typed_is_prefilled(socket: Socket, served: Settings) -> None:
    """Provisional input costs the real request only what changed at its end, and is no part of the log."""
    await socket.say("response.create", input="Hello.", generate=False)
    warm = (await socket.until_type(*ENDS))["response"]
    typed = "please write a long story about a small ship"
    for length in (10, 20, len(typed)):
        await socket.say(
            "response.create",
            input=typed[:length],
            generate=False,
            is_provisional=True,
            previous_response_id=warm["id"],
        )
        await socket.until_type(*ENDS)
    await socket.say("response.create", input=typed, previous_response_id=warm["id"], max_output_tokens=2)
    done = (await socket.until_type(*ENDS))["response"]
    times = done["vivace"]["waterfall"]
    assert times["new_tokens"] <= len("e\ns") + len("assistant\n") + 2, "the typed text was there already"
    assert done["usage"]["input_tokens"] >= len(typed) + warm["usage"]["input_tokens"]
    assert await asyncio.to_thread(until, lambda: status_of(served).engine.turns == 0)


async def test_the_sdk_steers(address: ServerAddress, slow: str) -> None:
    """OpenAI's own client sends `response.steer` and parses every answer."""
    kinds = []
    async with (
        AsyncOpenAI(base_url=address.url, api_key=address.token, max_retries=0) as sdk,
        sdk.responses.connect() as connection,
    ):
        await connection.response.create(model=slow, input="go")
        async for event in connection:
            kinds.append(event.type)
            if event.type == "response.created":
                current = event.response.id
            if kinds.count("response.output_text.delta") == 3 and "response.steer.accepted" not in kinds:
                await connection.response.steer(previous_response_id=current, input="turn")
            if event.type == "response.completed":
                break
    assert event.response.output_text == "Turned."
    assert kinds.count("response.created") == 2
