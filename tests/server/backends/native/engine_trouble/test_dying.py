"""An engine that dies under turns of every kind, in every phase: at most a pause, at worst a word."""

import asyncio
import json
import signal

import pytest

from tests.server.backends.native.engine_trouble.troubling import (
    LOOK,
    TEXT,
    renewed,
    signalled,
)
from tests.server.inside import Inside, until
from tests.server.serving import fetch, send, sse_events
from tests.server.talking import check_numbers, talking
from vivace.protocol.shapes.outcomes import Ended, TextDelta
from vivace.protocol.shapes.requests import ResponseCreate
from vivace.server.caller import Caller

pytestmark = pytest.mark.asyncio(loop_scope="package")


async def test_a_death_in_prefill(inside: Inside) -> None:
    """Before the first token: the prompt is read again, and the answer is the same."""
    async with talking(inside.address) as talker:
        await talker.create(input="go " * 1000)
        await talker.created()
        await until(lambda: inside.native._turns)
        turn = next(iter(inside.native._turns))
        await until(lambda: turn.submitted)
        assert not turn.output_tokens
        signalled(inside, signal.SIGKILL)
        ended = (await talker.ended())["response"]
        assert ended["output"][0]["content"][0]["text"] == TEXT
        assert ended["vivace"]["waterfall"]["restarts"] == 1
        check_numbers(talker.heard)


async def test_a_death_in_the_middle_of_a_call(inside: Inside) -> None:
    """One call, whole, whose deltas are its arguments."""
    async with talking(inside.address) as talker:
        await talker.create(input="call", tools=[LOOK | {"strict": True}])
        for _ in range(10):
            await talker.until_type("response.function_call_arguments.delta")
        signalled(inside, signal.SIGKILL)
        ended = (await talker.ended())["response"]
        calls = [item for item in ended["output"] if item["type"] == "function_call"]
        assert [json.loads(call["arguments"]) for call in calls] == [{"at": TEXT}]
        deltas = [e["delta"] for e in talker.heard if e["type"] == "response.function_call_arguments.delta"]
        assert "".join(deltas) == calls[0]["arguments"]
        assert ended["vivace"]["waterfall"]["restarts"] == 1
        check_numbers(talker.heard)


async def test_a_death_under_those_who_wait(inside: Inside) -> None:
    """Running and in line: all go on, each with its own text, in its turn."""
    async with talking(inside.address) as talker:
        for lane in "abcdefgh":
            await talker.create(input="go", stream_id=lane)
        while len([e for e in talker.heard if e["type"] == "response.queued"]) < 4:
            await talker.hear()
        signalled(inside, signal.SIGKILL)
        texts = [
            e["response"]["output"][0]["content"][0]["text"] for e in [await talker.ended() for _ in range(8)]
        ]
        assert texts == [TEXT] * 8
        check_numbers(talker.heard)


async def test_a_death_under_a_background_response(inside: Inside) -> None:
    """It goes on alone; whoever asks for its events again gets them all, once."""
    turn = await inside.begin(ResponseCreate(input="go", background=True, stream=True), Caller())
    live = await inside.backgrounds.begin(turn)
    await until(lambda: len(live._events) > 10)
    signalled(inside, signal.SIGKILL)
    await until(lambda: live.is_over)
    again = await asyncio.to_thread(
        lambda: sse_events(send(inside.address, "GET", f"/v1/responses/{turn.id}?stream=true"))
    )
    check_numbers(again)
    assert again[-1]["response"]["output"][0]["content"][0]["text"] == TEXT
    assert again[-1]["response"]["vivace"]["waterfall"]["restarts"] == 1


async def test_a_death_while_it_is_interrupted(inside: Inside) -> None:
    """The interrupt is on its way to an engine that is no more: the turn is over, once."""
    turn = await inside.begin(ResponseCreate(input="go"), Caller())
    outcomes = []
    async for outcome in turn.outcomes():
        outcomes.append(outcome)
        if isinstance(outcome, TextDelta) and len(outcomes) == 5:
            signalled(inside, signal.SIGKILL)
            turn.interrupt()
    assert isinstance(outcomes[-1], Ended)
    assert outcomes[-1].reason == "interrupted"


async def test_an_interrupt_the_moment_the_engine_is_dead(inside: Inside) -> None:
    """The death is known and not yet told to the turn: the interrupt goes nowhere, and harms nobody."""
    turn = await inside.begin(ResponseCreate(input="go"), Caller())
    loaded = inside.native._pool.latest
    assert loaded is not None
    life = loaded.engines.processes[0]
    assert life is not None
    await anext(turn.outcomes())
    died = life._on_death
    assert died is not None

    def dying() -> None:
        died()
        turn.interrupt()

    life._on_death = dying
    signalled(inside, signal.SIGKILL)
    last = [outcome async for outcome in turn.outcomes()][-1]
    assert isinstance(last, Ended)
    assert last.reason == "interrupted"


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
async def test_two_deaths_are_the_end(inside: Inside, number: signal.Signals) -> None:
    """The response has failed, once, with its numbers in a row; its lane and the others go on."""
    async with talking(inside.address) as talker:
        await talker.create(input="go")
        await talker.said(5)
        pid = signalled(inside, number)
        await renewed(inside, pid)
        signalled(inside, number)
        failed = (await talker.ended())["response"]
        assert (failed["status"], failed["error"]["code"]) == ("failed", "engine_died")
        check_numbers(talker.heard)
        assert (await talker.complete(input="brief"))["status"] == "completed"
    status, found = await asyncio.to_thread(fetch, inside.address, "GET", f"/v1/responses/{failed['id']}")
    assert (status, found["error"]["code"]) == (200, "engine_died")
