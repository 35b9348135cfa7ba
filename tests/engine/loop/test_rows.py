"""Turns that share a pass which samples a token of each: they say what each would say alone."""

import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from tests.engine.desk import Desk, RunnerFault
from tests.engine.fixtures import PAYING
from tests.engine.hashing import HashRunner, next_token
from tests.engine.loop.test_decoding import DecodingRunner
from vivace.engine.runners.base import DecodeRow, KVFull, RowResult, Span, WhileRunning
from vivace.engine.speculation.costs import StepCosts
from vivace.engine.wire.frames import Close, Finished, Generate, Grammar, Interrupt, Open, Sampling, Tokens


class RowsRunner(DecodingRunner):
    """Decodes rows of several sequences. Who joins while a pass is in flight waits for the next one."""

    def __init__(self, max_rows: int = 8) -> None:
        super().__init__()
        self.max_rows, self.max_logits_rows = max_rows, max(1, max_rows // 2)
        self.logits_given = 0
        self.discarded = 0  # rows that were begun for nothing
        self.shared: list[list[int]] = []  # the sequences of each
        self.drafted: list[list[int]] = []  # the tokens that each of them had drafted
        self.ahead: list[int] = []  # how many steps each might begin
        self._in_flight: dict[int, tuple[int, int]] = {}  # position and input of each sequence

    def decode_rows(
        self, rows: Sequence[DecodeRow], steps_ahead: int, while_running: WhileRunning
    ) -> list[RowResult]:
        assert len({row.seq for row in rows}) == len(rows)
        assert sum(1 + len(row.draft) for row in rows) <= self.max_rows
        assert sum(row.sampling is None for row in rows) <= self.max_logits_rows
        self.shared.append([row.seq for row in rows])
        self.drafted.append([len(row.draft) for row in rows])
        self.ahead.append(steps_ahead)
        while_running()
        if any(row.draft for row in rows):
            assert not steps_ahead
            assert all(row.sampling for row in rows if row.draft)
            self.discarded += sum(self._in_flight.get(row.seq) == (row.start, row.token) for row in rows)
            self._in_flight.clear()
        known = [row for row in rows if self._in_flight.get(row.seq) == (row.start, row.token)] or rows
        found: list[RowResult] = []
        for row in rows:
            if row not in known:
                found.append(None)
                self._in_flight[row.seq] = (row.start, row.token) if steps_ahead else (-1, 0)
                continue
            if row.draft:
                assert row.sampling
                span = Span(row.seq, row.start, [row.token, *row.draft])
                found.append(self.decode(span, row.sampling, 0, lambda: None))
                continue
            logits = self.forward([Span(row.seq, row.start, [row.token], want=1)])
            if row.sampling is None:
                found.append(logits)
                self._in_flight[row.seq] = (-1, 0)
                self.logits_given += 1
                continue
            said = next_token([cell.token for cell in self.kv[row.seq]])
            found.append([said])
            self._in_flight[row.seq] = (row.start + 1, said) if steps_ahead else (-1, 0)
        return found

    def known_row_costs(self) -> dict[int, float]:
        return {size: ms for size, ms in PAYING.items() if size > 1}


# What only the host can do: these turns get logits.
SAMPLINGS = [
    Sampling(temperature=0.7, top_p=0.5, seed=3),
    Sampling(temperature=1.5, top_k=5, seed=4),
    Sampling(frequency_penalty=0.5, repetition_penalty=1.1),
    Sampling(logit_bias={7: 20.0}, top_logprobs=2),
]


def alone(work: Generate) -> list[int]:
    desk = Desk(HashRunner(4096, 64), costs=PAYING)
    desk.run(Open(work.session), work)
    return desk.tokens(work.turn)


def work_for(name: str, chance: random.Random, tier: str = "realtime") -> Generate:
    log = [chance.randrange(60) for _ in range(chance.randint(1, 80))]
    sampling = chance.choice(SAMPLINGS) if chance.random() < 0.5 else Sampling()
    work = Generate(name, f"turn {name}", log, max_tokens=chance.randint(1, 60), sampling=sampling)
    if chance.random() < 0.2:
        work.grammar = Grammar("regex", "[A-Z0-9]*")
    work.tier = tier  # type: ignore[assignment]
    return work


def edit_for(name: str, chance: random.Random, tier: str = "realtime") -> Generate:
    """A turn with a prediction that is right, or goes wrong in places; it may stop anywhere in it."""
    work = work_for(name, chance, tier)
    if chance.random() < 0.8:
        work.sampling, work.grammar = Sampling(), None
    text = alone(work)
    if text and chance.random() < 0.5:
        work.stop_tokens = [chance.choice(text)] if chance.random() < 0.5 else []
        work.stop = [chr(32 + chance.choice(text))] if chance.random() < 0.5 else []
    work.prediction = list(text)
    for _ in range(chance.randrange(3)):
        at = chance.randrange(len(text) + 1)
        work.prediction[at : at + chance.randrange(3)] = [chance.randrange(60)] * chance.randrange(3)
    return work


def lasting(name: str, tokens: int, **options: Any) -> Generate:
    """A turn that does not end before it has said so many tokens."""
    for first in range(60):
        work = Generate(name, name, [first, ord(name) - 90], max_tokens=tokens, use_drafts=False, **options)
        if len(alone(work)) == tokens:
            return work
    raise AssertionError


@pytest.mark.parametrize("make_work", [work_for, edit_for])
@pytest.mark.parametrize("seed", range(12))
def test_turns_that_come_and_go_say_what_they_say_alone(
    seed: int, make_work: Callable[[str, random.Random, str], Generate], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Random arrivals, lengths, predictions and interrupts in both tiers: each text is that alone."""
    monkeypatch.setattr(StepCosts, "observe", lambda *_: None)  # a busy machine would keep them apart
    chance = random.Random(seed)
    runner = RowsRunner(max_rows=chance.choice([2, 3, 8, 32]))
    desk, works, cut = Desk(runner, costs=PAYING), [], set()
    for number in range(14):
        works.append(make_work(str(number), chance, chance.choice(["realtime", "background"])))
        desk.give(Open(str(number)), works[-1])
        for _ in range(chance.randrange(12 if make_work is work_for else 3)):
            desk.engine.step()
        if chance.random() < 0.2:
            desk.give(Interrupt(chance.choice(works).turn))
    desk.run()
    for work in works:
        end, said, wanted = desk.finished(work.turn), desk.tokens(work.turn), alone(work)
        if end.reason == "interrupted":
            cut.add(work.turn)
            wanted = wanted[: len(said)]
        assert said == wanted, work.turn
    assert len(cut) < len(works)
    assert any(len(rows) > 1 for rows in runner.shared)
    if make_work is work_for:
        assert runner.logits_given
    elif runner.max_rows > 3:
        assert any(sum(drafted) for drafted in runner.drafted)


def test_one_turn_never_shares() -> None:
    """With one user everything is as without rows: steps ahead, and no pass over rows."""
    runner = RowsRunner()
    Desk(runner).run(Open("s"), Generate("s", "t", [1, 2, 3], max_tokens=9, use_drafts=False))
    assert not runner.shared
    assert {steps_ahead for _, steps_ahead in runner.asked[:-2]} == {2}


def test_nothing_is_begun_ahead_for_background_turns_among_themselves() -> None:
    """A realtime turn that arrives waits for one pass. Realtime turns among themselves go ahead."""
    runner = RowsRunner()
    desk = Desk(runner)
    desk.give(*(Open(name) for name in "abcd"), *(lasting(name, 9, tier="background") for name in "ab"))
    desk.run()
    assert set(runner.ahead) == {0}
    runner.ahead.clear()
    desk.give(*(lasting(name, 9) for name in "cd"))
    desk.run()
    assert 1 in runner.ahead


def test_a_pass_has_turns_of_one_tier() -> None:
    """Background turns have passes of their own, one in twenty while realtime turns run."""
    runner = RowsRunner()
    desk = Desk(runner, costs=PAYING)
    for name in "abcd":
        tier = "realtime" if name in "ab" else "background"
        desk.give(Open(name), lasting(name, 100, tier=tier))
    for _ in range(60):
        desk.engine.step()
    shared = {tuple(sorted(rows)) for rows in runner.shared if len(rows) > 1}
    assert len(shared) == 2
    assert all(not set(one) & set(other) for one in shared for other in shared if one != other)
    said = {name: len(desk.tokens(name)) for name in "abcd"}
    assert min(said["a"], said["b"]) > 10 * max(said["c"], said["d"]) > 0


def test_the_tokens_of_a_pass_are_sent_together() -> None:
    """One write has a frame of every turn of the pass."""
    runner = RowsRunner()
    desk, writes = Desk(runner), []
    send = desk.engine._sender._send

    def noted(*frames: Tokens) -> None:
        writes.append([frame.turn for frame in frames if isinstance(frame, Tokens)])
        send(*frames)

    desk.engine._sender._send = noted  # type: ignore[assignment]
    for name in "abc":
        desk.give(Open(name), lasting(name, 30))
    desk.run()
    assert ["a", "b", "c"] in [sorted(turns) for turns in writes]


class BrokenRows(RowsRunner):
    """Passes over rows fail."""

    def decode_rows(
        self, rows: Sequence[DecodeRow], steps_ahead: int, while_running: WhileRunning
    ) -> list[RowResult]:
        super().decode_rows(rows, steps_ahead, while_running)
        raise RuntimeError("the device is gone")


def test_turns_of_a_pass_that_failed_go_on_alone() -> None:
    """Nobody knows whose fault it was: each is tried alone, on new KV, and ends as it would have."""
    runner = BrokenRows()
    desk = Desk(runner)
    works = [lasting(name, 20) for name in "abc"]
    desk.run(*(Open(work.session) for work in works), *works)
    assert [desk.tokens(work.turn) for work in works] == [alone(work) for work in works]
    assert len(runner.shared) == 1


class WrongRows(RowsRunner):
    """Finds something wrong with every pass over rows."""

    def decode_rows(
        self, rows: Sequence[DecodeRow], steps_ahead: int, while_running: WhileRunning
    ) -> list[RowResult]:
        del steps_ahead, while_running
        raise AssertionError(f"{len(rows)} rows")


def test_an_assertion_of_a_runner_fails_the_test() -> None:
    """What a test's runner finds wrong is not taken for a fault of one of the turns."""
    desk = Desk(WrongRows())
    works = [lasting(name, 20) for name in "abc"]
    with pytest.raises(RunnerFault, match=r"WrongRows.decode_rows: 3 rows"):
        desk.run(*(Open(work.session) for work in works), *works)


def edit(name: str, tokens: int, **options: Any) -> Generate:
    work = lasting(name, tokens, **options)
    work.use_drafts, work.prediction = True, alone(work)
    return work


def test_a_turn_drafts_in_company() -> None:
    """Its draft has rows of the pass that it shares with turns that have none."""
    runner = RowsRunner(max_rows=16)
    desk = Desk(runner, costs=PAYING)
    works = [edit("e", 60), lasting("a", 60), lasting("b", 60)]
    desk.run(*(Open(work.session) for work in works), *works)
    assert [desk.tokens(work.turn) for work in works] == [alone(work) for work in works]
    assert desk.finished("e").waterfall.steps < 20
    assert (
        max(len(rows) for rows, drafted in zip(runner.shared, runner.drafted, strict=True) if any(drafted))
        == 3
    )


def test_what_is_in_flight_is_used_before_a_draft() -> None:
    """A turn that would draft joins others, whose next pass is begun: that one is not begun for nothing."""
    runner = RowsRunner(max_rows=16)
    runner.info = runner.info._replace(shares_passes=False)  # the new turn's prompt has a pass of its own
    desk = Desk(runner, costs=PAYING)
    works = [lasting("a", 60), lasting("b", 60)]
    desk.give(*(Open(work.session) for work in works), *works)
    for _ in range(9):
        desk.engine.step()
    assert runner.shared
    works.append(edit("e", 60))
    desk.run(Open("e"), works[-1])
    assert [desk.tokens(work.turn) for work in works] == [alone(work) for work in works]
    assert desk.finished("e").waterfall.steps < 20
    assert not runner.discarded


def test_turns_that_edit_at_once_share_every_pass() -> None:
    """All of them draft, alike, and nobody is alone in a pass."""
    runner = RowsRunner(max_rows=16)
    desk = Desk(runner, costs=PAYING)
    works = [edit(name, 60) for name in "abcd"]
    desk.run(*(Open(work.session) for work in works), *works)
    assert [desk.tokens(work.turn) for work in works] == [alone(work) for work in works]
    full = [drafted for drafted in runner.drafted if len(drafted) == 4 and sum(drafted) == 12]
    assert [3, 3, 3, 3] in full
    assert len(full) > 8


def test_a_draft_does_not_cost_others_more_than_two_passes() -> None:
    """Where rows are expensive a turn drafts no more than the others would pay."""
    costs = {1: 1.0, 2: 1.0, 4: 1.2, 8: 2.7, 16: 2.8}
    runner = RowsRunner(max_rows=16)
    desk = Desk(runner, costs=costs)
    works = [edit("e", 60), lasting("a", 60)]
    desk.run(*(Open(work.session) for work in works), *works)
    assert max(sum(drafted) for drafted in runner.drafted) == 2


def test_drafts_that_pay_more_alone_are_verified_alone() -> None:
    """A runner whose rows cost more than passes alone verifies them in turns."""
    runner = RowsRunner(max_rows=16)
    desk = Desk(runner, costs=PAYING, row_costs={2: 30.0, 4: 60.0, 8: 120.0, 16: 240.0})
    works = [edit(name, 60) for name in "ab"]
    desk.run(*(Open(work.session) for work in works), *works)
    assert [desk.tokens(work.turn) for work in works] == [alone(work) for work in works]
    assert not any(sum(drafted) for drafted in runner.drafted)
    assert max(desk.finished(name).waterfall.steps for name in "ab") < 20


def test_drafts_of_the_background_do_not_hold_up_a_realtime_turn() -> None:
    """A pass that a realtime turn waits for costs at most 1.5 steps, drafts and all."""
    runner = RowsRunner(max_rows=16)
    desk = Desk(runner, costs={1: 1.0, 4: 1.2, 8: 2.0, 16: 2.1})
    works = [edit("a", 60, tier="background"), edit("b", 60, tier="background"), lasting("r", 200)]
    desk.give(*(Open(work.session) for work in works), *works)
    while not any(isinstance(frame, Finished) and frame.turn == "r" for frame in desk.sent):
        desk.engine.step()
    shared = [2 + sum(drafted) for drafted in runner.drafted if len(drafted) == 2]
    assert 2 < max(shared) <= 5


class FullRows(RowsRunner):
    """Has no room for any draft."""

    def decode_rows(
        self, rows: Sequence[DecodeRow], steps_ahead: int, while_running: WhileRunning
    ) -> list[RowResult]:
        if any(row.draft for row in rows):
            self.drafted.append([len(row.draft) for row in rows])
            raise KVFull
        return super().decode_rows(rows, steps_ahead, while_running)


def test_where_drafts_have_no_room_the_turns_go_on_without() -> None:
    """The pass is tried again with all its turns, and now and then a draft is."""
    runner = FullRows(max_rows=16)
    desk = Desk(runner, costs=PAYING)
    works = [edit(name, 60) for name in "abc"]
    desk.run(*(Open(work.session) for work in works), *works)
    assert [desk.tokens(work.turn) for work in works] == [alone(work) for work in works]
    assert max(map(len, runner.shared)) == 3
    assert 1 < sum(map(any, runner.drafted)) < 20


def test_a_session_that_is_closed_in_the_middle_leaves_the_others() -> None:
    """The rest of the pass goes on as before."""
    desk = Desk(RowsRunner())
    works = [lasting(name, 40) for name in "abc"]
    desk.give(*(Open(work.session) for work in works), *works)
    for _ in range(12):
        desk.engine.step()
    desk.run(Close("b"))
    assert desk.finished("b").reason == "interrupted"
    assert [desk.tokens(name) for name in "ac"] == [alone(works[0]), alone(works[2])]
