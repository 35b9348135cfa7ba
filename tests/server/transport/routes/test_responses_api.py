"""Everything about a response over HTTP: the same events as on a socket, stored, found again, cancelled."""

import asyncio
import json
import os
import signal
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.client import connect

from tests.client.test_warm import Start
from tests.server.serving import LONG, fetch, script, send, sse_events, until
from vivace.client import warm
from vivace.client.responses import ResponsesClient
from vivace.client.warm import ServerAddress, ensure_server
from vivace.config import Settings
from vivace.errors import RequestRefused

VOLATILE = {"id", "item_id", "created_at", "vivace", "delta", "call_id"} | {
    "input_tokens_details",  # what was cached depends on who asked before, and drafts on timing
    "output_tokens_details",
}


def essence(value: Any) -> Any:
    """An event without what differs from one run to the next."""
    if isinstance(value, dict):
        return {key: essence(inner) for key, inner in value.items() if key not in VOLATILE}
    return [essence(inner) for inner in value] if isinstance(value, list) else value


def shape(events: list[dict[str, Any]]) -> list[Any]:
    """Events without their numbers, each run of deltas as one: how text is cut is a matter of timing."""
    found: list[Any] = []
    for event in events:
        plain = {key: value for key, value in essence(event).items() if key != "sequence_number"}
        if not (event["type"].endswith(".delta") and found and found[-1] == plain):
            found.append(plain)
    return found


async def socket_events(address: ServerAddress, body: dict[str, Any]) -> list[dict[str, Any]]:
    headers = {"Authorization": f"Bearer {address.token}"}
    async with connect(address.socket_url, additional_headers=headers, proxy=None) as socket:
        await socket.send(json.dumps({"type": "response.create"} | body))
        events = [json.loads(await socket.recv())]
        while events[-1]["type"] not in ("response.completed", "response.incomplete", "response.failed"):
            events.append(json.loads(await socket.recv()))
        return events


@pytest.mark.parametrize(
    "body",
    [
        {"input": "hi"},
        {"input": "long", "max_output_tokens": 40},
        {"input": "hi", "generate": False},
        {"input": "x" * 10_000},
        {
            "input": "emoji",
            "metadata": {"a": "b"},
            "instructions": "Be brief.",
            "temperature": 0.5,
            "seed": 1,
        },
        {"input": "hi", "stop": "there", "tool_choice": "none", "prompt_cache_key": "k"},
    ],
)
async def test_socket_and_stream_tell_the_same(address: ServerAddress, body: dict[str, Any]) -> None:
    """The same request gives the same events in the same order, numbered from 0 without a gap."""
    streamed = sse_events(send(address, "POST", "/v1/responses", body | {"stream": True}))
    socketed = await socket_events(address, body)
    assert shape(streamed) == shape(socketed)
    for events in (streamed, socketed):
        assert [event["sequence_number"] for event in events] == list(range(len(events)))


def test_a_response_is_found_again(address: ServerAddress) -> None:
    """What was answered can be had by its id, with its input, until it is deleted."""
    _, answer = fetch(address, "POST", "/v1/responses", {"input": "hi", "metadata": {"who": "me"}})
    path = f"/v1/responses/{answer['id']}"
    assert fetch(address, "GET", path) == (200, answer)
    _, items = fetch(address, "GET", f"{path}/input_items")
    assert [item["content"][0]["text"] for item in items["data"]] == ["hi"]
    assert fetch(address, "DELETE", path)[1]["deleted"] is True
    for method, url in (("GET", path), ("DELETE", path), ("GET", f"{path}/input_items")):
        status, error = fetch(address, method, url)
        assert (status, error["error"]["code"]) == (404, "response_not_found")
    body = {"input": "more", "previous_response_id": answer["id"]}
    assert fetch(address, "POST", "/v1/responses", body)[1]["error"]["code"] == "previous_response_not_found"


def test_input_items_are_of_the_whole_conversation(address: ServerAddress) -> None:
    """Oldest to newest or the other way round, a page at a time."""
    _, first = fetch(address, "POST", "/v1/responses", {"input": "one"})
    body = {"input": "two", "previous_response_id": first["id"]}
    _, second = fetch(address, "POST", "/v1/responses", body)
    path = f"/v1/responses/{second['id']}/input_items"
    _, page = fetch(address, "GET", f"{path}?order=asc&limit=2")
    texts = [item["content"][0]["text"] for item in page["data"]]
    assert (texts, page["has_more"]) == (["one", "Hello there."], True)
    _, rest = fetch(address, "GET", f"{path}?order=asc&after={page['last_id']}")
    assert [item["content"][0]["text"] for item in rest["data"]] == ["two"]
    assert fetch(address, "GET", f"{path}?limit=x")[0] == 400
    assert fetch(address, "GET", f"{path}?after=nobody")[0] == 400


def test_a_background_response_goes_on_alone(address: ServerAddress) -> None:
    """It is answered at once, and found whole when it is done."""
    _, begun = fetch(address, "POST", "/v1/responses", {"input": "long", "background": True})
    assert begun["status"] in ("queued", "in_progress")
    path = f"/v1/responses/{begun['id']}"
    done = until(lambda: (answer := fetch(address, "GET", path)[1])["status"] == "completed" and answer)
    assert done["output"][0]["content"][0]["text"] == LONG
    assert fetch(address, "POST", f"{path}/cancel")[1]["status"] == "completed", "it was over already"


