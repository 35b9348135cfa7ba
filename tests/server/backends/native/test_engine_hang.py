"""An engine that hangs or dies under turns of every kind, in every phase: at most a pause, at worst a word.

Which engine and when is the test's to say, so the server is in this process and its patience is short.
"""

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from tests.server.inside import Inside, served_here, until
from tests.server.serving import fetch, script, send, sse_events, status_of
from tests.server.serving import until as until_there
from tests.server.talking import check_numbers, talking
from vivace.client.http import get
from vivace.client.warm import ServerAddress
from vivace.config import Settings
from vivace.protocol.shapes.outcomes import Ended, TextDelta
from vivace.protocol.shapes.requests import ResponseCreate
from vivace.server.backends.base import Caller
from vivace.server.backends.native import engine_supervisor, submission

TEXT = "".join(f"{number:03} " for number in range(80))
ARGUMENTS = json.dumps({"at": TEXT})
CALL = f'Look. <tool_call>\n{{"name": "look", "arguments": {ARGUMENTS}}}</tool_call>'
LOOK = {"type": "function", "name": "look", "parameters": {"type": "object"}, "strict": False}

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Inside]:
    folder = tmp_path_factory.mktemp("hang")
    replies = {"call": CALL, "brief": "Fine.", "": TEXT}
    model = script(folder, replies=replies, step_ms=2, prefill_token_ms=0.2, context_tokens=16384)
    settings = Settings(
        cache_dir=folder / "cache", state_dir=folder, port=0, threads=1, model=model, allow_scripted=True
    )
    assert engine_supervisor.BEAT_S + engine_supervisor.SILENT_S < 3.0, "the truth within three seconds"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine_supervisor, "BEAT_S", 0.05)
        patch.setattr(engine_supervisor, "SILENT_S", 0.2)
        patch.setattr(engine_supervisor, "HUNG_S", 2.0)
        patch.setattr(engine_supervisor, "STATS_S", 0.2)
        patch.setattr(engine_supervisor, "CALM_S", 0.0)  # so that deaths in other tests delay nothing here
        async with served_here(settings.having(max_running=4)) as inside:
            yield inside


@pytest_asyncio.fixture(loop_scope="module")
async def inside(shared: Inside) -> AsyncIterator[Inside]:
    await until(lambda: shared.native.is_ready)
    yield shared
    await until(lambda: shared.native.is_ready)
    await shared.calm()


def engine_pid(inside: Inside) -> int:
    loaded = inside.native._pool.latest
    assert loaded is not None
    assert loaded.engine.process is not None
    return loaded.engine.process.ready.result().pid


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


