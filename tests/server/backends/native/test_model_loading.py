"""Whoever waits for a model that is being loaded, or that reads, is told how far it is, on every route."""

import asyncio
import json
import os
from pathlib import Path
from typing import Any

from tests.server.inside import Inside, served_here, until
from tests.server.serving import fetch, script, send
from tests.server.talking import talking
from vivace.client.responses import ResponsesClient
from vivace.config import Settings
from vivace.protocol.shapes.events import OutputTextDelta, WaitProgress

GB = 1_000_000_000


class Weights:
    """The file of a scripted model: as much of it as there is counts as read."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "weights"
        self._file.touch()
        self.model = script(folder, "slow", replies={"": "ok"}, load_file=str(self._file), load_bytes=20 * GB)
        self.read(12)

    def read(self, gigabytes: int) -> None:
        os.truncate(self._file, gigabytes * GB)  # a hole: nothing is on the disk

    def progress(self, gigabytes: int) -> WaitProgress:
        return WaitProgress("loading", self.model, gigabytes * GB, 20 * GB)


def with_quick_model(settings: Settings, folder: Path) -> Settings:
    return settings.having(model=script(folder, "quick", replies={"": "quick"}), max_models=2)


async def loading(inside: Inside) -> WaitProgress | None:
    return (await inside.native.status()).loading


async def test_a_turn_tells_how_far_its_model_is(settings: Settings, tmp_path: Path) -> None:
    """The client hears more and more, then that it is loaded. The status says the same."""
    weights, told = Weights(tmp_path), list[WaitProgress | None]()
    async with (
        served_here(with_quick_model(settings, tmp_path)) as inside,
        ResponsesClient(inside.address, told.append) as client,
    ):
        answer = asyncio.create_task(client.complete({"model": weights.model, "input": "hi"}))
        await until(lambda: weights.progress(12) in told)
        assert (await inside.native.status()).state == "loading, 12 of 20 GB"
        weights.read(13)
        await until(lambda: weights.progress(13) in told)
        assert await loading(inside) == weights.progress(13)
        weights.read(20)
        assert (await answer).output_text == "ok"
        assert told[-1] is None
        assert told.index(weights.progress(12)) < told.index(weights.progress(13))
        assert len(told) == len(set(told)), "nothing is told twice"
        assert await loading(inside) is None
        heard = len(told)
        assert (await client.complete({"model": weights.model, "input": "hi"})).output_text == "ok"
        assert len(told) == heard, "a model that is loaded is not waited for"


async def test_a_turn_that_is_left_waits_no_more(settings: Settings, tmp_path: Path) -> None:
    """Cancelled while its model is loaded: the client is told that nobody waits."""
    weights, told = Weights(tmp_path), list[WaitProgress | None]()
    async with (
        served_here(with_quick_model(settings, tmp_path)) as inside,
        ResponsesClient(inside.address, told.append) as client,
    ):
        async with client.turn({"model": weights.model, "input": "hi"}):
            await until(lambda: weights.progress(12) in told)
        await until(lambda: told[-1] is None)
        weights.read(20)


async def test_events_that_come_often_are_small(settings: Settings, tmp_path: Path) -> None:
    """They leave out what was asked; the one after the load has all of it."""
    weights = Weights(tmp_path)
    async with (
        served_here(with_quick_model(settings, tmp_path)) as inside,
        talking(inside.address) as talker,
    ):
        await talker.create(model=weights.model, input="hi", instructions="Be brief.")
        event = await talker.until(lambda event: "vivace" in event.get("response", {}))
        assert event["type"] == "response.in_progress"
        assert event["response"]["vivace"]["progress"]["done"] == 12 * GB
        assert event["response"]["instructions"] is None
        weights.read(20)
        await talker.ended()
        after = talker.heard[talker.heard.index(event) + 1 :]
        begun = next(each for each in after if "vivace" not in each["response"])
        assert (begun["type"], begun["response"]["instructions"]) == ("response.in_progress", "Be brief.")


async def test_a_chat_stream_has_comments(settings: Settings, tmp_path: Path) -> None:
    """Chat completions have no event for it: a comment, and then the answer as ever."""
    weights = Weights(tmp_path)
    async with served_here(with_quick_model(settings, tmp_path)) as inside:
        body = {"model": weights.model, "messages": [{"role": "user", "content": "hi"}], "stream": True}

        def read() -> list[bytes]:
            lines: list[bytes] = []
            for line in send(inside.address, "POST", "/v1/chat/completions", body):
                lines.append(line)
                if line.startswith(b": loading"):
                    weights.read(20)
            return lines

        lines = await asyncio.to_thread(read)
        assert f": loading {weights.model}, 12 of 20 GB\n".encode() in lines
        chunks = [json.loads(line[6:]) for line in lines if line.startswith(b"data: {")]
        said = [choice["delta"].get("content") or "" for chunk in chunks for choice in chunk["choices"]]
        assert "".join(said) == "ok"
        assert lines[-2] == b"data: [DONE]\n"


async def test_a_background_response_says_it(settings: Settings, tmp_path: Path) -> None:
    """As long as it loads, and no longer; what was asked stays in it."""
    weights = Weights(tmp_path)
    async with served_here(with_quick_model(settings, tmp_path)) as inside:
        body = {"model": weights.model, "input": "hi", "instructions": "Be brief.", "background": True}
        _, begun = await asyncio.to_thread(fetch, inside.address, "POST", "/v1/responses", body)

        def now() -> dict[str, Any]:
            answer: dict[str, Any] = fetch(inside.address, "GET", f"/v1/responses/{begun['id']}")[1]
            return answer

        while "vivace" not in (found := await asyncio.to_thread(now)):
            pass
        assert found["vivace"]["progress"]["total"] == 20 * GB
        assert found["instructions"] == "Be brief."
        weights.read(20)
        while (found := await asyncio.to_thread(now))["status"] != "completed":
            pass
        assert "progress" not in found["vivace"]


async def test_a_long_prompt_tells_how_far_it_is_read(settings: Settings, tmp_path: Path) -> None:
    """More and more of it, and nothing any more when the answer begins."""
    model = script(tmp_path, "reader", replies={"": "ok"}, prefill_token_ms=1.0, pass_tokens=64)
    told: list[WaitProgress | None] = []
    async with (
        served_here(settings.having(model=model)) as inside,
        ResponsesClient(inside.address, told.append) as client,
    ):
        async with client.turn({"input": "long " * 300}) as turn:
            async for event in turn:
                if isinstance(event, OutputTextDelta):
                    assert told[-1] is None
        *reading, last = told
        assert last is None
        assert reading
        assert [each.done for each in reading if each] == sorted({each.done for each in reading if each})
        assert {(each.stage, each.model) for each in reading if each} == {("reading", model)}
        assert all(1500 <= each.total < 2500 > each.done for each in reading if each)
