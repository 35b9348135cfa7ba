"""Races of background responses: with the store, and with those who listen and leave."""

import asyncio

import pytest

from tests.server.inside import Inside, until
from tests.server.serving import fetch
from tests.server.turns.races.staging import explode
from vivace.protocol.shapes.requests import ResponseCreate
from vivace.server.caller import Caller

pytestmark = pytest.mark.asyncio(loop_scope="package")


async def test_nothing_is_told_before_it_is_written_down(inside: Inside) -> None:
    """While a background response is being stored it is not over yet, for whoever asks."""
    body = {"input": "brief", "background": True}
    inside.store.gate.clear()
    inside.store.free = 1  # that it was begun
    _, begun = await asyncio.to_thread(fetch, inside.address, "POST", "/v1/responses", body)
    live = inside.backgrounds.get(begun["id"], Caller())
    assert live is not None
    await inside.store.knocking.wait()
    path = f"/v1/responses/{begun['id']}"
    _, asked = await asyncio.to_thread(fetch, inside.address, "GET", path)
    assert asked["status"] == "in_progress"
    inside.store.gate.set()
    await until(lambda: live.is_over)
    assert (await asyncio.to_thread(fetch, inside.address, "GET", path))[1]["status"] == "completed"


async def test_a_number_that_has_not_come_yet_is_waited_for(inside: Inside) -> None:
    """Streaming again from beyond the last event waits for that event, and holds up nobody."""
    body = {"input": "go", "background": True, "stream": False}
    _, begun = await asyncio.to_thread(fetch, inside.address, "POST", "/v1/responses", body)
    live = inside.backgrounds.get(begun["id"], Caller())
    assert live is not None
    frames = live.frames(after=10**6)
    told = asyncio.ensure_future(anext(frames, b"end"))
    done, _ = await asyncio.wait([told], timeout=0.05)
    assert not done
    await live.cancel()
    assert await told == b"end"


async def test_who_leaves_a_background_stream_is_not_written_for(inside: Inside) -> None:
    """The response goes on; the streams of those who have gone do not."""
    turn = await inside.begin(ResponseCreate(input="go", background=True, stream=True), Caller())
    live = await inside.backgrounds.begin(turn)
    writers = []
    for _ in range(5):
        _, writer = await asyncio.open_connection("127.0.0.1", inside.port)
        head = f"GET /v1/responses/{turn.id}?stream=true HTTP/1.1\r\nHost: 127.0.0.1:{inside.port}\r\n"
        writer.write(f"{head}Authorization: Bearer {inside.address.token}\r\n\r\n".encode())
        writers.append(writer)
    await until(lambda: inside.activity.answers == 6)
    for writer in writers:
        writer.close()
    await until(lambda: inside.activity.answers == 1)
    assert not live.is_over
    await live.cancel()


async def test_a_mistake_in_a_background_response_ends_it(
    inside: Inside, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who waits for its end, to cancel it or to hear it, is not left waiting."""
    body = {"input": "go", "background": True, "stream": True}
    _, begun = await asyncio.to_thread(
        fetch, inside.address, "POST", "/v1/responses", body | {"stream": False}
    )
    live = inside.backgrounds.get(begun["id"], Caller())
    assert live is not None
    monkeypatch.setattr(inside.service, "commit", lambda *_: explode())
    async with asyncio.timeout(60):
        await live.cancel()
        assert [frame async for frame in live.frames()]
