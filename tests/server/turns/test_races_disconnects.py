"""Clients that just go: in line, in prefill, in decode, in the middle of a call."""

import asyncio
import contextlib
import random
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from websockets.exceptions import ConnectionClosed

from tests.server.serving import fetch, script, send, status_of, until, until_ready
from tests.server.talking import ENDS, post, talking
from tests.server.transport.attacks.attacking import memory_mib
from tests.thorough import examples
from vivace.client import warm
from vivace.client.warm import ServerAddress
from vivace.config import Settings

COUNT, AT_ONCE = examples(150, times=20), 25
CALL = 'Look. <tool_call>\n{"name": "look", "arguments": {"at": "' + "far " * 100 + '"}}</tool_call>'
PLACE = {"properties": {"at": {"type": "string"}}, "required": ["at"], "additionalProperties": False}
LOOK = {"type": "function", "name": "look", "parameters": {"type": "object"} | PLACE}
MORE_MIB = 60  # than after the first fifth: what is remembered has its limits


@pytest.fixture(scope="module")
def crowded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Settings]:
    """Eight turns at once, so that many wait; a prefill and an answer that last a while."""
    folder = tmp_path_factory.mktemp("crowded")
    replies = {"call": CALL, "": "word " * 200}
    model = script(folder, replies=replies, step_ms=1, prefill_token_ms=0.05, context_tokens=16384)
    settings = Settings(
        cache_dir=folder / "cache", state_dir=folder, port=0, threads=1, model=model, allow_scripted=True
    )
    settings = settings.having(max_running=8, max_waiting=64)
    warm.ensure_server(settings)
    until_ready(settings)
    yield settings
    assert warm.stop_server(settings)


async def test_hundreds_of_clients_that_leave(crowded: Settings) -> None:
    """Nothing goes on for them: no turn, no answer, no place, no connection, and no memory that grows."""
    address = warm.ensure_server(crowded)
    seed = random.randrange(10**6)
    print(f"seed {seed}")
    chance = random.Random(seed)
    visits = [random.Random(chance.random()) for _ in range(COUNT)]
    await asyncio.to_thread(fetch, address, "POST", "/v1/responses", {"input": "hi", "max_output_tokens": 1})
    files = open_files(address)
    await all_of(address, visits[: COUNT // 5])
    await asyncio.to_thread(calm, crowded, address)
    memory = memory_mib(address)
    await all_of(address, visits[COUNT // 5 :])
    await asyncio.to_thread(calm, crowded, address)
    assert memory_mib(address) < memory + MORE_MIB
    assert until(lambda: open_files(address) <= files)
    assert gauge(address, "request_aborts_total", "client_gone") > COUNT // 10, "it is told why they ended"
    async with talking(address) as talker:
        assert (await talker.complete(input="hi"))["status"] == "completed"


async def all_of(address: ServerAddress, visits: list[random.Random]) -> None:
    """A few at a time."""
    left = iter(visits)

    async def some() -> None:
        for chance in left:
            await visit(address, chance)

    await asyncio.gather(*(some() for _ in range(AT_ONCE)))


async def visit(address: ServerAddress, chance: random.Random) -> None:
    body = {
        "input": chance.choice(["call", "go", "go " * 200]),
        "tools": [LOOK | {"strict": chance.random() < 0.5}],  # told as it grows, or when it is whole
        "store": chance.random() < 0.3,
    }
    body |= {"service_tier": chance.choice(["auto", "auto", "flex"])}
    come = chance.choice([over_socket, over_socket, over_sse, over_json])
    with contextlib.suppress(ConnectionClosed, ConnectionError, asyncio.IncompleteReadError):
        await come(address, body, chance)


async def over_socket(address: ServerAddress, body: dict[str, object], chance: random.Random) -> None:
    async with talking(address, close_timeout=1) as talker:
        lanes = chance.sample(["a", "b", "c", None], chance.choice([1, 1, 1, 2, 4]))
        for lane in lanes:
            await talker.create(**body, **({"stream_id": lane} if lane else {}))
        for _ in range(chance.choice([0, 0, 1, 2, 3, 6, 12, 30])):
            if sum(event["type"] in (*ENDS, "error") for event in talker.heard) < len(lanes):
                await talker.hear()
        await asyncio.sleep(chance.choice([0, 0, 0.01]))
        if chance.random() < 0.3 and (begun := [e for e in talker.heard if e["type"] == "response.created"]):
            kind = chance.choice(["cancel", "interrupt"])
            await talker.say(f"response.{kind}", response_id=begun[0]["response"]["id"])
        if chance.random() < 0.7:
            talker.connection.transport.abort()


async def over_sse(address: ServerAddress, body: dict[str, object], chance: random.Random) -> None:
    await over_http(address, body | {"stream": True}, chance)


async def over_json(address: ServerAddress, body: dict[str, object], chance: random.Random) -> None:
    await over_http(address, body, chance)


async def over_http(address: ServerAddress, body: dict[str, object], chance: random.Random) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", address.port)
    try:
        path = chance.choice(["/v1/responses", "/v1/responses", "/v1/chat/completions"])
        if path.endswith("completions"):
            body = {"messages": [{"role": "user", "content": body["input"]}], "stream": "stream" in body}
        request = post(address, body, path)
        cut = chance.choice([len(request)] * 9 + [chance.randrange(len(request))])
        writer.write(request[:cut])
        if "stream" in body and cut == len(request):
            for _ in range(chance.choice([0, 0, 2, 8, 20])):
                await reader.readline()
        await asyncio.sleep(chance.choice([0, 0.002, 0.01, 0.03]))
    finally:
        if chance.random() < 0.5:
            writer.transport.abort()
        writer.close()


def calm(settings: Settings, address: ServerAddress) -> None:
    """Wait until nothing is under way, by every count that there is."""
    assert until(lambda: status_of(settings).answers == 0)
    assert until(lambda: status_of(settings).engine.turns == 0)
    gauges = ("num_requests_running", "num_requests_waiting", "sockets_open")
    assert until(lambda: not any(gauge(address, name) for name in gauges))
    engine = status_of(settings).engine
    assert engine.sessions <= 64
    assert engine.kv_tokens <= engine.kv_cells


def gauge(address: ServerAddress, name: str, label: str = "") -> float:
    answer = send(address, "GET", "/metrics")
    page = answer.read().decode()
    answer.vivace_connection.close()  # type: ignore[attr-defined]
    lines = [line for line in page.splitlines() if line.startswith(f"vivace:{name}") and label in line]
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines)


def open_files(address: ServerAddress) -> int:
    """Of the server; not known everywhere."""
    return len(list(Path(f"/proc/{address.pid}/fd").iterdir())) if sys.platform == "linux" else 0
