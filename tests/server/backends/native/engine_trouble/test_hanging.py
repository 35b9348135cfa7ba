"""An engine that hangs under turns of every kind, in every phase: at most a pause, at worst a word."""

import asyncio
import os
import signal
from typing import Any

import pytest

from tests.server.backends.native.engine_trouble.troubling import (
    TEXT,
    engine_pid,
    renewed,
    signalled,
)
from tests.server.inside import Inside, until
from tests.server.serving import status_of
from tests.server.serving import until as until_there
from tests.server.talking import check_numbers, talking
from vivace.client.http import get
from vivace.client.warm import ServerAddress
from vivace.config import Settings
from vivace.protocol.shapes.outcomes import Ended, TextDelta
from vivace.protocol.shapes.requests import ResponseCreate
from vivace.server.backends.native import submission
from vivace.server.backends.native.engines import supervisor as engine_supervisor
from vivace.server.caller import Caller

pytestmark = pytest.mark.asyncio(loop_scope="package")


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
