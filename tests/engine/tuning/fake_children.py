"""Children of the tuner that compute nothing: they take the times and say the things that a test gives them.

Owns the fakes. Holds no test.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vivace.engine.tuning.children.child import VariantFailed
from vivace.engine.tuning.children.wire import (
    Describe,
    Description,
    Done,
    Load,
    Passes,
    Prefill,
    Requantise,
    Scores,
    ScoreSample,
    Times,
)

FILE_BYTES = 1000
Q8_0, SOURCE = "Q8_0", "source"


@dataclass
class FakeMachine:
    """A machine on which a variant's speed is what `speed` says of (format, repacked, threads)."""

    speed: dict[tuple[str, bool, int], float] = field(default_factory=dict)  # 1: as the file as downloaded
    bits: float = 5.0
    change: dict[str, float] = field(default_factory=dict)  # of every log-probability, by format
    fail: Callable[[str, object], None] = lambda _name, _request: None  # may raise for a format's request
    started: int = 0
    alive: int = 0
    most_alive: int = 0
    prefilled: list[tuple[str, bool]] = field(default_factory=list)  # whose rounds came in which order

    def start(self) -> Any:
        self.started += 1
        self.alive += 1
        self.most_alive = max(self.most_alive, self.alive)
        return FakeChild(self)


class FakeChild:
    def __init__(self, machine: FakeMachine) -> None:
        self.machine = machine
        self.name, self.repacked, self.threads = SOURCE, True, 0
        self.is_closed = False

    def ask(self, request: object, _kind: object, while_waiting: Callable[[], None] = lambda: None) -> object:
        while_waiting()
        if isinstance(request, Load):
            format = Path(request.path).name.split(".")[-2]
            self.name = format if format in ("Q8_0", "Q4_0", "IQ4_NL") else SOURCE
            self.repacked, self.threads = request.use_extra_bufts, request.threads
        self.machine.fail(self.name, request)
        return self._answer(request)

    def close(self) -> None:
        self.machine.alive -= not self.is_closed
        self.is_closed = True

    def _answer(self, request: object) -> object:
        slowness = 1 / self.machine.speed.get((self.name, self.repacked, self.threads), 1.0)
        match request:
            case Describe():
                return Description("Q4_K_M", FILE_BYTES, int(FILE_BYTES * 8 / self.machine.bits))
            case Requantise(_, target):
                Path(target).write_bytes(b"q" * 1700)
                return Done()
            case Load():
                return Done()
            case Prefill(tokens):
                if tokens == 256:
                    self.machine.prefilled.append((self.name, self.repacked))
                return Times([tokens * 6.0 * slowness])
            case Passes(sizes):
                return Times([(60 + 8 * size) * slowness for size in sizes])
            case ScoreSample():
                change = self.machine.change.get(self.name, 0.0)
                return Scores([-1.0 - change] * 100, [5] * 100)
        raise VariantFailed(f"unknown request {request}")
