"""Races of turns that wait for their place: what they need is kept, and they end once."""

from pathlib import Path
from typing import Any

import pytest

from tests.server.inside import Inside, served_here
from tests.server.talking import check_numbers, talking
from tests.server.turns.races.staging import explode, settings_in
from vivace.protocol.shapes.outcomes import Broken
from vivace.protocol.shapes.refusal import Refusal
from vivace.protocol.shapes.requests import ResponseCreate
from vivace.server.backends.base import TurnHooks
from vivace.server.caller import Caller
from vivace.server.turns.queued_turn import QueuedTurn

pytestmark = pytest.mark.asyncio(loop_scope="package")


async def test_who_waits_keeps_what_it_goes_on_from(narrow: Inside) -> None:
    """The lane forgets its earlier response while the turn that continues it still stands in line."""
    async with talking(narrow.address) as talker, talking(narrow.address, close_timeout=1) as other:
        first = await talker.complete(input="brief", store=False)
        await other.create(input="go")
        running = await other.said()
        await talker.create(input="brief", previous_response_id=first["id"], store=False)
        await talker.until_type("response.queued")
        (session,) = [each for each in narrow.sockets._open if each._turns and running not in each._turns]
        narrow.library.forget(first["id"], session._caller)
        await other.say("response.cancel", response_id=running)
        done = await talker.ended()
        assert done["type"] == "response.completed", done["response"]["error"]


async def test_a_response_that_was_pushed_out_of_memory_is_still_continued(narrow: Inside) -> None:
    """The line is long and memory is short: what is stored is not lost for those who wait."""
    async with talking(narrow.address) as talker, talking(narrow.address, close_timeout=1) as other:
        first = await talker.complete(input="brief")
        await other.create(input="go")
        running = await other.said()
        await talker.create(input="brief", previous_response_id=first["id"])
        await talker.until_type("response.queued")
        narrow.library._stored.clear()
        await other.say("response.cancel", response_id=running)
        assert (await talker.ended())["type"] == "response.completed"


async def test_a_turn_in_line_ends_once(narrow: Inside) -> None:
    """Refused when its place came up, then interrupted: one end, and `on_over` is called once."""
    first = await narrow.begin(ResponseCreate(input="go"), Caller())
    ticket = narrow.service._queue.enter("realtime", "local")
    calls: list[object] = []
    backend: Any = Refusing()
    request, hooks = ResponseCreate(input="brief", model="m"), TurnHooks(on_over=calls.append)
    waiting = QueuedTurn(request, "resp_waiting", Caller(), ticket, backend, hooks)
    assert waiting.place is not None
    first.interrupt()
    outcomes = [outcome async for outcome in waiting.outcomes()]
    assert isinstance(outcomes[-1], Broken)
    waiting.interrupt()
    waiting.interrupt("cancelled")
    assert calls == outcomes[-1:]
    ticket.leave()


class Refusing:
    """A backend that begins nothing."""

    def begin(self, *_: object) -> None:
        raise Refusal("Not now.", code="not_now")


async def test_a_mistake_when_the_place_comes_up_is_answered(
    narrow: Inside, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A turn in line that cannot begin for a reason of ours fails; nothing is kept for it."""
    async with talking(narrow.address) as talker, talking(narrow.address, close_timeout=1) as other:
        await other.create(input="go")
        running = await other.said()
        await talker.create(input="brief")
        await talker.until_type("response.queued")
        monkeypatch.setattr(narrow.native, "begin", lambda *_: explode())
        await other.say("response.cancel", response_id=running)
        ended = await talker.ended()
        assert ended["response"]["error"]["code"] == "server_error"


async def test_a_mistake_at_the_desk_is_answered(inside: Inside, monkeypatch: pytest.MonkeyPatch) -> None:
    """A request that cannot be begun for a reason of ours gets an error frame, and its lane goes on."""
    async with talking(inside.address) as talker:
        monkeypatch.setattr(inside.service, "_backend", lambda _: explode())
        await talker.create(input="brief")
        refused = await talker.until_type("error")
        assert (refused["status"], refused["error"]["code"]) == (500, "server_error")
        monkeypatch.undo()
        assert (await talker.complete(input="brief"))["status"] == "completed"


async def test_places_are_told_as_they_change(narrow: Inside) -> None:
    """A place that is lost and won back is told both times."""
    running = await narrow.begin(ResponseCreate(input="go"), Caller())
    waiting = await narrow.begin(ResponseCreate(input="go", service_tier="flex"), Caller())
    places = waiting.outcomes()
    assert waiting.place is not None
    assert waiting.place.position == 1
    hasty = await narrow.begin(ResponseCreate(input="go"), Caller())
    assert (await anext(places)).position == 2  # type: ignore[union-attr]
    hasty.interrupt()
    assert (await anext(places)).position == 1  # type: ignore[union-attr]
    waiting.interrupt()
    running.interrupt()


async def test_a_shutdown_ends_those_in_line_too(tmp_path: Path) -> None:
    """What was created has its terminal event, also if its turn never came; then the server is gone."""
    settings = settings_in(tmp_path, max_running=1, drain_seconds=0.05)
    async with served_here(settings) as inside, talking(inside.address) as talker:
        for lane in "abcd":
            await talker.create(input="go", stream_id=lane)
        for _ in range(4):
            await talker.created()
        await talker.until_type("response.output_text.delta")
        inside.server.leave()
        assert await talker.until_closed() == 1012
        check_numbers(talker.heard)
