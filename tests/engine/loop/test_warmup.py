"""Nobody waits until passes are measured: a start estimates what they cost, an idle engine measures it."""

from collections.abc import Sequence

import pytest

from tests.engine.desk import Desk
from tests.engine.hashing import HashRunner
from vivace.engine.loop import engine as engine_module
from vivace.engine.loop import warmup
from vivace.engine.loop.engine import Engine
from vivace.engine.loop.warmup import start_costs
from vivace.engine.output import grammar as grammar_module
from vivace.engine.runners.base import Logits, ShouldStop, Span
from vivace.engine.speculation.costs import SIZES, StepCosts, estimate_costs
from vivace.engine.wire.frames import Generate, Open, Stats, StatsReply, ToEngine


class TimedRunner(HashRunner):
    """Its passes take `pass_ms` and `token_ms` more for each further token, on a clock of its own."""

    def __init__(self, pass_ms: float, token_ms: float, *, can_stop: bool = True) -> None:
        super().__init__(2048, 64)
        self.info = self.info._replace(can_stop=can_stop)
        self.now_s = 0.0
        self._pass_ms, self._token_ms = pass_ms, token_ms

    def ms(self, tokens: int) -> float:
        return self._pass_ms + (tokens - 1) * self._token_ms

    def perf_counter(self) -> float:
        return self.now_s

    def forward(self, spans: Sequence[Span], should_stop: ShouldStop | None = None) -> Logits:
        rows = super().forward(spans, should_stop)
        self.now_s += self.ms(self.passes[-1]) / 1e3
        return rows


@pytest.fixture(autouse=True)
def at_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    """Idle work begins at once, and passes are all of it."""
    monkeypatch.setattr(engine_module, "IDLE_AFTER_S", 0.0)
    monkeypatch.setattr(grammar_module.importlib.util, "find_spec", lambda _: None)  # type: ignore[attr-defined]


def with_clock(runner: TimedRunner, monkeypatch: pytest.MonkeyPatch) -> TimedRunner:
    monkeypatch.setattr(warmup, "time", runner)
    return runner


def desk_of(runner: TimedRunner) -> tuple[Desk, StepCosts]:
    """Return a desk whose engine has estimates only, all of them wrong."""
    desk, costs = Desk(runner), estimate_costs(7.0)
    desk.engine = Engine(runner, desk.receive, costs)
    return desk, costs


def test_a_start_makes_one_pass_of_a_slow_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """With 190 ms a pass nothing is measured but the pass that reads the weights; it scales the rest."""
    runner = with_clock(TimedRunner(190.0, 50.0), monkeypatch)
    costs = start_costs(runner)
    assert runner.passes == [1]
    assert costs.ms(1) == pytest.approx(190.0)
    assert costs.estimated == list(SIZES)


def test_a_start_measures_all_of_a_fast_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """With 1 ms a pass all sizes are measured before the first turn."""
    runner = with_clock(TimedRunner(1.0, 0.1), monkeypatch)
    costs = start_costs(runner)
    assert costs.estimated == []
    assert [costs.ms(size) for size in SIZES] == pytest.approx([runner.ms(size) for size in SIZES])


def test_measuring_at_the_start_ends_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many sizes are measured as fit into the time that somebody may wait for them, the smallest first."""
    runner = with_clock(TimedRunner(20.0, 5.0), monkeypatch)
    costs = start_costs(runner)
    assert (runner.now_s - runner.ms(1) / 1e3) * 1e3 <= warmup.START_MS
    assert 0 < len(costs.estimated) < len(SIZES)
    assert costs.estimated == list(SIZES[-len(costs.estimated) :])


def test_an_idle_engine_measures_what_was_estimated(monkeypatch: pytest.MonkeyPatch) -> None:
    """One size at a time, in no session's KV; then it has nothing left to do."""
    runner = with_clock(TimedRunner(190.0, 50.0), monkeypatch)
    desk, costs = desk_of(runner)
    desk.run(Open("s"), Generate("s", "t", [1, 2, 3], max_tokens=1, use_drafts=False))
    before = runner.used_cells()
    steps = 0
    while desk.engine.idle_work() is not None:
        steps += 1
    assert steps == len(costs.points())
    assert costs.points() == pytest.approx({size: runner.ms(size) for size in SIZES})
    assert runner.used_cells() == before


def test_who_asks_does_not_wait_until_a_pass_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """A frame stops the pass; it is made again when the engine is idle again."""
    runner = with_clock(TimedRunner(190.0, 50.0), monkeypatch)
    desk, costs = desk_of(runner)
    asked: list[ToEngine] = [Open("s")]
    assert desk.engine.idle_work(lambda: asked) is not None
    assert (runner.passes, costs.estimated) == ([], list(SIZES))
    desk.engine.idle_work()
    assert costs.estimated == list(SIZES[1:])


def test_stats_are_answered_while_a_pass_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server knows by them that the engine lives, and they do not stop the pass."""
    runner = with_clock(TimedRunner(190.0, 50.0), monkeypatch)
    desk, costs = desk_of(runner)
    desk.engine.idle_work(lambda: [Stats()])
    assert costs.estimated == list(SIZES[1:])
    assert [type(frame) for frame in desk.sent] == [StatsReply]


def test_a_long_pass_that_cannot_be_stopped_is_not_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever asked in its middle would wait for all of it."""
    runner = with_clock(TimedRunner(20.0, 10.0, can_stop=False), monkeypatch)
    desk, costs = desk_of(runner)
    while desk.engine.idle_work() is not None:
        pass
    assert costs.estimated == [16, 32, 64]


def test_a_full_kv_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """No session makes room for a measurement; it is made when there is room again."""
    runner = with_clock(TimedRunner(190.0, 50.0), monkeypatch)
    desk, costs = desk_of(runner)
    full = [1 + i % 50 for i in range(runner.info.context_tokens - 1)]
    desk.run(Open("s"), Generate("s", "t", full, max_tokens=1, use_drafts=False))
    while desk.engine.idle_work() is not None:
        pass
    assert len(runner.kv[desk.engine._sessions.get("s").seq]) == len(full)
    assert costs.estimated[0] == 2
