"""The engine may die at any time: the client sees at most a pause."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.server.serving import fetch, script, status_of, until, until_ready
from vivace.client.http import get
from vivace.client.responses import ResponsesClient
from vivace.client.warm import ServerAddress, ensure_server
from vivace.config import Settings
from vivace.errors import RequestRefused
from vivace.protocol.rundir import log_file
from vivace.protocol.shapes.events import OutputTextDelta, ResponseCompleted, ResponseIncomplete

REPLY = "The quick brown fox jumps over the lazy dog, twice."


@pytest.fixture
async def client(address: ServerAddress) -> AsyncIterator[ResponsesClient]:
    async with ResponsesClient(address) as client:
        yield client


async def test_a_death_in_the_middle_changes_no_text(client: ResponsesClient, tmp_path: Path) -> None:
    """The turn goes on from its log in a new engine: no gap, no repeat, and the waterfall says so."""
    mark = tmp_path / "died"
    model = script(tmp_path, replies={"": REPLY}, die_at_token=9, die_mark=str(mark))
    deltas = []
    async for event in client.stream({"model": model, "input": "hi"}):
        if isinstance(event, OutputTextDelta):
            deltas.append(event.delta)
    assert mark.exists()
    assert "".join(deltas) == REPLY
    assert isinstance(event, ResponseCompleted)
    assert event.response.vivace.waterfall.restarts == 1
    assert event.response.usage.output_tokens == len(REPLY) + 1


async def test_a_stop_string_across_a_death_still_stops(client: ResponsesClient, tmp_path: Path) -> None:
    """The new engine never saw the first half of the stop string; the server did."""
    at = REPLY.index("fox") + 2
    model = script(tmp_path, replies={"": REPLY}, die_at_token=at, die_mark=str(tmp_path / "died"), step_ms=2)
    response = await client.complete({"model": model, "input": "hi", "stop": "fox"})
    assert response.output_text == "The quick brown "
    assert response.status == "completed"
    assert response.usage
    assert response.usage.output_tokens < len(REPLY), "the engine is told to stop, it does not see it itself"


async def test_a_death_after_the_last_token_is_no_second_answer(
    client: ResponsesClient, tmp_path: Path
) -> None:
    """All of `max_output_tokens` was said when the engine died: the limit holds over both lives."""
    model = script(tmp_path, replies={"": REPLY}, die_at_token=5, die_mark=str(tmp_path / "died"))
    response = await client.complete({"model": model, "input": "hi", "max_output_tokens": 7})
    assert response.output_text == REPLY[:7]


async def test_two_deaths_fail_the_turn_and_not_the_server(
    client: ResponsesClient, served: Settings, tmp_path: Path
) -> None:
    """An engine that dies again under the same turn ends it with `engine_died`; other turns are served."""
    nowhere = tmp_path / "missing" / "mark"  # it cannot remember that it has died, so it dies each time
    model = script(tmp_path, replies={"": REPLY}, die_at_token=4, die_mark=str(nowhere))
    before = log_file(served).read_text().count("the engine died")
    with pytest.raises(RequestRefused) as caught:
        await client.complete({"model": model, "input": "hi"})
    assert caught.value.code == "engine_died"
    assert log_file(served).read_text().count("the engine died") == before + 2
    after = await client.complete({"model": model, "input": "hi", "max_output_tokens": 3})
    assert after.output_text == REPLY[:3]


async def test_an_engine_that_cannot_start_says_why(
    client: ResponsesClient, address: ServerAddress, tmp_path: Path
) -> None:
    """Its last words are in the error, a 503 without a stream; the model that was loaded stays."""
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"GGUF" + bytes(100))
    with pytest.raises(RequestRefused) as caught:
        await client.complete({"model": str(broken), "input": "hi"})
    assert caught.value.code == "could_not_start"
    assert "could not load" in caught.value.message
    status, answer = fetch(address, "POST", "/v1/responses", {"model": str(broken), "input": "hi"})
    assert (status, answer["error"]["type"]) == (503, "server_error")
    assert get(address.port, "/readyz")[0] == 200
    assert (await client.complete({"input": "hi"})).output_text == "Hello there."


async def test_last_words_of_an_engine_are_told(client: ResponsesClient, tmp_path: Path) -> None:
    """An engine process that ends before it is ready: what it wrote to stderr is in the error."""
    with pytest.raises(RequestRefused) as caught:
        await client.complete({"model": script(tmp_path, nonsense=1), "input": "hi"})
    assert caught.value.code == "could_not_start"
    assert "nonsense" in caught.value.message


async def test_readyz_follows_the_engine(served: Settings, client: ResponsesClient) -> None:
    """Without an engine `/readyz` is 503 while `/healthz` stays 200; then the engine comes back by itself."""
    port = ensure_server(served).port
    await client.complete({"input": "hi"})
    pid = until_ready(served).engine.pid
    assert pid
    os.kill(pid, signal.SIGKILL)
    until(lambda: get(port, "/readyz")[0] == 503)
    assert get(port, "/healthz")[0] == 200
    until(lambda: get(port, "/readyz")[0] == 200)
    assert status_of(served).engine.pid != pid


async def test_kill_9_under_a_real_model(smol_served: Settings, smol_address: ServerAddress) -> None:
    """A text of the real model is the same with a kill -9 in the middle, and can be continued.

    A text that leaves the model no choice: a replay rounds differently, which may tip a near-tie.
    """
    begun = {"role": "assistant", "status": "in_progress", "content": "1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11,"}
    counting = [{"role": "user", "content": "Count to 100."}, begun]
    request = {"input": counting, "max_output_tokens": 20}
    async with ResponsesClient(smol_address) as client:
        wanted = await client.complete(request)
        pid = status_of(smol_served).engine.pid
        assert pid
        count = 0
        async for event in client.stream(request):
            count += isinstance(event, OutputTextDelta)
            if count == 10:
                count += 1
                os.kill(pid, signal.SIGKILL)
        assert isinstance(event, ResponseIncomplete)
        assert event.response.output_text == wanted.output_text
        assert event.response.vivace.waterfall.restarts == 1
        more = {"input": "Say yes.", "max_output_tokens": 3}
        after = await client.complete(more | {"previous_response_id": event.response.id})
        expected = await client.complete(more | {"previous_response_id": wanted.id})
        assert after.output_text == expected.output_text


async def test_many_turns_survive_one_death(address: ServerAddress, tmp_path: Path) -> None:
    """All turns that ran when the engine died go on, each with its own text."""
    replies = {f"number {n} ": f"{n}" * 80 for n in range(4)} | {"": "?"}
    model = script(tmp_path, replies=replies, die_at_token=30, die_mark=str(tmp_path / "died"), step_ms=1)

    async def ask(number: int) -> str:
        async with ResponsesClient(address) as client:
            return (await client.complete({"model": model, "input": f"number {number} please"})).output_text

    texts = await asyncio.gather(*(ask(number) for number in range(4)))
    assert texts == [f"{n}" * 80 for n in range(4)]
