"""The engine's own work for one token: a runner that needs nothing but time, real frames over a real socket.

    host_work.py [--step-us 600]
    host_work.py --users 1,2,4,8,16,32,64 --step-us 1500

From the end of one `decode` to the beginning of the next, and what is sent within: with 0 in a tight loop,
with 600 as between two steps of a GPU, when caches have gone cold and whoever receives the tokens sleeps.
Numbers of a busy machine say nothing; compare versions in turns.
"""

import argparse
import multiprocessing
import socket
import time
from collections.abc import Sequence

import numpy as np

from vivace.engine.loop.engine import Engine
from vivace.engine.loop.link import Link
from vivace.engine.runners.base import DecodeRow, SamplingSpec, ShouldStop, Span, WhileRunning
from vivace.engine.speculation.costs import StepCosts
from vivace.engine.wire.frames import Close, Finished, FromEngine, Generate, Open
from vivace.testing.scripted import Script, ScriptedRunner

TOKENS = 1000
TURNS = 6  # the first warms up


class TimedRunner(ScriptedRunner):
    """A runner that gives the same letter after `step_s` seconds, and notes when it was called."""

    max_rows = max_logits_rows = 64

    def __init__(self, step_s: float) -> None:
        super().__init__(Script(context_tokens=1 << 20))
        self.info = self.info._replace(sequences=128)
        self._step_s, self._ended = step_s, 0.0
        self.gaps: list[float] = []
        self.sends: list[float] = []

    def _next(self, seq: int, held: list[int]) -> int:  # noqa: ARG002
        return ord("a")

    def prefill(self, span: Span, sampling: SamplingSpec, should_stop: ShouldStop | None) -> int:
        del sampling
        self.forward([span], should_stop)
        return ord("a")

    def decode(
        self,
        span: Span,  # noqa: ARG002
        sampling: SamplingSpec,  # noqa: ARG002
        steps_ahead: int,  # noqa: ARG002
        while_running: WhileRunning,
    ) -> list[int]:
        self._take(while_running)
        return [ord("a")]

    def decode_rows(
        self,
        rows: Sequence[DecodeRow],
        steps_ahead: int,  # noqa: ARG002
        while_running: WhileRunning,
    ) -> list[list[int]]:
        self._take(while_running)
        return [[ord("a")] for _ in rows]

    def known_row_costs(self) -> dict[int, float]:
        return {}

    def _take(self, while_running: WhileRunning) -> None:
        """Note when it was called, and take as long as a step does."""
        begun = time.perf_counter()
        self.gaps.append(begun - self._ended)
        while_running()
        self.sends.append(time.perf_counter() - begun)
        while time.perf_counter() < begun + self._step_s:
            pass
        self._ended = time.perf_counter()


def read_all(link: socket.socket) -> None:
    while link.recv(1 << 20):
        pass


def measure(step_us: float) -> None:
    ours, theirs = socket.socketpair()
    reader = multiprocessing.get_context("fork").Process(target=read_all, args=(theirs,), daemon=True)
    reader.start()
    runner, link = TimedRunner(step_us * 1e-6), Link(ours)
    ends: list[Finished] = []

    def send(*frames: FromEngine) -> None:
        ends.extend(frame for frame in frames if isinstance(frame, Finished))
        link.send(*frames)

    engine = Engine(runner, send, StepCosts({1: 1.0, 64: 2.0}))
    for number in range(TURNS):
        name = f"session {number}"
        engine.handle(Open(name, [ord("b")] * 50))
        engine.handle(Generate(name, name, [ord("c")], max_tokens=TOKENS, use_drafts=False))
        while not engine.is_idle:
            for frame in link.receive(0.0):
                engine.handle(frame)
            engine.step(link.peek)
        engine.handle(Close(name))
    reader.terminate()
    gaps = np.array(runner.gaps[TOKENS:]) * 1e6
    ten, half, ninety = np.percentile(gaps, [10, 50, 90])
    told = [end.waterfall.overhead_ms * 1e3 / end.waterfall.steps for end in ends[1:]]
    print(f"From one step to the next: {half:.1f} µs (a tenth below {ten:.1f}, a tenth above {ninety:.1f});")
    print(f"of that the waterfall tells {np.median(told):.1f} µs, in a step of {step_us:.0f} µs.")
    ten, half, ninety = np.percentile(np.array(runner.sends[TOKENS:]) * 1e6, [10, 50, 90])
    print(f"Sending, while the step runs: {half:.1f} µs (a tenth below {ten:.1f}, above {ninety:.1f}).")


def measure_users(step_us: float, users: int) -> None:
    """Print the host's work between two passes over one token of each user, and for sending them."""
    ours, theirs = socket.socketpair()
    reader = multiprocessing.get_context("fork").Process(target=read_all, args=(theirs,), daemon=True)
    reader.start()
    runner, link = TimedRunner(step_us * 1e-6), Link(ours)
    engine = Engine(runner, link.send, StepCosts({1: 1.0, 64: 2.0}))
    for user in range(users):
        name = f"session {user}"
        engine.handle(Open(name, [ord("b")] * 50))
        engine.handle(Generate(name, name, [ord("c")], max_tokens=TOKENS // 4, use_drafts=False))
    while not engine.is_idle:
        for frame in link.receive(0.0):
            engine.handle(frame)
        engine.step(link.peek)
    reader.terminate()
    passes = slice(len(runner.gaps) // 4, len(runner.gaps) * 3 // 4)  # all users are there
    gap, sent = (float(np.median(times[passes])) * 1e6 for times in (runner.gaps, runner.sends))
    print(
        f"{users:3} users: {gap:7.1f} µs between two passes, {gap / users:5.1f} a token; "
        f"sending {sent:6.1f}, {sent / users:5.1f} a token"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--step-us", type=float, default=600.0)
    parser.add_argument("--users", default="", help="how many at once, with commas between")
    options = parser.parse_args()
    for users in map(int, filter(None, options.users.split(","))):
        measure_users(options.step_us, users)
    if not options.users:
        measure(options.step_us)


if __name__ == "__main__":
    main()
