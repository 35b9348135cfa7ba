"""Interrupts of turns that an upstream answers: in every phase, and nothing is left behind."""

import asyncio
import random
import sys
from collections.abc import AsyncIterator
from typing import Any, ClassVar

import pytest

from tests.server.backends.upstream.fake import (
    Asker,
    Call,
    Fake,
    chat,
    chunk,
    completed,
    deaf,
    responses,
    says,
    tool_call,
    until,
)
from vivace.errors import VivaceError
from vivace.protocol.shapes.items import InputItem, Part
from vivace.protocol.shapes.outcomes import Broken, Ended, Outcome, TextDelta
from vivace.protocol.shapes.requests import Infill, ResponseCreate
from vivace.server.backends.base import TurnHooks
from vivace.server.backends.upstream.turn import UpstreamTurn
from vivace.server.caller import Caller
from vivace.server.watch.metrics import Metrics
from vivace.server.watch.turn_watch import Watch


@pytest.fixture
async def box(fake: Fake) -> AsyncIterator[Asker]:
    async with Asker(fake, api="chat") as asker:
        yield asker


async def rest(turn: UpstreamTurn) -> list[Outcome]:
    return [outcome async for outcome in turn.outcomes()]


def ends(outcomes: list[Outcome]) -> list[str]:
    return [outcome.reason for outcome in outcomes if isinstance(outcome, Ended)]


def tasks() -> set[asyncio.Task[Any]]:
    return asyncio.all_tasks() - {asyncio.current_task()}  # type: ignore[arg-type]


async def test_an_interrupt_before_the_first_step_ends_it_once(fake: Fake, box: Asker) -> None:
    """Nothing was sent, and there is one end."""
    turn = box.begin()
    turn.interrupt("steered")
    turn.interrupt()
    assert ends(await rest(turn)) == ["steered"]
    await until(lambda: not tasks())
    assert not fake.calls


@pytest.mark.skipif(sys.platform != "linux", reason="other systems refuse when the queue is full")
async def test_an_interrupt_while_connecting_ends_it() -> None:
    """It does not wait for the time limit."""
    with deaf() as port:
        async with Asker(port, connect_s=600) as box:
            turn = box.begin()
            for _ in range(20):
                await asyncio.sleep(0.002)
            assert not turn.is_over
            turn.interrupt()
            assert ends(await rest(turn)) == ["interrupted"]
            await until(lambda: not tasks())


async def test_an_interrupt_while_the_history_is_read_ends_it(fake: Fake) -> None:
    """The store may be slow; nobody waits for it."""
    async with Asker(fake) as box:
        is_asked = asyncio.Event()

        async def history(*_: object) -> list[InputItem] | None:
            is_asked.set()
            await asyncio.Event().wait()
            return None

        box.backend._history = history
        turn = box.begin(previous_response_id="resp_0")
        await is_asked.wait()
        turn.interrupt()
        assert ends(await rest(turn)) == ["interrupted"]
    assert not fake.calls


def silent(call: Call) -> None:
    call.hang()


def head_only(call: Call) -> None:
    call.head()
    call.hang()


def streaming(call: Call) -> None:
    call.head()
    call.event(chunk({"content": "Hel"}))
    call.hang()


def refusing(call: Call) -> None:
    call.head(500)
    call.send(b"{")
    call.hang()


@pytest.mark.parametrize("script", [silent, head_only, streaming, refusing])
async def test_an_interrupt_closes_the_connection_in_every_phase(fake: Fake, box: Asker, script: Any) -> None:
    """Before the head, before the first event, between events, in an error's body: the server sees it."""
    fake.play(script)
    turn = box.begin()
    if script is streaming:
        async for outcome in turn.outcomes():
            assert outcome == TextDelta("Hel")
            break
    await until(lambda: fake.calls)
    turn.interrupt()
    assert turn.is_over
    assert ends(await rest(turn)) == ["interrupted"]
    await until(fake.calls[0].gone.is_set)
    await until(lambda: not tasks())


async def test_an_interrupt_keeps_what_was_said(fake: Fake, box: Asker) -> None:
    """All text that came is told, also what was held back; usage is an estimate."""

    def script(call: Call) -> None:
        call.head()
        for text in ["One", " two", " E"]:
            call.event(chunk({"content": text}))
        call.hang()

    fake.play(script)
    turn = box.begin(stop=["END"])
    said: list[Outcome] = []
    async for outcome in turn.outcomes():
        said.append(outcome)
        if turn.sequencer.delta_count == 3:
            turn.interrupt("steered")
    assert "".join(outcome.delta for outcome in said if isinstance(outcome, TextDelta)) == "One two E"
    assert isinstance(said[-1], Ended)
    assert (said[-1].reason, said[-1].usage.output_tokens) == ("steered", 3)
    assert said[-1].usage.input_tokens > 0