async def test_the_end_does_not_wait_for_an_engine_that_hangs(
    inside: Inside, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who cancels has the end, and nothing is kept for him, while the engine still hangs.

    When the engine is heard again, its session is cut to what was heard before, and goes on from there.
    """
    monkeypatch.setattr(engine_supervisor, "HUNG_S", 600.0)
    async with talking(inside.address) as talker:
        await talker.create(input="go")
        response_id = await talker.said(5)
        pid = signalled(inside, signal.SIGSTOP)
        try:
            await talker.say("response.cancel", response_id=response_id)
            ended = (await talker.ended())["response"]
            assert ended["incomplete_details"]["reason"] == "interrupted"
            await until(lambda: not {"turns", "running", "reserved"} & inside.kept().keys())
            assert engine_pid(inside) == pid
        finally:
            os.kill(pid, signal.SIGCONT)
        known = inside.library.peek(response_id, Caller())
        assert known is not None
        session = known.session
        assert session is not None
        await until(lambda: not session.is_busy)
        before = known.tokens()
        again = await talker.complete(input="brief", previous_response_id=response_id)
        assert again["output"][0]["content"][0]["text"] == "Fine."
        assert again["usage"]["input_tokens_details"]["cached_tokens"] >= len(before) - 1
        then = inside.library.peek(again["id"], Caller())
        assert then is not None
        assert then.session is session
        assert then.tokens()[: len(before)] == before
        assert engine_pid(inside) == pid


async def test_a_response_that_was_given_up_is_continued_meanwhile(
    inside: Inside, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a session of its own, since the engine has not let go of the other; it begins when it is heard."""
    monkeypatch.setattr(engine_supervisor, "HUNG_S", 600.0)
    async with talking(inside.address) as talker:
        await talker.create(input="go")
        response_id = await talker.said(5)
        pid = signalled(inside, signal.SIGSTOP)
        try:
            await talker.say("response.cancel", response_id=response_id)
            await talker.ended()
            await talker.create(input="brief", previous_response_id=response_id)
            await until(lambda: [turn for turn in inside.native._turns if turn.session])
        finally:
            os.kill(pid, signal.SIGCONT)
        then = (await talker.ended())["response"]
        assert then["output"][0]["content"][0]["text"] == "Fine."
        one, other = (inside.library.peek(each, Caller()) for each in (response_id, then["id"]))
        assert one is not None
        assert other is not None
        assert other.session is not one.session
        assert other.tokens()[: one.length] == one.tokens()


@pytest.mark.parametrize(
    "fields",
    [
        {"input": "go " * 500},
        {"input": "go " * 500, "generate": False},
        {"input": "go " * 500, "generate": False, "is_provisional": True},
        {"input": "go", "candidates": ["a", "b"], "generate": False},
    ],
    ids=["prefill", "warm-up", "typed", "scored"],
)
async def test_every_kind_of_turn_is_given_up(
    inside: Inside, fields: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ends once, as interrupted; its session can be used when the engine is heard again."""
    monkeypatch.setattr(engine_supervisor, "HUNG_S", 600.0)
    pid = signalled(inside, signal.SIGSTOP)
    try:
        turn = await inside.begin(ResponseCreate(**fields), Caller())
        await until(lambda: turn.submitted)  # type: ignore[attr-defined]
        turn.interrupt()
        outcomes = [outcome async for outcome in turn.outcomes()]
        assert [(type(outcome), outcome.reason) for outcome in outcomes] == [(Ended, "interrupted")]  # type: ignore[union-attr]
    finally:
        os.kill(pid, signal.SIGCONT)
    known = inside.library.peek(turn.id, Caller())
    assert known is not None
    session = known.session
    assert session is not None
    await until(lambda: not session.is_busy)
    then = await inside.begin(ResponseCreate(input="brief", previous_response_id=turn.id), Caller())
    said = "".join([outcome.delta async for outcome in then.outcomes() if isinstance(outcome, TextDelta)])
    assert said == "Fine."
    assert engine_pid(inside) == pid


async def test_late_tokens_are_no_part_of_the_log(inside: Inside, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given up while tokens are on their way: the engine's session is cut to the log before it goes on."""
    monkeypatch.setattr(submission, "INTERRUPT_S", 0.0)
    for _ in range(20):
        turn = inside.native.begin(ResponseCreate(input="go"), "resp_late", Caller())
        async for outcome in turn.outcomes():
            if isinstance(outcome, TextDelta):
                turn.interrupt()
        session = turn.session
        assert session is not None
        await until(lambda session=session: not session.is_busy)  # type: ignore[misc]
        request = ResponseCreate(input="brief", previous_response_id="resp_late")
        then = inside.native.begin(request, "resp_then", Caller())
        ended = [outcome async for outcome in then.outcomes()][-1]
        assert isinstance(ended, Ended)
        assert then.session is session
        read = ended.waterfall.cached_tokens + ended.waterfall.new_tokens
        assert read == ended.usage.input_tokens


async def test_no_turn_begins_on_an_engine_that_hangs(
    inside: Inside, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waits, and can be interrupted like one that waits for its model; or it begins when it is heard."""
    monkeypatch.setattr(engine_supervisor, "HUNG_S", 600.0)
    pid = signalled(inside, signal.SIGSTOP)
    try:
        await until(lambda: not inside.native.is_ready)
        gone = inside.native.begin(ResponseCreate(input="go"), "resp_gone", Caller())
        stays = inside.native.begin(ResponseCreate(input="brief"), "resp_stays", Caller())
        await until(lambda: gone.session and stays.session)
        gone.interrupt()
        (end,) = [outcome async for outcome in gone.outcomes()]
        assert isinstance(end, Ended)
        assert not gone.submitted
        assert not stays.submitted
    finally:
        os.kill(pid, signal.SIGCONT)
    assert (
        "".join([outcome.delta async for outcome in stays.outcomes() if isinstance(outcome, TextDelta)])
        == "Fine."
    )
    assert not stays.deaths


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
    life = loaded.engine.process
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
