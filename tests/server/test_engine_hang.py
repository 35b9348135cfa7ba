"""An engine that hangs or dies under turns of every kind, in every phase: at most a pause, at worst a word.

Which engine and when is the test's to say, so the server is in this process and its patience is short.
"""

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from inside import Inside, served_here, until
from serving import fetch, script, send, sse_events, status_of
from serving import until as until_there
from talking import check_numbers, talking

from vivace.client.http import get
from vivace.client.warm import ServerAddress
from vivace.config import Settings
from vivace.protocol.outcomes import Ended, Text
from vivace.protocol.requests import ResponseCreate
from vivace.server.backends import engine_link
from vivace.server.backends.base import Caller

TEXT = "".join(f"{number:03} " for number in range(80))
ARGUMENTS = json.dumps({"at": TEXT})
CALL = f'Look. <tool_call>{{"name": "look", "arguments": {ARGUMENTS}}}</tool_call>'
LOOK = {"type": "function", "name": "look", "parameters": {"type": "object"}, "strict": False}

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Inside]:
    folder = tmp_path_factory.mktemp("hang")
    replies = {"call": CALL, "brief": "Fine.", "": TEXT}
    model = script(folder, replies=replies, step_ms=2, prefill_token_ms=0.2, context_tokens=16384)
    settings = Settings(cache_dir=folder / "cache", state_dir=folder, port=0, threads=1, model=model)
    assert engine_link.BEAT_S + engine_link.SILENT_S < 3.0, "the truth within three seconds"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine_link, "BEAT_S", 0.05)
        patch.setattr(engine_link, "SILENT_S", 0.2)
        patch.setattr(engine_link, "HUNG_S", 2.0)
        patch.setattr(engine_link, "STATS_S", 0.2)
        patch.setattr(engine_link, "CALM_S", 0.0)  # so that deaths in other tests delay nothing here
        async with served_here(settings.having(max_running=4)) as inside:
            yield inside


@pytest_asyncio.fixture(loop_scope="module")
async def inside(shared: Inside) -> AsyncIterator[Inside]:
    await until(lambda: shared.native.is_ready)
    yield shared
    await until(lambda: shared.native.is_ready)
    await shared.calm()


def engine_pid(inside: Inside) -> int:
    loaded = inside.native._slot.loaded
    assert loaded is not None
    assert loaded.engine.life is not None
    return loaded.engine.life.ready.result().pid


def signalled(inside: Inside, number: signal.Signals) -> int:
    pid = engine_pid(inside)
    os.kill(pid, number)
    return pid


async def renewed(inside: Inside, pid: int) -> None:
    """Another engine is there in the place of this one."""
    await until(lambda: inside.native.is_ready and engine_pid(inside) != pid)


# ---- hanging ------------------------------------------------------------------------------------------


async def test_readyz_tells_of_an_engine_that_hangs(served: Settings, address: ServerAddress) -> None:
    """Stopped: 503, while health is 200. Going on: 200 again, with the same engine."""
    pid = status_of(served).engine.pid
    assert pid
    os.kill(pid, signal.SIGSTOP)
    try:
        await asyncio.to_thread(until_there, lambda: get(address.port, "/readyz")[0] == 503)
        assert get(address.port, "/healthz")[0] == 200
        status = status_of(served)
        assert not status.engine.is_ready
    finally:
        os.kill(pid, signal.SIGCONT)
    await asyncio.to_thread(until_there, lambda: get(address.port, "/readyz")[0] == 200)
    assert status_of(served).engine.pid == pid


async def test_a_pause_of_the_engine_changes_nothing(inside: Inside) -> None:
    """It hung for a moment in the middle of an answer: the same engine says the rest."""
    async with talking(inside.address) as talker:
        await talker.create(input="go")
        await talker.said(20)
        pid = signalled(inside, signal.SIGSTOP)
        await until(lambda: not inside.native.is_ready)
        os.kill(pid, signal.SIGCONT)
        ended = (await talker.ended())["response"]
        assert ended["output"][0]["content"][0]["text"] == TEXT
        assert ended["vivace"]["waterfall"]["restarts"] == 0
        assert engine_pid(inside) == pid
        check_numbers(talker.heard)