async def test_a_steer_sends_the_partial_answer(fake: Fake, box: Asker) -> None:
    """Interrupt, then a successor: what was said so far is part of what it sends."""
    fake.play(streaming, says("Bye."))
    turn = box.begin("one")
    async for outcome in turn.outcomes():
        if isinstance(outcome, TextDelta):
            turn.interrupt("steered")
    box.known["resp_1"] = [
        InputItem(role="user", content="one"),
        InputItem(role="assistant", content=[Part("output_text", "Hel")], status="incomplete"),
    ]
    assert (await box.ask("shorter", previous_response_id="resp_1")).text == "Bye."
    assert [message["content"] for message in fake.calls[1].body["messages"]] == ["one", "Hel", "shorter"]


async def test_half_a_call_is_none_after_an_interrupt(fake: Fake, box: Asker) -> None:
    """It was begun; it is never called done."""

    def script(call: Call) -> None:
        call.head()
        call.event(chunk(tool_call(0, '{"a', "f", "c1")))
        call.hang()

    fake.play(script)
    turn = box.begin(tools=[{"type": "function", "name": "f"}])
    names = []
    async for outcome in turn.outcomes():
        names.append(type(outcome).__name__)
        turn.interrupt()
    assert "CallDone" not in names
    assert names[-1] == "Ended"


async def test_an_interrupt_after_the_end_changes_nothing(fake: Fake, box: Asker) -> None:
    """One end, the first."""
    fake.play(says("x"))
    turn = box.begin()
    await until(lambda: turn.is_over)
    turn.interrupt()
    assert ends(await rest(turn)) == ["stop"]


async def test_whoever_counts_turns_hears_of_each_end_once(fake: Fake, box: Asker) -> None:
    """Whether anyone listens to the turn or not."""
    heard: list[Ended | Broken] = []
    fake.play(says("x"), lambda call: call.whole(500, {}), streaming)
    for _ in range(3):
        turn = box.begin(hooks=TurnHooks(on_over=heard.append))
        await until(lambda: turn.is_over or len(fake.calls) == 3)  # noqa: B023
        turn.interrupt()
    warm = box.begin(hooks=TurnHooks(on_over=heard.append), generate=False)
    await until(lambda: warm.is_over)
    assert [getattr(one, "reason", "broken") for one in heard] == [
        "stop",
        "broken",
        "interrupted",
        "appended",
    ]


async def test_who_watches_upstreams_hears_how_each_request_ended(fake: Fake, box: Asker) -> None:
    """Completed, failed, timed out or cancelled; a warm-up is no request."""
    fake.play(says("x"), lambda call: call.whole(500, {}), streaming, silent)
    await box.ask()
    await box.ask()
    turn = box.begin()
    async for _ in turn.outcomes():
        turn.interrupt()
    await box.ask(generate=False)
    await box.rested()
    assert box.answered == [("box", "completed"), ("box", "failed"), ("box", "cancelled")]
    async with Asker(fake, api="chat", first_byte_s=0.1) as hasty:
        await hasty.ask()
        await hasty.rested()
        assert hasty.answered == [("box", "timeout")]


async def test_a_turn_is_watched(fake: Fake, box: Asker) -> None:
    """It waits until its request is sent, then runs, and what comes is heard of; its trace goes along."""
    metrics = Metrics()
    fake.play(streaming)
    watch = Watch(metrics).began("resp_1", ResponseCreate(input="hello", model="box/m"), Caller())
    watch._span = Span()  # type: ignore[assignment]
    turn = box.begin(hooks=TurnHooks(watch=watch))
    assert _line(metrics, "num_requests_waiting{").endswith(" 1")
    await until(lambda: turn.has_begun)
    assert _line(metrics, "num_requests_running{").endswith(" 1")
    assert _line(metrics, "time_to_first_token_seconds_count{").endswith(" 1")
    assert fake.calls[0].headers["traceparent"] == Span.headers["traceparent"]
    turn.interrupt()


class Span:
    headers: ClassVar = {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}


