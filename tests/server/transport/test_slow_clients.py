"""Clients that stop reading: what they are sent is joined, then they are given up; nobody else notices."""

import asyncio
import json
import random
import string
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.server.inside import Inside, served_here, until
from tests.server.serving import script
from tests.server.talking import Talker, check_numbers, narrow_socket, post, talking
from vivace.config import Settings
from vivace.server.backends.native.turn import NativeTurn
from vivace.server.transport import protocols, sse

TEXT = "".join(random.Random(5).choices(string.ascii_letters, k=1000))  # nothing to draft from: 1,000 events
SHORT_S = 0.2

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Inside]:
    folder = tmp_path_factory.mktemp("slow")
    model = script(folder, replies={"brief": "Fine.", "": TEXT}, step_ms=0.2)
    settings = Settings(
        cache_dir=folder / "cache", state_dir=folder, port=0, threads=1, model=model, allow_scripted=True
    )
    async with served_here(settings, send_buffer_bytes=4096) as inside:
        yield inside


@pytest_asyncio.fixture(loop_scope="module")
async def inside(shared: Inside) -> AsyncIterator[Inside]:
    yield shared
    await shared.calm()


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not ten seconds."""
    assert protocols.BLOCKED_S == 10.0
    monkeypatch.setattr(protocols, "BLOCKED_S", SHORT_S)


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """However slow this machine is."""
    monkeypatch.setattr(protocols, "BLOCKED_S", 120.0)


def slowly(inside: Inside) -> dict[str, object]:
    """How to connect so that nobody in between reads ahead."""
    return {"sock": narrow_socket(inside.address), "max_queue": 1, "close_timeout": 0.2}


async def begun(inside: Inside) -> NativeTurn:
    return (await until(lambda: list(inside.native._turns)))[0]


async def test_deltas_are_joined_for_who_is_behind(inside: Inside, patient: None) -> None:
    """A client that reads again in time misses nothing: the same text in fewer, larger deltas."""
    del patient
    async with talking(inside.address, **slowly(inside)) as talker:
        await talker.create(input="go")
        turn = await begun(inside)
        await until(lambda: turn.is_over)
        assert len(turn._outbox._waiting) <= 2, "the text that was not sent, and the end"
        ended = await talker.ended()
        deltas = [event["delta"] for event in talker.heard if event["type"] == "response.output_text.delta"]
        assert "".join(deltas) == ended["response"]["output"][0]["content"][0]["text"] == TEXT
        assert max(map(len, deltas)) > 100
        check_numbers(talker.heard)


async def test_a_client_that_takes_nothing_is_closed_with_1013(
    inside: Inside, hasty: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its turns end, the connection is over on our side, and the close is what it reads last."""
    del hasty
    monkeypatch.setattr(protocols, "CUT_S", 60.0)
    async with talking(inside.address, **slowly(inside)) as talker:
        for lane in ("a", "b", "c"):
            await talker.create(input="go", stream_id=lane)
        await begun(inside)
        await inside.calm()
        assert await talker.until_closed() == 1013
    assert await aborts(inside, "slow_client") >= 3


