"""A pass that is no longer wanted is given up in its middle, and leaves the KV as it was."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.engine.desk import CHUNK_TOKENS, Desk
from tests.engine.fixtures import RunnerFixture, some_tokens
from tests.engine.hashing import HashRunner
from tests.engine.loop.test_scheduler import TOGETHER, endless
from tests.engine.loop.test_worker import EngineProcess
from tests.thorough import examples
from vivace.engine.runners.base import Logits, ShouldStop, Span, Stopped
from vivace.engine.wire.frames import (
    Append,
    Close,
    Finished,
    Generate,
    Interrupt,
    Open,
    Ready,
    Rewind,
    Stats,
    StatsReply,
    ToEngine,
)
from vivace.testing.scripted import Script, ScriptedRunner

URGENT: ToEngine = Generate("another", "never handed in", [1])
LONG = [1 + i % 50 for i in range(150)]


class SlowRunner(HashRunner):
    """Asks several times during a pass; `asked` counts."""

    def __init__(self) -> None:
        super().__init__(2048, 64, endless)
        self.asked = 0

    def forward(self, spans: list[Span], should_stop: ShouldStop | None = None) -> Logits:  # type: ignore[override]
        for _ in range(5):
            if should_stop:
                self.asked += 1
                if should_stop():
                    raise Stopped
        return super().forward(spans, should_stop)


@pytest.fixture
def desk() -> Desk:
    desk = Desk(SlowRunner())  # type: ignore[arg-type]
    desk.give(Open("a"), Open("b"))
    return desk


def runner_of(desk: Desk) -> SlowRunner:
    assert isinstance(desk.runner, SlowRunner)
    return desk.runner


def alone(log: list[int], count: int = 4) -> list[int]:
    desk = Desk(HashRunner(2048, 64, endless))
    desk.run(Open("s"), Generate("s", "t", list(log), max_tokens=count))
    return desk.tokens("t")


@pytest.mark.parametrize(
    "frame", [Interrupt("t"), Close("a"), Rewind("a", 0)], ids=["interrupt", "close", "rewind"]
)
def test_the_end_of_its_turn_stops_a_pass(desk: Desk, frame: ToEngine) -> None:
    """A frame that ends the only turn of a pass stops the pass; the turn ends once, when it is handled."""
    desk.give(Generate("a", "t", list(LONG), max_tokens=4))
    came: list[ToEngine] = []
    arrivals = iter([[], [], [frame]])

    def look() -> list[ToEngine]:
        came.extend(next(arrivals, []))
        return came

    desk.engine.step(look)
    assert runner_of(desk).asked == 3
    assert runner_of(desk).passes == []
    desk.run(frame)
    assert desk.finished("t").reason == "interrupted"
    assert desk.tokens("t") == []


def test_a_stopped_turn_goes_on_from_where_it_was(desk: Desk) -> None:
    """What was prefilled before the stopped pass is kept; the next turn says the same as alone."""
    desk.give(Generate("a", "t", list(LONG), max_tokens=4))
    desk.engine.step()
    desk.engine.step(lambda: [Interrupt("t")])
    desk.run(Interrupt("t"))
    desk.run(Generate("a", "u", [7], max_tokens=4))
    assert desk.finished("u").waterfall.cached_tokens == CHUNK_TOKENS
    assert desk.tokens("u") == alone([*LONG, 7])


def test_a_pass_goes_on_for_the_turn_that_was_not_interrupted() -> None:
    """Of two turns in one pass one is interrupted: the pass is done, the other one gets what it is for."""
    desk = Desk(SlowRunner(), costs=TOGETHER | {128: 100.0})  # type: ignore[arg-type]
    desk.give(Open("a"), Open("b"))
    desk.give(Generate("a", "t", list(LONG), max_tokens=4), Generate("b", "u", LONG[::-1], max_tokens=4))
    desk.engine.step(lambda: [Interrupt("t")])
    assert [len(spans) for spans in runner_of(desk).spans] == [2]
    desk.run(Interrupt("t"))
    assert desk.finished("t").reason == "interrupted"
    assert desk.tokens("u") == alone(LONG[::-1])


def test_a_pass_stops_when_both_of_its_turns_are_interrupted() -> None:
    """Nobody is left to want it."""
    desk = Desk(SlowRunner(), costs=TOGETHER | {128: 100.0})  # type: ignore[arg-type]
    desk.give(Open("a"), Open("b"))
    desk.give(Generate("a", "t", list(LONG), max_tokens=4), Generate("b", "u", LONG[::-1], max_tokens=4))
    desk.engine.step(lambda: [Interrupt("u"), Interrupt("t")])
    assert runner_of(desk).passes == []
    desk.run(Interrupt("u"), Interrupt("t"))
    assert (desk.finished("t").reason, desk.finished("u").reason) == ("interrupted", "interrupted")


def test_a_pass_stops_when_nobody_listens_any_more(desk: Desk) -> None:
    """The end of the stream stops whatever runs."""
    desk.give(Generate("a", "t", list(LONG), max_tokens=4))
    desk.engine.step(lambda: None)
    assert runner_of(desk).passes == []


def test_a_short_pass_is_not_asked_about(desk: Desk) -> None:
    """A decode step is over sooner than a question would be worth."""
    desk.give(Generate("a", "t", [1], max_tokens=4))
    desk.engine.step(lambda: pytest.fail("asked"))


def test_a_scripted_pass_stops_in_its_middle() -> None:
    """The scripted runner keeps its books over a stopped pass."""
    script = Script(replies={"": "hello"}, prefill_token_ms=1000.0, step_ms=1.0)
    desk = Desk(ScriptedRunner(script))
    desk.give(Open("s"), Generate("s", "t", [65] * 60, max_tokens=4))
    desk.engine.step(lambda: [Interrupt("t")])
    desk.run(Interrupt("t"))
    assert desk.finished("t").reason == "interrupted"
    desk.run(Rewind("s", 1), Generate("s", "u", [], max_tokens=4))
    assert bytes(desk.tokens("u")) == b"ello"


def stats_of(desk: Desk) -> list[StatsReply]:
    return [frame for frame in desk.sent if isinstance(frame, StatsReply)]


def test_stats_are_answered_inside_of_a_pass(desk: Desk) -> None:
    """Once, with what holds before the pass; and the pass goes on."""
    desk.give(Generate("a", "t", list(LONG), max_tokens=4))
    came: list[ToEngine] = [Open("c"), Stats()]
    replies = []

    def look() -> list[ToEngine]:
        replies.append(len(stats_of(desk)))
        return came

    desk.engine.step(look)
    assert (replies[0], set(replies[1:])) == (0, {1})
    assert runner_of(desk).passes == [CHUNK_TOKENS]
    (reply,) = stats_of(desk)
    assert (reply.turns, reply.tokens_prefilled, reply.sessions) == (1, 0, 2)
    desk.run(*came)
    assert len(stats_of(desk)) == 1
    assert desk.tokens("t") == alone(LONG)


@settings(max_examples=examples(30))
@given(st.lists(st.lists(st.sampled_from([Stats(), URGENT, Interrupt("nobody")]), max_size=3), max_size=20))
def test_stats_are_answered_as_often_as_asked(looks: list[list[ToEngine]]) -> None:
    """Whatever else comes and however passes fall, each question has one answer."""
    desk = Desk(SlowRunner())  # type: ignore[arg-type]
    desk.give(Open("a"), Open("another"), Generate("a", "t", list(LONG), max_tokens=4))
    waiting: list[ToEngine] = []
    arrivals, asked = iter(looks), 0

    def look() -> list[ToEngine]:
        nonlocal asked
        fresh = next(arrivals, [])
        asked += fresh.count(Stats())
        waiting.extend(fresh)
        return waiting

    while not desk.engine.is_idle:
        desk.engine.step(look)
        assert len(stats_of(desk)) <= asked
        desk.give(*waiting)
        waiting.clear()
        assert len(stats_of(desk)) == asked
    assert desk.tokens("t") == alone(LONG)


@pytest.fixture
def slow_reader(tmp_path: Path) -> Iterator[EngineProcess]:
    """An engine that reads 20 tokens a second."""
    script = tmp_path / "script.json"
    script.write_text(json.dumps({"replies": {"": "x" * 50}, "prefill_token_ms": 50}))
    engine = EngineProcess(f"scripted:{script}")
    engine.next(Ready)
    yield engine
    engine.close()


def test_an_interrupt_is_obeyed_inside_of_a_pass(slow_reader: EngineProcess) -> None:
    """The turn ends although its first pass, of three seconds and more, has not: no token was read."""
    slow_reader.send(Open("s"), Append("s", "t", [65] * 2000))
    slow_reader.send(Interrupt("t"), Stats())
    assert slow_reader.next(Finished).reason == "interrupted"
    assert slow_reader.next(StatsReply).tokens_prefilled <= 64


def test_a_question_is_answered_inside_of_a_pass(slow_reader: EngineProcess) -> None:
    """Nothing of the first pass, which takes three seconds, is done when the answer comes."""
    slow_reader.send(Open("s"), Append("s", "t", [65] * 2000))
    for _ in range(3):
        slow_reader.send(Stats())
        reply = slow_reader.next(StatsReply)
        assert (reply.turns, reply.tokens_prefilled) == (1, 0)
    slow_reader.send(Interrupt("t"))
    assert slow_reader.next(Finished).reason == "interrupted"


def test_a_closed_socket_ends_the_process_inside_of_a_pass(slow_reader: EngineProcess) -> None:
    """The engine does not read a prompt of two minutes for a server that is gone."""
    slow_reader.send(Open("s"), Append("s", "t", [65] * 2000))
    slow_reader.link.close()
    assert slow_reader.process.wait(20) == 0


def test_a_real_pass_answers_in_its_middle(fixture: RunnerFixture) -> None:
    """From inside of the computation, and what it computes is the same."""
    log = some_tokens(fixture, 150)
    desk = fixture.desk()
    desk.run(Open("s"), Generate("s", "t", list(log), max_tokens=4))
    expected = desk.tokens("t")
    desk = fixture.desk()
    desk.give(Open("s"), Generate("s", "t", list(log), max_tokens=4))
    replies = []

    def look() -> list[ToEngine]:
        replies.append(len(stats_of(desk)))
        return [Stats()]

    desk.engine.step(look)
    assert len(stats_of(desk)) == 1
    assert replies[0] == 0
    desk.run(Stats())
    assert len(stats_of(desk)) == 1
    fixture.assert_same(log, desk.tokens("t"), expected)