def _line(metrics: Metrics, start: str) -> str:
    lines = metrics.render(()).decode().splitlines()
    return next(line for line in lines if line.startswith(f"vivace:{start}"))


async def test_a_turn_goes_on_when_nobody_listens(fake: Fake, box: Asker) -> None:
    """And what it said is there in one piece for who comes late."""
    fake.play(says(*"abcdef"))
    turn = box.begin()
    await until(lambda: turn.is_over)
    outcomes = await rest(turn)
    assert outcomes[0] == TextDelta("abcdef")
    assert len(outcomes) == 2


async def test_a_warm_up_is_over_at_once(fake: Fake, box: Asker) -> None:
    """There is nothing to warm up there, and nothing is sent."""
    told = await box.ask(generate=False)
    assert told.ended.reason == "appended"
    assert told.ended.usage.total_tokens == 0
    assert not fake.calls


async def test_candidates_are_refused(box: Asker) -> None:
    """An upstream cannot score them."""
    with pytest.raises(VivaceError) as caught:
        box.begin(generate=False, candidates=["a"])
    assert (caught.value.code, getattr(caught.value, "status", 0)) == ("unsupported_parameter", 400)


async def test_completions_are_refused(box: Asker) -> None:
    """An upstream is not asked to fill a gap."""
    request = ResponseCreate(model="box/m", infill=Infill("a", "b"))
    with pytest.raises(VivaceError, match="not asked for completions") as caught:
        box.backend.begin(request, "resp_1", Caller())
    assert (caught.value.code, getattr(caught.value, "status", 0)) == ("unsupported_parameter", 400)


async def test_interrupts_at_any_moment_leave_nothing_behind(fake: Fake) -> None:
    """Races with connecting, sending, streaming and ending: one end each, no task, no connection."""
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    chance = random.Random(seed)
    message = {"type": "message", "content": [{"type": "output_text", "text": "x"}]}

    def script(call: Call) -> None:
        if call.path.endswith("responses"):
            texts = [{"type": "response.output_text.delta", "delta": "x"}] * 20
            responses(*texts, completed(message))(call)
        else:
            chat(*[chunk({"content": "x"})] * 20, chunk(finish="stop"))(call)

    fake.play(script)
    async with Asker(fake, api="chat") as one, Asker(fake, api="responses") as other:

        async def race(box: Asker) -> None:
            turn = box.begin()
            asyncio.get_running_loop().call_later(chance.random() * 0.02, turn.interrupt)
            outcomes = await rest(turn)
            assert len(ends(outcomes)) == 1
            assert not any(isinstance(outcome, Broken) for outcome in outcomes)

        for _ in range(10):
            await asyncio.gather(*(race(chance.choice([one, other])) for _ in range(20)))
        await until(lambda: not tasks())
        assert (await one.ask()).text == (await other.ask()).text == "x" * 20
    await until(lambda: fake.open == 0)


@pytest.mark.parametrize("script", [silent, head_only, streaming, refusing, says("x")])
async def test_a_shutdown_ends_every_turn(fake: Fake, script: Any) -> None:
    """What runs is interrupted, nothing new is accepted, and no connection and no task is left."""
    fake.play(script)
    box = Asker(fake, api="chat")
    turns = [box.begin() for _ in range(5)]
    await until(lambda: len(fake.calls) == 5)
    await box.backend.stop_turns()
    assert all(turn.is_over for turn in turns)
    for turn in turns:
        assert len(ends(await rest(turn))) == 1
    with pytest.raises(VivaceError) as caught:
        box.begin()
    assert caught.value.code == "shutting_down"
    await box.backend.close()
    assert not tasks()
    await until(lambda: fake.open == 0)


async def test_a_shutdown_does_not_wait_for_a_connection(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    """A turn that is over may still wait for the last bytes of its answer: not now."""
    monkeypatch.setattr("vivace.server.backends.upstream.http.LAST_BYTES_S", 600)

    def script(call: Call) -> None:
        call.head()
        call.event("[DONE]")
        call.hang()

    fake.play(script)
    box = Asker(fake, api="chat")
    assert (await box.ask()).ended.reason == "stop"
    assert tasks()
    await box.backend.stop_turns()
    assert not tasks()
    await box.backend.close()


async def test_a_shutdown_while_nothing_was_ever_asked_is_quiet(fake: Fake) -> None:
    """Also twice."""
    box = Asker(fake)
    await box.backend.close()
    await box.backend.close()
