"""The queue: who may begin now, in which order, and what those who wait are told."""

import asyncio
from collections.abc import Callable
from itertools import combinations
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from vivace.engine.wire.frames import Tier
from vivace.protocol.shapes.outcomes import Queued
from vivace.server.turns.limits import RateRefused
from vivace.server.turns.queue import FIRST_GUESS_S, Entry, Line, Ticket, TurnQueue

TIERS: st.SearchStrategy[Tier] = st.sampled_from(["realtime", "background"])
MOST_TOKENS = 5


def account_of(entry: Entry) -> tuple[Tier, str]:
    return entry.tier, entry.key


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Desk:
    """A line, and the names of those admitted in the order in which that happened."""

    def __init__(self, max_running: int, max_waiting: int) -> None:
        self.clock = Clock()
        self.line = Line(max_running, max_waiting, self.clock)
        self.entries: dict[str, Entry] = {}
        self.admitted: list[str] = []
        self.told: dict[str, tuple[str, int]] = {}  # state and place, as of the last word about it

    def enter(self, name: str, key: str = "ann", tier: Tier = "realtime", tokens: float = 1) -> Entry:
        entry = self.entries[name] = self.line.enter(tier, key, tokens, self._noticing(name))
        self._notice(name)
        return entry

    def leave(self, name: str, tokens: float | None = None) -> None:
        self.line.leave(self.entries[name], tokens)

    def end_one(self) -> None:
        """End the turn that has run for longest."""
        self.leave(next(name for name in self.admitted if self.entries[name].state == "running"))

    @property
    def waiting(self) -> list[str]:
        """In the order in which they are told to stand."""
        names = [name for name, entry in self.entries.items() if entry.state == "waiting"]
        return sorted(names, key=lambda name: self.entries[name].position)

    def _noticing(self, name: str) -> Callable[[], None]:
        return lambda: self._notice(name) if name in self.entries else None

    def _notice(self, name: str) -> None:
        entry = self.entries[name]
        self.told[name] = (entry.state, entry.position)
        if entry.state == "running":
            self.admitted.append(name)


def busy_desk(max_running: int = 1, max_waiting: int = 100) -> Desk:
    """All slots are taken, by a key that asks for nothing else."""
    desk = Desk(max_running, max_waiting)
    for number in range(max_running):
        desk.enter(f"first{number}", "someone")
    desk.admitted.clear()
    return desk


def ended_in_order(desk: Desk) -> list[str]:
    """Let turns end until nobody waits: who was admitted, in order."""
    for entry in desk.entries.values():
        if entry.state == "running":
            desk.line.leave(entry)
            break
    while desk.waiting:
        desk.end_one()
    return desk.admitted


def test_realtime_goes_first() -> None:
    """A realtime turn is admitted before background turns that came earlier."""
    desk = busy_desk()
    desk.enter("slow", tier="background")
    desk.enter("quick")
    assert desk.waiting == ["quick", "slow"]
    assert ended_in_order(desk) == ["quick", "slow"]


def test_background_gets_one_admission_in_twenty() -> None:
    """While both wait, every twentieth admission is background's."""
    desk = busy_desk(max_waiting=200)
    for number in range(60):
        desk.enter(f"r{number}")
        desk.enter(f"b{number}", tier="background")
    admitted = [name[0] for name in ended_in_order(desk)]
    assert admitted[:60] == (["r"] * 19 + ["b"]) * 3


def test_keys_take_turns() -> None:
    """A key with one turn does not wait behind all those of a key that came earlier."""
    desk = busy_desk()
    for number in range(5):
        desk.enter(f"a{number}", "ann")
    desk.enter("b0", "bob")
    assert ended_in_order(desk) == ["a0", "b0", "a1", "a2", "a3", "a4"]


def test_large_turns_count_for_more() -> None:
    """A key whose turns use four times the tokens gets a fourth of the admissions."""
    desk = busy_desk()
    for number in range(8):
        desk.enter(f"a{number}", "ann", tokens=400)
        desk.enter(f"b{number}", "bob", tokens=100)
    assert "".join(name[0] for name in ended_in_order(desk)[:10]) == "abbbbabbbb"


def test_what_was_really_used_counts() -> None:
    """A turn that used less than was thought gives its key the difference back; one that used more pays."""
    desk = busy_desk()
    desk.enter("a0", "ann", tokens=10)
    desk.enter("b0", "bob", tokens=10)
    for number in (1, 2):
        desk.enter(f"a{number}", "ann", tokens=10)
        desk.enter(f"b{number}", "bob", tokens=10)
    desk.leave("first0")
    desk.leave("a0", tokens=100)
    desk.leave("b0", tokens=1)
    assert ended_in_order(desk) == ["a0", "b0", "b1", "b2", "a1", "a2"]


def test_a_new_key_has_no_old_credit() -> None:
    """Whoever comes late starts level with the others, and is not alone until it has had as much as they."""
    desk = busy_desk()
    for number in range(20):
        desk.enter(f"a{number}", "ann")
    desk.leave("first0")
    for _ in range(9):
        desk.end_one()
    for number in range(5):
        desk.enter(f"b{number}", "bob")
    assert "".join(name[0] for name in desk.waiting) == "ababababab" + "aaaaa"


