"""Races at the backend: mistakes of one turn, models that change, parents that are gone."""

import asyncio
from pathlib import Path

import pytest

from tests.server.inside import Inside, until
from tests.server.serving import fetch, script
from tests.server.talking import talking
from tests.server.turns.races.staging import LOOK
from vivace.protocol.shapes.outcomes import Ended
from vivace.protocol.shapes.requests import ResponseCreate
from vivace.server.backends.native.output_decoder import OutputDecoder
from vivace.server.caller import Caller

pytestmark = pytest.mark.asyncio(loop_scope="package")


async def test_a_mistake_in_reading_the_answer_fails_only_that_turn(
    inside: Inside, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The engine goes on, and so do the others on it."""
    decode = OutputDecoder.decode
    broken: list[OutputDecoder] = []

    def fail_one(self: OutputDecoder, *given: object) -> object:
        if self is not other._decoder and not broken:  # type: ignore[attr-defined]
            broken.append(self)
        if self in broken:
            raise ZeroDivisionError
        return decode(self, *given)  # type: ignore[arg-type]

    status = await inside.native.status()
    other = await inside.begin(ResponseCreate(input="go"), Caller())
    await anext(other.outcomes())
    monkeypatch.setattr(OutputDecoder, "decode", fail_one)
    async with talking(inside.address) as talker:
        failed = await talker.complete(input="brief")
        assert (failed["status"], failed["error"]["code"]) == ("failed", "server_error")
        await until(lambda: broken)
        assert other in inside.native._turns
        assert (await talker.complete(input="brief"))["status"] == "completed"
    other.interrupt()
    assert (await inside.native.status()).pid == status.pid


async def test_a_turn_interrupted_while_models_change_does_not_run(inside: Inside, tmp_path: Path) -> None:
    """An engine that was still coming up is given up for another: the turn that wanted that is over too."""
    one, two = (script(tmp_path, name, replies={"": "y" * 2000}, step_ms=1) for name in ("one", "two"))
    for pause in range(4):
        first = await inside.begin(ResponseCreate(input="go", model=one), Caller())
        await until(lambda: (loaded := inside.native._pool.latest) and loaded.name == one)
        first.interrupt()
        second = await inside.begin(ResponseCreate(input="go", model=two), Caller())
        for _ in range(pause + 1):
            await asyncio.sleep(0)
        second.interrupt()
        for turn in (first, second):
            last = [outcome async for outcome in turn.outcomes()][-1]
            assert isinstance(last, Ended)
            assert (last.reason, last.usage.output_tokens) == ("interrupted", 0)
    back = await inside.begin(ResponseCreate(input="brief"), Caller())
    last = [outcome async for outcome in back.outcomes()][-1]
    assert isinstance(last, Ended)
    assert last.reason == "stop"


async def test_what_ends_after_its_connection_leaves_nothing(inside: Inside) -> None:
    """A response with `store: false` whose socket is gone is kept nowhere."""
    caller = Caller(connection="gone")
    turn = await inside.begin(ResponseCreate(input="brief", store=False), caller)
    assert isinstance([outcome async for outcome in turn.outcomes()][-1], Ended)
    assert inside.library._unstored == {}


async def test_an_output_in_parts_is_read_by_another_model(inside: Inside, tmp_path: Path) -> None:
    """A tool's output that came as text parts is the same text when it comes back from the store."""
    other = script(tmp_path, "other", replies={"a purple door": "Seen.", "": "Not seen."})
    parts = [{"type": "input_text", "text": "a purple "}, {"type": "input_text", "text": "door"}]
    call = {"type": "function_call", "name": "look", "call_id": "c", "arguments": "{}"}
    output = {"type": "function_call_output", "call_id": "c", "output": parts}
    async with talking(inside.address) as talker:
        first = await talker.complete(
            input=[{"role": "user", "content": "brief"}, call, output], tools=[LOOK]
        )
        second = await talker.complete(input="and?", previous_response_id=first["id"], model=other)
        assert second["output"][0]["content"][0]["text"] == "Seen."
        inside.library._stored.clear()
        third = await talker.complete(input="and?", previous_response_id=first["id"], model=other)
        assert third["output"][0]["content"][0]["text"] == "Seen."


async def test_a_parent_that_is_deleted_meanwhile(inside: Inside) -> None:
    """What goes on from it has all of the conversation itself."""
    async with talking(inside.address) as talker:
        first = await talker.complete(input="brief one")
        second = await talker.complete(input="two", previous_response_id=first["id"])
        await talker.create(input="three", previous_response_id=second["id"])
        await talker.created()
        for parent in (first, second):
            path = f"/v1/responses/{parent['id']}"
            assert (await asyncio.to_thread(fetch, inside.address, "DELETE", path))[0] == 200
        third = (await talker.ended())["response"]
        assert third["status"] == "completed"
        path = f"/v1/responses/{third['id']}/input_items?order=asc"
        _, items = await asyncio.to_thread(fetch, inside.address, "GET", path)
        texts = [item["content"][0]["text"] for item in items["data"]]
        assert texts == ["brief one", "Fine.", "two", "Fine.", "three"]
        inside.library._stored.clear()
        after = await talker.complete(input="four", previous_response_id=third["id"])
        assert after["usage"]["input_tokens"] > third["usage"]["total_tokens"]
