"""Sessions in any order of operations, against a model that replays every log from scratch."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tests.engine.desk import Desk
from tests.engine.hashing import HashRunner
from tests.engine.test_engine import replay
from vivace.engine.frames import Append, Close, Fork, Generate, Interrupt, Open, Rewind, Score

PROMPT = st.lists(st.integers(0, 60), min_size=1, max_size=45)


class SessionsMachine(RuleBasedStateMachine):
    """`logs` is the truth; the engine must say what a replay of the log would say."""

    def __init__(self) -> None:
        super().__init__()
        self.desk = Desk(HashRunner(context_tokens=400, sequences=19))
        self.logs: dict[str, list[int]] = {}
        self.count = 0

    def fresh(self) -> str:
        self.count += 1
        return f"n{self.count}"

    def pick(self, data: st.DataObject) -> str:
        return data.draw(st.sampled_from(sorted(self.logs)))

    @rule(tokens=PROMPT)
    def open(self, tokens: list[int]) -> None:
        name = self.fresh()
        self.desk.run(Open(name, list(tokens)))
        self.logs[name] = list(tokens)

    @precondition(lambda self: self.logs)
    @rule(data=st.data(), tokens=st.lists(st.integers(0, 60), max_size=40), count=st.integers(1, 8))
    def generate(self, data: st.DataObject, tokens: list[int], count: int) -> None:
        name, turn = self.pick(data), self.fresh()
        log = self.logs[name]
        if len(log) + len(tokens) + 9 > 400:
            return
        self.desk.run(Generate(name, turn, tokens, max_tokens=count))
        log += tokens
        assert self.desk.tokens(turn) == replay(log, count)
        log += self.desk.tokens(turn)

    @precondition(lambda self: self.logs)
    @rule(data=st.data(), tokens=PROMPT, steps=st.integers(0, 5))
    def interrupt(self, data: st.DataObject, tokens: list[int], steps: int) -> None:
        name, turn = self.pick(data), self.fresh()
        log = self.logs[name]
        if len(log) + len(tokens) + 9 > 400:
            return
        self.desk.give(Generate(name, turn, tokens, max_tokens=8))
        for _ in range(steps):
            if not self.desk.engine.is_idle:
                self.desk.engine.step()
        self.desk.run(Interrupt(turn))
        log += tokens
        said = self.desk.tokens(turn)
        assert said == replay(log, 8)[: len(said)]
        assert self.desk.finished(turn)
        log += said

    @precondition(lambda self: self.logs)
    @rule(data=st.data(), tokens=PROMPT)
    def append(self, data: st.DataObject, tokens: list[int]) -> None:
        name = self.pick(data)
        if len(self.logs[name]) + len(tokens) + 9 <= 400:
            self.desk.run(Append(name, self.fresh(), tokens))
            self.logs[name] += tokens

    @precondition(lambda self: self.logs)
    @rule(data=st.data())
    def score(self, data: st.DataObject) -> None:
        name, turn = self.pick(data), self.fresh()
        best = replay(self.logs[name], 2)
        self.desk.run(Score(name, turn, [], [[(best[0] + 1) % 60, 1], best]))
        scores = self.desk.finished(turn).scores
        assert scores[1] > scores[0]

    @precondition(lambda self: self.logs)
    @rule(data=st.data(), share=st.floats(0, 1))
    def rewind(self, data: st.DataObject, share: float) -> None:
        name = self.pick(data)
        length = max(1, int(len(self.logs[name]) * share))
        self.desk.run(Rewind(name, length))
        del self.logs[name][length:]

    @precondition(lambda self: self.logs)
    @rule(data=st.data(), share=st.floats(0, 1))
    def fork(self, data: st.DataObject, share: float) -> None:
        source, name = self.pick(data), self.fresh()
        length = max(1, int(len(self.logs[source]) * share))
        self.desk.run(Fork(name, source, length))
        self.logs[name] = self.logs[source][:length]

    @precondition(lambda self: self.logs)
    @rule(data=st.data())
    def close(self, data: st.DataObject) -> None:
        name = self.pick(data)
        self.desk.run(Close(name))
        del self.logs[name]

    @invariant()
    def no_cell_is_lost(self) -> None:
        """An idle engine holds cells for open sessions only: no more than their logs, none in scratch."""
        runner = self.desk.runner
        assert isinstance(runner, HashRunner)
        held = [tokens for tokens in runner.kv.values() if tokens]
        assert len(held) <= min(len(self.logs), 3)
        assert all(any(log[: len(tokens)] == tokens for log in self.logs.values()) for tokens in held)


TestSessions = SessionsMachine.TestCase
TestSessions.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
