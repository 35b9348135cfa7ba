"""An engine on the test's desk: same process, frames collected in a list, one step at a time."""

from collections.abc import Callable
from typing import Any, TypeVar

from vivace.engine.kv.parked_cache import ParkedCache
from vivace.engine.loop.engine import Engine
from vivace.engine.runners.base import Runner
from vivace.engine.speculation.costs import StepCosts
from vivace.engine.wire.frames import Failed, Finished, FromEngine, ToEngine, Tokens

T = TypeVar("T")


CHUNK_TOKENS = 64
COSTS = {1: 1.0, 16: 1.2, 64: 90.0}  # so that a chunk has CHUNK_TOKENS, and drafts pay


class RunnerFault(SystemExit):
    """An assertion inside of a runner failed. The engine lets it through: it is no fault of a turn's."""


def make_loud(runner: Runner) -> None:
    """Let failed assertions of the runner fail the test, where the engine would go on without that pass."""

    def loud(work: Callable[..., Any]) -> Callable[..., Any]:
        def call(*given: Any, **named: Any) -> Any:
            try:
                return work(*given, **named)
            except AssertionError as error:
                raise RunnerFault(f"{type(runner).__name__}.{work.__name__}: {error}") from error

        return call

    for name in ("forward", "prefill", "decode", "decode_rows"):
        if hasattr(runner, name) and name not in vars(runner):  # several desks may share a runner
            setattr(runner, name, loud(getattr(runner, name)))


class Desk:
    def __init__(
        self,
        runner: Runner,
        parked_cache: ParkedCache | None = None,
        costs: dict[int, float] = COSTS,
        row_costs: dict[int, float] | None = None,
    ) -> None:
        self.runner = runner
        make_loud(runner)
        self.sent: list[FromEngine] = []
        rows = StepCosts(row_costs) if row_costs else None
        self.engine = Engine(runner, self.receive, StepCosts(costs), parked_cache, row_costs=rows)

    def receive(self, *frames: FromEngine) -> None:
        self.sent += frames

    def give(self, *frames: ToEngine) -> None:
        for frame in frames:
            self.engine.handle(frame)

    def run(self, *frames: ToEngine) -> None:
        """Hand in the frames and step until nothing is left to do."""
        self.give(*frames)
        while not self.engine.is_idle:
            self.engine.step()

    def tokens(self, turn: str) -> list[int]:
        return [t for f in self.sent if isinstance(f, Tokens) and f.turn == turn for t in f.tokens]

    def finished(self, turn: str) -> Finished:
        (end,) = [f for f in self.sent if isinstance(f, Finished | Failed) and f.turn == turn]
        assert isinstance(end, Finished), end
        return end

    def failed(self, turn: str) -> Failed:
        (end,) = [f for f in self.sent if isinstance(f, Finished | Failed) and f.turn == turn]
        assert isinstance(end, Failed), end
        return end