def test_turns_that_nobody_waited_for_are_no_debt() -> None:
    """A key that was alone for long is not behind all turns of one that comes later."""
    desk = Desk(2, 100)
    desk.enter("long", "someone")
    for number in range(50):
        desk.enter(f"alone{number}")
        desk.leave(f"alone{number}")
    desk.enter("last")
    for number in range(4):
        desk.enter(f"b{number}", "bob")
        desk.enter(f"a{number}", "ann")
    assert "".join(name[0] for name in desk.waiting) == "babababa"


def test_a_key_cannot_shed_its_past_by_leaving() -> None:
    """A key that lets its line run empty for a moment comes back with what it has had."""
    desk = busy_desk()
    desk.enter("a0", "ann", tokens=100)
    desk.enter("b0", "bob")
    desk.leave("first0")
    desk.enter("a1", "ann", tokens=100)
    for number in range(1, 4):
        desk.enter(f"b{number}", "bob")
    assert desk.waiting == ["b0", "b1", "b2", "b3", "a1"]


def test_leaving_the_line_moves_the_others_up() -> None:
    """Who gives up frees the place at once, and is never admitted."""
    desk = busy_desk()
    for name in "abc":
        desk.enter(name)
    desk.leave("a")
    assert [desk.entries[name].position for name in "abc"] == [0, 1, 2]
    assert ended_in_order(desk) == ["b", "c"]


def test_leaving_twice_frees_one_slot() -> None:
    """A turn that ended and was cancelled as well does not let two others in."""
    desk = busy_desk(2)
    for name in "abc":
        desk.enter(name)
    desk.leave("first0")
    desk.leave("first0")
    assert desk.admitted == ["a"]
    assert desk.line.running("realtime") == 2


def test_a_full_line_refuses() -> None:
    """One too many gets a 429 that says when to come again, and changes nothing."""
    desk = busy_desk(max_running=2, max_waiting=3)
    for name in "abc":
        desk.enter(name)
    with pytest.raises(RateRefused) as caught:
        desk.enter("d")
    assert caught.value.status == 429
    assert caught.value.retry_after_s == FIRST_GUESS_S / 2
    assert caught.value.headers == {"retry-after": "3", "retry-after-ms": "2500"}
    assert "try again in 2.5s" in caught.value.message
    desk.leave("b")
    desk.enter("e")
    assert desk.waiting == ["a", "c", "e"]


def test_without_places_free_slots_are_still_given() -> None:
    """A line of length zero admits at once or refuses."""
    desk = Desk(2, 0)
    desk.enter("a")
    desk.enter("b", tier="background")
    with pytest.raises(RateRefused):
        desk.enter("c")
    assert desk.admitted == ["a", "b"]


def test_background_turns_leave_slots_for_realtime() -> None:
    """However many long background turns there are, a realtime turn begins at once."""
    desk = Desk(16, 100)
    for number in range(30):
        desk.enter(f"b{number}", tier="background")
    assert desk.line.running("background") == 14
    desk.enter("quick")
    assert desk.entries["quick"].state == "running"
    desk.leave("b0")
    assert desk.admitted[-1] == "b14"


@pytest.mark.parametrize("tier", ["realtime", "background"])
def test_one_key_cannot_fill_the_line_for_others(tier: Tier) -> None:
    """The last places are for realtime turns of keys that have none in the line."""
    desk = busy_desk(max_waiting=16)
    for number in range(14):
        desk.enter(f"a{number}", "ann", tier)
    with pytest.raises(RateRefused):
        desk.enter("a", "ann", tier)
    desk.enter("b", "bob")
    desk.enter("c", "cy")
    with pytest.raises(RateRefused):
        desk.enter("d", "dan")


def test_estimates_follow_recent_durations() -> None:
    """The estimate is the place times the mean duration of late, shared by the slots."""
    desk = Desk(2, 10)
    assert desk.line.estimate_s(4) == 2 * FIRST_GUESS_S
    for name in "ab":
        desk.enter(name)
        desk.clock.now += 10
        desk.leave(name)
    assert desk.line.estimate_s(4) == pytest.approx(20)
    for number in range(30):
        desk.enter(f"n{number}")
        desk.clock.now += 1
        desk.leave(f"n{number}")
    assert desk.line.estimate_s(4) == pytest.approx(2, rel=0.02)


def test_those_who_gave_up_waiting_do_not_count_in_the_estimate() -> None:
    """Only turns that ran say how long a turn takes; nor does one that was refused when it was to begin."""
    desk = busy_desk()
    desk.enter("a")
    desk.leave("a")
    desk.leave("first0", tokens=0)
    assert desk.line.estimate_s(1) == FIRST_GUESS_S


def test_old_keys_are_forgotten() -> None:
    """A line that is never empty does not keep an account of every key that ever came by."""
    desk = Desk(2, 10)
    desk.enter("long", "long")
    for number in range(5000):
        desk.enter(f"n{number}", f"key {number}")
        desk.leave(f"n{number}")
    assert sum(map(len, desk.line._served.values())) < 200


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


QueueMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestQueue = QueueMachine.TestCase


# ---- the shell ------------------------------------------------------------------------------------------


async def follow(ticket: Ticket, told: list[int]) -> bool:
    async for place in ticket.wait():
        told.append(place.position)
    return ticket.is_running


async def until(is_so: Callable[[], object]) -> None:
    for _ in range(1000):
        if is_so():
            return
        await asyncio.sleep(0)
    raise AssertionError("it does not come")


async def test_a_free_slot_is_had_without_waiting() -> None:
    """Nothing is told, and the turn may run."""
    told: list[int] = []
    assert await follow(TurnQueue().enter("realtime", "ann"), told)
    assert told == []


async def test_those_who_wait_are_told_their_place() -> None:
    """The place at once, then every other place, then it is their turn."""
    queue, told = TurnQueue(1, 10), list[int]()
    first, second, third = (queue.enter("realtime", "ann") for _ in range(3))
    waiting = asyncio.create_task(follow(third, told))
    await until(lambda: told == [2])
    first.leave()
    await until(lambda: told == [2, 1])
    second.leave()
    assert await waiting
    assert (queue.running("realtime"), queue.waiting("realtime")) == (1, 0)


async def test_the_estimate_is_told_with_the_place() -> None:
    """A client hears how long it will take."""
    queue = TurnQueue(2, 10)
    tickets = [queue.enter("realtime", "ann") for _ in range(5)]
    assert await anext(tickets[4].wait()) == tickets[4].place == Queued(3, 3 * FIRST_GUESS_S / 2)
    assert tickets[0].place is None


async def test_a_slow_listener_hears_the_latest_place() -> None:
    """Places that were passed meanwhile are not told one by one."""
    queue = TurnQueue(1, 10)
    tickets = [queue.enter("realtime", "ann") for _ in range(6)]
    places = tickets[5].wait()
    assert (await anext(places)).position == 5
    for ticket in tickets[:3]:
        ticket.leave()
    assert (await anext(places)).position == 2


async def test_a_cancelled_task_frees_its_place() -> None:
    """A client that goes away while it waits holds nothing, and the next one moves up."""
    queue, told = TurnQueue(1, 10), list[int]()
    queue.enter("realtime", "ann")

    async def wait_for_ever() -> None:
        with queue.enter("realtime", "ann") as ticket:
            await follow(ticket, [])

    gone = asyncio.create_task(wait_for_ever())
    await until(lambda: queue.waiting("realtime"))
    behind = asyncio.create_task(follow(queue.enter("realtime", "ann"), told))
    await until(lambda: told == [2])
    gone.cancel()
    await until(lambda: told == [2, 1])
    behind.cancel()


async def test_a_task_cancelled_as_it_is_admitted_frees_its_slot() -> None:
    """The slot that a turn was given in the moment in which its client went away goes to the next one."""
    queue = TurnQueue(1, 10)
    first = queue.enter("realtime", "ann")

    async def run() -> None:
        with queue.enter("realtime", "ann") as ticket:
            await follow(ticket, [])

    gone = asyncio.create_task(run())
    await until(lambda: queue.waiting("realtime"))
    next_one = queue.enter("realtime", "ann")
    first.leave()
    gone.cancel()
    assert await follow(next_one, [])


async def test_a_ticket_that_left_stops_waiting() -> None:
    """Leaving from elsewhere ends the wait, and the turn may not run."""
    queue, told = TurnQueue(1, 10), list[int]()
    queue.enter("realtime", "ann")
    ticket = queue.enter("realtime", "ann")
    waiting = asyncio.create_task(follow(ticket, told))
    await until(lambda: told)
    ticket.leave()
    assert not await waiting


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_a_storm_leaves_nothing_behind(seed: int) -> None:
    """Turns that end, fail or are cancelled at any moment: never too many at once, and in the end none."""
    queue, most = asyncio.run(storm(Random(seed)))
    assert most <= 4
    for tier in ("realtime", "background"):
        assert queue.running(tier) == queue.waiting(tier) == 0


async def storm(random: Random) -> tuple[TurnQueue, int]:
    queue, most = TurnQueue(4, 50), 0

    async def turn(tier: Tier, key: str, ticks: int) -> None:
        nonlocal most
        with queue.enter(tier, key) as ticket:
            await follow(ticket, [])
            most = max(most, queue.running("realtime") + queue.running("background"))
            for _ in range(ticks):
                await asyncio.sleep(0)
            if ticks == 3:
                raise ValueError

    tasks = list[asyncio.Task[None]]()
    for _ in range(300):
        tier: Tier = random.choice(["realtime", "background"])
        tasks.append(asyncio.create_task(turn(tier, random.choice("abc"), random.randrange(5))))
        if random.random() < 0.3:
            random.choice(tasks).cancel()
        if random.random() < 0.5:
            await asyncio.sleep(0)
    await asyncio.gather(*tasks, return_exceptions=True)
    return queue, most