async def test_a_client_that_never_reads_again_is_cut_off(
    inside: Inside, hasty: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even the close is taken: after a while the connection itself is gone, and its buffers with it."""
    del hasty
    monkeypatch.setattr(protocols, "CUT_S", SHORT_S)
    async with talking(inside.address, **slowly(inside)) as talker:
        await talker.create(input="go")
        await until(lambda: inside.sockets._open)
        await inside.calm()
        await until(lambda: not inside.server.server_state.connections)


async def test_others_do_not_notice(inside: Inside, hasty: None) -> None:
    """While one client is blocked and then given up, another has turn after turn."""
    del hasty
    async with talking(inside.address, **slowly(inside)) as slow, talking(inside.address) as other:
        await slow.create(input="go")
        await begun(inside)
        while len(inside.sockets._open) == 2:
            assert (await other.complete(input="brief"))["status"] == "completed"


async def test_who_floods_and_does_not_listen_is_given_up(inside: Inside, hasty: None) -> None:
    """Every message is answered, so who never reads is not read from any more either."""
    del hasty
    async with talking(inside.address, **slowly(inside)) as talker:
        flood = asyncio.create_task(_flood(talker))
        assert await until(lambda: not inside.sockets._open, 30)
        await inside.calm()
        flood.cancel()
        await asyncio.wait([flood])


async def _flood(talker: Talker) -> None:
    while True:
        await talker.say("rubbish", padding="x" * 1000)


async def test_a_stream_that_is_not_read_ends(inside: Inside, hasty: None) -> None:
    """Over HTTP too: the turn ends, what it said is stored, and nothing is kept for it."""
    del hasty
    reader, writer = await asyncio.open_connection(sock=narrow_socket(inside.address), limit=1)
    writer.write(post(inside.address, {"input": "go", "stream": True}))
    turn = await begun(inside)
    async with talking(inside.address) as other:
        while not turn.is_over:
            assert (await other.complete(input="brief"))["status"] == "completed"
    assert turn.interrupted
    await inside.calm()
    record = await inside.store.get(turn.id, "")
    assert record is not None
    assert record.status == "incomplete"
    writer.close()
    del reader


async def test_who_takes_the_answer_after_all_is_not_given_up(inside: Inside, patient: None) -> None:
    """Patience begins when the client takes nothing, and ends when it takes something again."""
    del patient
    loop, heard = asyncio.get_running_loop(), b""
    with narrow_socket(inside.address) as link:
        await loop.sock_sendall(link, post(inside.address, {"input": "go", "stream": True}))
        connection = (await until(lambda: list(inside.server.server_state.connections)))[0]
        await until(lambda: connection._patience)
        while not heard.endswith(b"0\r\n\r\n"):
            heard += await loop.sock_recv(link, 1 << 16)
        await until(lambda: connection._patience is None)
        assert not connection.transport.is_closing()


async def test_a_chat_that_is_not_read_ends(inside: Inside, hasty: None) -> None:
    """Likewise."""
    del hasty
    reader, writer = await asyncio.open_connection(sock=narrow_socket(inside.address), limit=1)
    body = {"messages": [{"role": "user", "content": "go"}], "stream": True}
    writer.write(post(inside.address, body, "/v1/chat/completions"))
    turn = await begun(inside)
    await until(lambda: turn.is_over)
    assert turn.interrupted
    await inside.calm()
    writer.close()
    del reader


async def test_a_body_that_does_not_come_is_not_waited_for(
    inside: Inside, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half a request, and then nothing: 408, and the connection is free for others."""
    assert sse.BODY_S == 30.0
    monkeypatch.setattr(sse, "BODY_S", SHORT_S)
    for path in ("/v1/responses", "/v1/chat/completions"):
        reader, writer = await asyncio.open_connection("127.0.0.1", inside.port)
        writer.write(post(inside.address, {"input": "go"}, path)[:-5])
        assert b" 408 " in await reader.readline()
        writer.close()


async def test_a_stream_that_is_read_late_is_whole(inside: Inside, patient: None) -> None:
    """Joined, numbered without a gap, and to the end."""
    del patient
    reader, writer = await asyncio.open_connection(sock=narrow_socket(inside.address), limit=1024)
    writer.write(post(inside.address, {"input": "go", "stream": True}, Connection="close"))
    turn = await begun(inside)
    await until(lambda: turn.is_over)
    lines = (await reader.read(-1)).decode().replace("\r\n", "\n").split("\n")
    events = [json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: ")]
    check_numbers(events)
    assert events[-1]["response"]["output"][0]["content"][0]["text"] == TEXT
    assert len(events) < len(TEXT)
    writer.close()


async def aborts(inside: Inside, reason: str) -> int:
    page = inside.metrics.render().decode()
    return sum(
        int(float(line.rsplit(" ", 1)[1]))
        for line in page.splitlines()
        if line.startswith("vivace:request_aborts_total") and f'reason="{reason}"' in line
    )
