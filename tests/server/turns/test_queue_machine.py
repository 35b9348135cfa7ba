"""The queue under any sequence of entering, leaving and ending: its rules always hold."""

from itertools import combinations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.server.turns.queue_desk import MOST_TOKENS, TIERS, Desk, account_of
from tests.thorough import examples
from vivace.engine.wire.frames import Tier
from vivace.server.turns.limits import RateRefused


class QueueMachine(RuleBasedStateMachine):
    """Turns come and go in any order; what the line says is checked against plain lists."""

    @initialize(max_running=st.integers(1, 17), max_waiting=st.integers(0, 40))
    def begin(self, max_running: int, max_waiting: int) -> None:
        self.max_running, self.max_waiting = max_running, max_waiting
        self.most_background = max_running - max_running // 8
        self.desk = Desk(max_running, max_waiting)
        self.seen = 0  # of the admissions
        self.count = 0
        self.realtime_in_row = 0
        self.served: dict[tuple[Tier, str], float] = {}  # tokens admitted
        self.together: dict[
            tuple[tuple[Tier, str], tuple[Tier, str]], float
        ] = {}  # difference when both came

    def of(self, *states: str) -> list[str]:
        return [name for name, entry in self.desk.entries.items() if entry.state in states]

    def waiting_accounts(self) -> set[tuple[Tier, str]]:
        return {account_of(self.desk.entries[name]) for name in self.of("waiting")}

    @rule(
        tier=TIERS, key=st.sampled_from("abcd"), tokens=st.integers(1, MOST_TOKENS), times=st.integers(1, 6)
    )
    def enter(self, tier: Tier, key: str, tokens: int, times: int) -> None:
        for _ in range(times):
            waiting = len(self.of("waiting"))
            name = f"n{self.count}"
            try:
                self.desk.enter(name, key, tier, tokens)
            except RateRefused:
                assert waiting >= self.max_waiting - self.max_waiting // 8
                assert name not in self.desk.entries
            self.count += 1
            self.check_admissions()

    @precondition(lambda self: self.of("waiting", "running"))
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        self.desk.leave(data.draw(st.sampled_from(self.of("waiting", "running"))))
        self.check_admissions()

    @precondition(lambda self: self.of("running"))
    @rule(times=st.integers(1, 30))
    def end_some(self, times: int) -> None:
        for _ in range(times):
            if self.of("running"):
                self.desk.end_one()
                self.check_admissions()

    @precondition(lambda self: self.of("left"))
    @rule(data=st.data())
    def leave_again(self, data: st.DataObject) -> None:
        before = (self.of("waiting"), self.of("running"))
        self.desk.leave(data.draw(st.sampled_from(self.of("left"))))
        assert (self.of("waiting"), self.of("running")) == before

    @precondition(lambda self: self.max_running < 8)
    @rule()
    def end_all(self) -> None:
        """The told order is the one that comes true."""
        told = self.desk.waiting
        before = len(self.desk.admitted)
        while self.of("running"):
            self.desk.end_one()
            self.check_admissions()
        assert self.desk.admitted[before:] == told

    def check_admissions(self) -> None:
        """Each operation admits one at most, so what waits now is what waited then."""
        new = self.desk.admitted[self.seen :]
        self.seen = len(self.desk.admitted)
        assert len(new) <= 1
        for name in new:
            entry = self.desk.entries[name]
            account = account_of(entry)
            self.served[account] = self.served.get(account, 0) + entry.tokens
            is_waited_for = any(tier == "background" for tier, _ in self.waiting_accounts())
            self.realtime_in_row = (
                self.realtime_in_row + 1 if entry.tier == "realtime" and is_waited_for else 0
            )
            if self.desk.line.running("background") < self.most_background:
                assert self.realtime_in_row <= 19
        self.check_fairness()

    def check_fairness(self) -> None:
        """Two keys that both wait are served alike for as long as they do, up to a turn each."""
        pairs = {
            pair for pair in combinations(sorted(self.waiting_accounts()), 2) if pair[0][0] == pair[1][0]
        }
        for pair in pairs:
            difference = self.served.get(pair[0], 0) - self.served.get(pair[1], 0)
            self.together.setdefault(pair, difference)
            assert abs(difference - self.together[pair]) <= 2 * MOST_TOKENS
        self.together = {pair: since for pair, since in self.together.items() if pair in pairs}

    @invariant()
    def no_more_than_allowed(self) -> None:
        running = [self.desk.entries[name].tier for name in self.of("running")]
        assert len(running) <= self.max_running
        assert running.count("background") <= self.most_background
        for tier in ("realtime", "background"):
            assert self.desk.line.running(tier) == running.count(tier)
        assert len(self.of("waiting")) <= self.max_waiting

    @invariant()
    def nobody_is_lost_or_there_twice(self) -> None:
        assert sorted(entry.number for entry in self.desk.line.order()) == sorted(
            self.desk.entries[name].number for name in self.of("waiting")
        )
        assert len(set(self.desk.admitted)) == len(self.desk.admitted)
        for tier in ("realtime", "background"):
            waiting = [n for n in self.of("waiting") if self.desk.entries[n].tier == tier]
            assert self.desk.line.waiting(tier) == len(waiting)

    @invariant()
    def positions_are_right(self) -> None:
        order = self.desk.line.order()
        assert [entry.position for entry in order] == list(range(1, len(order) + 1))
        assert all(self.desk.entries[name].position == 0 for name in self.of("running", "left"))
        assert self.desk.told == {
            name: (each.state, each.position) for name, each in self.desk.entries.items()
        }
        for account in self.waiting_accounts():
            numbers = [entry.number for entry in order if account_of(entry) == account]
            assert numbers == sorted(numbers)

    @invariant()
    def nobody_waits_beside_a_free_slot(self) -> None:
        if len(self.of("running")) < self.max_running:
            waiting = {tier for tier, _ in self.waiting_accounts()}
            is_full = self.desk.line.running("background") == self.most_background
            assert waiting <= ({"background"} if is_full else set())


QueueMachine.TestCase.settings = settings(max_examples=examples(60), stateful_step_count=40)
TestQueue = QueueMachine.TestCase
