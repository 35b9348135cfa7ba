"""Sessions in any order of operations, against a model that replays every log from the start.

Owns the operations. Which runner computes, and what it must say, is said by the machines that derive from it.
"""

import random
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from tests.engine.desk import Desk
from vivace.engine.kv.parked_cache import ParkedCache
from vivace.engine.runners.base import Runner
from vivace.engine.wire.frames import (
    Append,
    Close,
    Fork,
    Generate,
    Interrupt,
    Open,
    Park,
    Rewind,
    Sampling,
    Score,
    Tier,
)


def some_tokens(fewest: int, most: int) -> st.SearchStrategy[list[int]]:
    """Lists of any length alike; those of `st.lists` have half a dozen members, too few to be parked."""
    return st.builds(
        lambda count, seed: random.Random(seed).choices(range(61), k=count),
        st.integers(fewest, most),
        st.integers(0, 99),
    )


TOKENS = some_tokens(0, 45)
TIERS: st.SearchStrategy[Tier] = st.sampled_from(["realtime", "background"])
TENANTS = st.sampled_from(["ann", "bob"])


class SessionsMachine(RuleBasedStateMachine):
    """`logs` is the truth; the engine must say what a replay of the log would say."""

    cells = 400
    most_parked_bytes = 20_000
    most_checkpoint_bytes = 2_000
    sampling = Sampling()
    runner: Runner

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.logs: dict[str, list[int]] = {}
        self.typed: dict[str, list[int]] = {}  # provisional tails
        self.tenants: dict[str, str] = {}
        self.count = 0
        self.start()

    def start(self) -> None:
        """Start an engine, whose KV is empty, on the folder of the last one."""
        self.runner = self.make_runner()
        self.parked_cache = ParkedCache(
            Path(self.folder.name),
            kv_format=self.runner.info.kv_format,
            limit_bytes=self.most_parked_bytes,
            can_cut=self.runner.info.memory == "exact",
        )
        self.desk = Desk(self.runner, self.parked_cache)
        checkpoints = self.desk.engine._sessions.checkpoints
        checkpoints.shortest_interval = checkpoints.longest_interval = 40  # whatever a copy takes
        checkpoints._limit_bytes = self.most_checkpoint_bytes

    def make_runner(self) -> Runner:
        """Return a runner with nothing in its KV."""
        raise NotImplementedError

    def replay(self, log: list[int], count: int) -> list[int]:
        """Return what the model says after a log that it reads from the start."""
        raise NotImplementedError

    def check(self, log: list[int], turn: str, count: int) -> None:
        """Fail if the turn has not said the beginning of what the model says after the log."""
        said = self.desk.tokens(turn)
        assert said == self.replay(log, count)[: len(said)]

    def check_scores(self, log: list[int], candidates: list[list[int]], scores: list[float]) -> None:
        """Fail if these are not the model's scores: the last candidate is what it would say."""
        del log, candidates
        assert scores[-1] == max(scores)

    def generating(self, name: str, turn: str, tokens: list[int], **wishes: Any) -> Generate:
        return Generate(name, turn, tokens, sampling=self.sampling, **wishes)

    def teardown(self) -> None:
        self.parked_cache.close()
        self.folder.cleanup()

    def fresh(self) -> str:
        self.count += 1
        return f"n{self.count}"

    def pick(self, data: st.DataObject) -> str:
        return data.draw(st.sampled_from(sorted(self.logs)))

    def has_room(self, name: str, more: int) -> bool:
        return 0 < len(self.logs[name]) + more < self.cells - 20

    @rule(tokens=some_tokens(1, 120), tenant=TENANTS)
    def open(self, tokens: list[int], tenant: str) -> None:
        name = self.fresh()
        self.desk.run(Open(name, list(tokens), tenant))
        self.logs[name] = list(tokens)
        self.tenants[name] = tenant

    @precondition(lambda self: self.logs)
    @rule(
        data=st.data(),
        tokens=TOKENS,
        count=st.integers(1, 12),
        tier=TIERS,
        predicts=st.floats(0, 1),
        drafts=st.booleans(),
    )
    def generate(
        self, data: st.DataObject, tokens: list[int], count: int, tier: Tier, predicts: float, drafts: bool
    ) -> None:
        name, turn = self.pick(data), self.fresh()
        if not self.has_room(name, len(tokens)):
            return
        log = self.logs[name] + tokens
        truth = self.replay(log, count)
        guess = [*truth[: int(len(truth) * predicts)], 7, *truth[int(len(truth) * predicts) :]]
        self.desk.run(
            self.generating(
                name, turn, tokens, max_tokens=count, tier=tier, prediction=guess, use_drafts=drafts
            )
        )
        self.typed.pop(name, None)
        self.check(log, turn, count)
        assert len(self.desk.tokens(turn)) == len(truth)
        self.logs[name] = log + self.desk.tokens(turn)

    @precondition(lambda self: len(self.logs) > 1)
    @rule(data=st.data(), count=st.integers(1, 12))
    def generate_together(self, data: st.DataObject, count: int) -> None:
        """Two turns at once, in any tiers: neither changes what the other says."""
        names = data.draw(st.lists(st.sampled_from(sorted(self.logs)), min_size=2, max_size=4, unique=True))
        names = [name for name in names if self.has_room(name, 1)]
        turns = {name: self.fresh() for name in names}
        for name, turn in turns.items():
            self.desk.give(self.generating(name, turn, [5], max_tokens=count, tier=data.draw(TIERS)))
        self.desk.run()
        for name, turn in turns.items():
            self.typed.pop(name, None)
            self.logs[name].append(5)
            self.check(self.logs[name], turn, count)
            self.logs[name] += self.desk.tokens(turn)

    @precondition(lambda self: self.logs)
    @rule(data=st.data(), tokens=TOKENS, steps=st.integers(0, 5), steer=TOKENS)
    def interrupt_and_steer(
        self, data: st.DataObject, tokens: list[int], steps: int, steer: list[int]
    ) -> None:
        """An interrupt keeps the partial; what comes after it prefills nothing twice."""
        name, turn, after = self.pick(data), self.fresh(), self.fresh()
        if not self.has_room(name, len(tokens) + len(steer) + 20):
            return
        self.desk.give(self.generating(name, turn, tokens, max_tokens=8))
        for _ in range(steps):
            if not self.desk.engine.is_idle:
                self.desk.engine.step()
        self.desk.run(Interrupt(turn))
        self.typed.pop(name, None)
        log = self.logs[name] + tokens
        said = self.desk.tokens(turn)
        self.check(log, turn, 8)
        assert self.desk.finished(turn)
        log += said + steer
        self.desk.run(self.generating(name, after, steer, max_tokens=3))
        self.check(log, after, 3)
        if said:
            back = 8 if self.runner.info.memory == "checkpoints" else 0  # to before a draft that was wrong
            assert self.desk.finished(after).waterfall.new_tokens <= len(steer) + 1 + back
        self.logs[name] = log + self.desk.tokens(after)

    @precondition(lambda self: self.logs)
    @rule(data=st.data(), tokens=TOKENS)
    def append(self, data: st.DataObject, tokens: list[int]) -> None:
        name = self.pick(data)
        if self.has_room(name, len(tokens)):
            self.desk.run(Append(name, self.fresh(), tokens))
            self.typed.pop(name, None)
            self.logs[name] += tokens

    @precondition(lambda self: self.logs)
    @rule(data=st.data(), tokens=TOKENS, steps=st.integers(0, 3))
    def type(self, data: st.DataObject, tokens: list[int], steps: int) -> None:
        """A provisional tail is prefilled, perhaps only in part, and is never part of the log."""
        name = self.pick(data)
        if self.has_room(name, len(tokens)):
            turn = self.fresh()
            self.desk.give(Append(name, turn, tokens, is_provisional=True))
            for _ in range(steps):
                if not self.desk.engine.is_idle:
                    self.desk.engine.step()
            self.desk.run(Interrupt(turn))
            self.typed[name] = tokens

    @precondition(lambda self: self.logs)
    @rule(data=st.data())
    def score(self, data: st.DataObject) -> None:
        name, turn = self.pick(data), self.fresh()
        best = self.replay(self.logs[name], 2)
        if self.has_room(name, 2):
            candidates = [[(best[0] + 1) % 60, 1], best]
            self.desk.run(Score(name, turn, [], candidates))
            self.typed.pop(name, None)
            self.check_scores(self.logs[name], candidates, self.desk.finished(turn).scores)

    @precondition(lambda self: self.logs)
    @rule(data=st.data(), share=st.floats(0, 1))
    def rewind(self, data: st.DataObject, share: float) -> None:
        name = self.pick(data)
        length = max(1, int(len(self.logs[name]) * share))
        self.desk.run(Rewind(name, length))
        del self.logs[name][length:]
        self.typed.pop(name, None)

    @precondition(lambda self: self.logs)
    @rule(data=st.data(), share=st.floats(0, 1))
    def fork(self, data: st.DataObject, share: float) -> None:
        source, name = self.pick(data), self.fresh()
        length = max(1, int(len(self.logs[source]) * share))
        self.desk.run(Fork(name, source, length))
        self.logs[name] = self.logs[source][:length]
        self.tenants[name] = self.tenants[source]

    @precondition(lambda self: self.logs)
    @rule(data=st.data())
    def park(self, data: st.DataObject) -> None:
        self.desk.run(Park(self.pick(data)))

    @precondition(lambda self: self.logs)
    @rule(data=st.data(), share=st.floats(0, 1), tokens=TOKENS)
    def come_back(self, data: st.DataObject, share: float, tokens: list[int]) -> None:
        """A parked session goes on at an earlier place."""
        name = self.pick(data)
        length = max(1, int(len(self.logs[name]) * share))
        self.desk.run(Park(name), Rewind(name, length))
        del self.logs[name][length:]
        self.typed.pop(name, None)
        self.say(name, tokens)

    @precondition(lambda self: self.logs)
    @rule(data=st.data(), share=st.floats(0, 1), tokens=TOKENS, is_parked=st.booleans())
    def begin_alike(self, data: st.DataObject, share: float, tokens: list[int], *, is_parked: bool) -> None:
        """Another conversation begins as one does that is in the KV, or parked."""
        source, name = self.pick(data), self.fresh()
        if is_parked:
            self.desk.run(Park(source))
        beginning = self.logs[source][: max(1, int(len(self.logs[source]) * share))]
        self.desk.run(Open(name, list(beginning), self.tenants[source]))
        self.logs[name], self.tenants[name] = beginning, self.tenants[source]
        self.say(name, tokens)

    def say(self, name: str, tokens: list[int]) -> None:
        """Let a session go on by a few tokens."""
        turn = self.fresh()
        if self.has_room(name, len(tokens)):
            self.desk.run(self.generating(name, turn, tokens, max_tokens=4))
            self.typed.pop(name, None)
            log = self.logs[name] + tokens
            self.check(log, turn, 4)
            self.logs[name] = log + self.desk.tokens(turn)

    @rule()
    def restart(self) -> None:
        """The next engine has what this one has parked."""
        self.desk.engine.close()
        self.start()
        self.typed.clear()
        self.desk.run(*(Open(name, list(log), self.tenants[name]) for name, log in self.logs.items()))

    @precondition(lambda self: self.logs)
    @rule(data=st.data())
    def close(self, data: st.DataObject) -> None:
        name = self.pick(data)
        self.desk.run(Close(name))
        del self.logs[name]
        self.typed.pop(name, None)