async def test_an_engine_that_hangs_for_long_is_replaced(inside: Inside) -> None:
    """It is ended; the turn goes on in the next, as the same response without a gap or a repeat."""
    async with talking(inside.address) as talker:
        await talker.create(input="go")
        response_id = await talker.said(20)
        pid = signalled(inside, signal.SIGSTOP)
        ended = (await talker.ended())["response"]
        assert ended["id"] == response_id
        assert ended["vivace"]["waterfall"]["restarts"] == 1
        deltas = [event["delta"] for event in talker.heard if event["type"] == "response.output_text.delta"]
        assert "".join(deltas) == ended["output"][0]["content"][0]["text"] == TEXT
        check_numbers(talker.heard)
        await renewed(inside, pid)


async def test_a_cancel_while_the_engine_hangs_is_the_end(inside: Inside) -> None:
    """Nothing answers the interrupt, but the turn does not begin again in the next engine."""
    async with talking(inside.address) as talker:
        await talker.create(input="go")
        response_id = await talker.said(5)
        pid = signalled(inside, signal.SIGSTOP)
        await talker.say("response.cancel", response_id=response_id)
        ended = (await talker.ended())["response"]
        assert ended["incomplete_details"]["reason"] == "interrupted"
        await renewed(inside, pid)
        assert (await talker.complete(input="brief"))["status"] == "completed"
        check_numbers(talker.heard)


async def test_who_leaves_while_the_engine_hangs_is_forgotten(inside: Inside) -> None:
    """The turn ends with the engine; nothing of it is in the next."""
    async with talking(inside.address, close_timeout=1) as talker:
        await talker.create(input="go")
        await talker.said(5)
        pid = signalled(inside, signal.SIGSTOP)
        talker.connection.transport.abort()
    await renewed(inside, pid)
    await inside.calm()
    assert (await inside.native.status()).tokens_generated == 0


async def test_a_steer_while_the_engine_hangs_is_carried(inside: Inside) -> None:
    """What was said stays said, and the successor begins in the next engine."""
    async with talking(inside.address) as talker:
        await talker.create(input="go")
        response_id = await talker.said(5)
        signalled(inside, signal.SIGSTOP)
        await talker.say("response.steer", previous_response_id=response_id, input="more")
        ended = (await talker.ended())["response"]
        assert ended["incomplete_details"]["reason"] == "steered"
        assert TEXT.startswith(ended["output"][0]["content"][0]["text"])
        followed = (await talker.ended())["response"]
        assert (followed["previous_response_id"], followed["status"]) == (response_id, "completed")
        check_numbers(talker.heard)


# ---- dying --------------------------------------------------------------------------------------------


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
        await talker.create(input="call", tools=[LOOK])
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
    turn = await inside.desk.begin(ResponseCreate(input="go", background=True, stream=True), Caller())
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
    turn = await inside.desk.begin(ResponseCreate(input="go"), Caller())
    outcomes = []
    async for outcome in turn:
        outcomes.append(outcome)
        if isinstance(outcome, Text) and len(outcomes) == 5:
            signalled(inside, signal.SIGKILL)
            turn.interrupt()
    assert isinstance(outcomes[-1], Ended)
    assert outcomes[-1].reason == "interrupted"


async def test_an_interrupt_the_moment_the_engine_is_dead(inside: Inside) -> None:
    """The death is known and not yet told to the turn: the interrupt goes nowhere, and harms nobody."""
    turn = await inside.desk.begin(ResponseCreate(input="go"), Caller())
    loaded = inside.native._slot.loaded
    assert loaded is not None
    life = loaded.engine.life
    assert life is not None
    await anext(aiter(turn))
    died = life.on_death
    assert died is not None

    def dying() -> None:
        died()
        turn.interrupt()

    life.on_death = dying
    signalled(inside, signal.SIGKILL)
    last = [outcome async for outcome in turn][-1]
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