def test_a_background_stream_is_told_again_from_anywhere(address: ServerAddress) -> None:
    """A client that comes back names the last number it has, and gets every event after it, once."""
    body = {"input": "long", "background": True, "stream": True}
    whole = sse_events(send(address, "POST", "/v1/responses", body))
    path = f"/v1/responses/{whole[0]['response']['id']}"
    for after in (0, 5, len(whole) - 2):
        again = sse_events(send(address, "GET", f"{path}?stream=true&starting_after={after}"))
        assert again == whole[after + 1 :]
    assert sse_events(send(address, "GET", f"{path}?stream=true")) == whole


def test_a_client_that_leaves_a_background_stream_ends_nothing(address: ServerAddress) -> None:
    """Its connection is gone; the response is there."""
    answer = send(address, "POST", "/v1/responses", {"input": "long", "background": True, "stream": True})
    begun = json.loads(answer.readline() and answer.readline().removeprefix(b"data: "))
    answer.vivace_connection.close()  # type: ignore[attr-defined]
    path = f"/v1/responses/{begun['response']['id']}"
    done = until(lambda: (found := fetch(address, "GET", path)[1])["status"] == "completed" and found)
    assert done["output"][0]["content"][0]["text"] == LONG


def test_a_background_response_can_be_cancelled(address: ServerAddress, tmp_path: Path) -> None:
    """It ends with what it has said, and says so from then on."""
    slow = script(tmp_path, replies={"": "x" * 3000}, step_ms=20)
    _, begun = fetch(address, "POST", "/v1/responses", {"model": slow, "input": "a", "background": True})
    path = f"/v1/responses/{begun['id']}"
    status, answer = fetch(address, "POST", f"{path}/cancel")
    assert (status, answer["status"]) == (200, "cancelled")
    assert fetch(address, "GET", path)[1]["status"] == "cancelled"
    _, other = fetch(address, "POST", "/v1/responses", {"input": "hi"})
    assert fetch(address, "POST", f"/v1/responses/{other['id']}/cancel")[0] == 400


def test_what_is_not_to_be_stored_leaves_nothing_behind(served: Settings, address: ServerAddress) -> None:
    """Neither the words of the question nor those of the answer are in the database, nor is the id known."""
    word = "xylophonist"
    _, answer = fetch(address, "POST", "/v1/responses", {"input": f"hi {word}", "store": False})
    assert fetch(address, "GET", f"/v1/responses/{answer['id']}")[0] == 404
    body = {"input": "more", "previous_response_id": answer["id"]}
    assert fetch(address, "POST", "/v1/responses", body)[0] == 400
    _, kept = fetch(address, "POST", "/v1/responses", {"input": "hi marimbaphone"})
    data = b"".join(path.read_bytes() for path in served.run_dir.glob("vivace.db*"))
    assert b"marimbaphone" in data, "this test looks in the right place"
    assert word.encode() not in data
    assert kept["store"] is True


async def test_an_unstored_response_is_known_on_its_socket_only(address: ServerAddress) -> None:
    """The same connection goes on from it; another one must send everything."""
    async with ResponsesClient(address) as mine, ResponsesClient(address) as other:
        first = await mine.complete({"input": "hi", "store": False})
        more = {"input": "more", "previous_response_id": first.id, "store": False}
        second = await mine.complete(more)
        assert second.usage
        assert first.usage
        assert second.usage.input_tokens > first.usage.total_tokens
        with pytest.raises(RequestRefused) as caught:
            await other.complete(more)
        assert caught.value.code == "previous_response_not_found"


async def test_a_conversation_survives_kill_9(start: Start, tmp_path: Path) -> None:
    """Whatever was answered before can be read and continued on the next server, from the same tokens."""
    settings = start(model=script(tmp_path, replies={"": "Fine."}))
    address = ensure_server(settings)
    _, first = fetch(address, "POST", "/v1/responses", {"input": "one"})
    _, second = fetch(address, "POST", "/v1/responses", {"input": "two", "previous_response_id": first["id"]})
    os.kill(address.pid, signal.SIGKILL)
    await asyncio.to_thread(until, lambda: warm._is_lock_free(settings))
    address = ensure_server(settings)
    assert fetch(address, "GET", f"/v1/responses/{second['id']}") == (200, second)
    body = {"input": "three", "previous_response_id": second["id"]}
    _, third = fetch(address, "POST", "/v1/responses", body)
    assert third["usage"]["input_tokens"] > second["usage"]["total_tokens"]
    with sqlite3.connect(settings.database) as database:
        assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)


async def test_a_background_response_that_died_with_its_server_says_so(start: Start, tmp_path: Path) -> None:
    """Its id was given out: it is not unknown afterwards, and not in progress for ever."""
    settings = start(model=script(tmp_path, replies={"": "x" * 3000}, step_ms=20))
    address = ensure_server(settings)
    _, begun = fetch(address, "POST", "/v1/responses", {"input": "one", "background": True})
    os.kill(address.pid, signal.SIGKILL)
    await asyncio.to_thread(until, lambda: warm._is_lock_free(settings))
    status, found = fetch(ensure_server(settings), "GET", f"/v1/responses/{begun['id']}")
    assert (status, found["status"], found["error"]["code"]) == (200, "failed", "server_restarted")
