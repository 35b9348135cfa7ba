"""Parked sessions come back, and go on as if nothing had been."""

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.engine.desk import Desk
from tests.engine.hashing import HashRunner
from tests.engine.kv.parking_desk import PROMPT, RULES, Place, alone, say, tokens_in
from tests.engine.loop.test_scheduler import endless
from vivace.engine.kv.kv_file import file_size
from vivace.engine.kv.parked_cache import ParkedCache
from vivace.engine.runners.base import HeldKV, KVState, Logits, ShouldStop, Span
from vivace.engine.wire.frames import Append, Fork, Generate, Open, Park, Stats, StatsReply


def test_a_parked_session_goes_on_as_if_nothing_had_been(place: Place) -> None:
    """Park frees the cells; the next turn restores them from disk and prefills only what is new."""
    desk = place.start()
    desk.give(Open("s"))
    said, _ = say(desk, "s", PROMPT)
    desk.run(Park("s"))
    assert isinstance(desk.runner, HashRunner)
    assert desk.runner.used_cells() == 0
    more, waterfall = say(desk, "s", [5, 6])
    assert more == alone([*PROMPT, *said, 5, 6])
    assert (waterfall.restored_tokens, waterfall.cached_tokens, waterfall.new_tokens) == (103, 103, 3)
    assert waterfall.restore_ms > 0


def test_restored_tokens_are_never_more_than_cached_ones(place: Place) -> None:
    """A session that was parked whole feeds its last token again: it does not count as restored."""
    desk = place.start()
    desk.run(Open("s"), Append("s", "a", list(PROMPT)))
    desk.run(Park("s"))
    _, waterfall = say(desk, "s", [])
    assert (waterfall.cached_tokens, waterfall.restored_tokens, waterfall.new_tokens) == (99, 99, 1)


def test_the_next_engine_restores_what_was_parked(place: Place) -> None:
    """After a restart the same log is not prefilled again, whatever the session is called."""
    desk = place.start()
    desk.give(Open("s", [], "ann"))
    said, _ = say(desk, "s", PROMPT)
    desk.run(Park("s"))
    desk = place.restart()
    desk.give(Open("other name", [], "ann"))
    more, waterfall = say(desk, "other name", [*PROMPT, *said, 7])
    assert more == alone([*PROMPT, *said, 7])
    assert waterfall.restored_tokens == 103


def test_another_tenant_never_restores_it(place: Place) -> None:
    """The same tokens of somebody else are prefilled, before and after a restart."""
    desk = place.start()
    desk.give(Open("s", [], "ann"), Open("mine", [], "bob"))
    say(desk, "s", PROMPT)
    desk.run(Park("s"))
    assert say(desk, "mine", PROMPT)[1].cached_tokens == 0
    desk = place.restart()
    desk.give(Open("mine", [], "bob"), Open("nobody's"))
    assert say(desk, "mine", PROMPT)[1].cached_tokens == 0
    assert say(desk, "nobody's", PROMPT)[1].cached_tokens == 0


def test_a_full_kv_parks_the_session_that_was_idle_longest(place: Place) -> None:
    """What makes room goes to disk and comes back from there."""
    desk = place.start(context_tokens=250)
    for name in "abc":
        desk.give(Open(name))
        say(desk, name, [ord(name) - 90] * 100)
    assert len(place.files()) == 1
    _, waterfall = say(desk, "a", [9])
    assert waterfall.restored_tokens == 103


def test_a_running_turn_that_lost_its_room_comes_back_from_disk(place: Place) -> None:
    """A background turn that made way for a realtime one reads its KV back, and says the same as alone."""
    desk = place.start(context_tokens=250)
    desk.give(Open("slow"), Open("quick"))
    desk.give(Generate("slow", "b", list(PROMPT), max_tokens=20, tier="background", use_drafts=False))
    for _ in range(8):
        desk.engine.step()
    desk.run(Generate("quick", "r", [1] * 200, max_tokens=4, use_drafts=False))
    assert desk.tokens("b") == alone(PROMPT, 20)
    assert desk.tokens("r") == alone([1] * 200)
    assert isinstance(desk.runner, HashRunner)
    assert sum(desk.runner.passes) < len(PROMPT) + 20 + 200 + 4 + 64


@pytest.mark.parametrize("harm", ["deleted", "torn", "garbage", "foreign"])
def test_a_harmed_file_costs_a_prefill_and_nothing_else(place: Place, harm: str) -> None:
    """A turn whose file is gone or broken says the same, and other sessions keep their KV."""
    desk = place.start()
    desk.give(Open("s"), Open("other"))
    said, _ = say(desk, "s", PROMPT)
    held, _ = say(desk, "other", [3] * 50)
    desk.run(Park("s"))
    (file,) = place.files()
    whole = file.read_bytes()
    match harm:
        case "deleted":
            file.unlink()
        case "torn":
            file.write_bytes(whole[: len(whole) // 2])
        case "garbage":
            file.write_bytes(os.urandom(len(whole)))
        case "foreign":  # whole, but no state of this runner
            head = file_size(103, 0)
            file.write_bytes(whole[:head] + b"\xc1" * (len(whole) - head))
    more, waterfall = say(desk, "s", [5])
    assert more == alone([*PROMPT, *said, 5])
    assert waterfall.restored_tokens == 0
    assert say(desk, "other", [1])[1].cached_tokens == 50 + len(held) - 1


def test_text_still_being_typed_is_not_parked(place: Place) -> None:
    """A provisional tail leaves nothing on disk."""
    desk = place.start()
    desk.run(Open("s", list(PROMPT)), Append("s", "p", [50] * 60, is_provisional=True))
    desk.run(Park("s"))
    (file,) = place.files()
    assert len(tokens_in(file)) == len(PROMPT)


def test_a_session_that_is_only_typed_so_far_leaves_no_file(place: Place) -> None:
    """Nothing firm: nothing to keep."""
    desk = place.start()
    desk.run(Open("s"), Append("s", "p", [50] * 60, is_provisional=True))
    desk.run(Park("s"))
    assert place.files() == []


def test_a_parked_session_can_be_forked_rewound_and_closed(place: Place) -> None:
    """Everything that can be done with a session can be done with a parked one."""
    desk = place.start()
    desk.give(Open("s"))
    say(desk, "s", PROMPT)
    desk.run(Park("s"))
    desk.run(Fork("f", "s", 80))
    more, waterfall = say(desk, "f", [9])
    assert more == alone([*PROMPT[:80], 9])
    assert waterfall.restored_tokens == 80
    desk.run(Stats())
    reply = desk.sent[-1]
    assert isinstance(reply, StatsReply)
    assert reply.parked_bytes == sum(file.stat().st_size for file in place.files())


class SlowCopies(HashRunner):
    """Its loads are on their way for three looks, or until somebody waits for them."""

    def __init__(self) -> None:
        super().__init__(2048, 64, endless)
        self.host_bytes_used = 12
        self.looks: dict[int, int] = {}
        self.waited: list[int] = []

    def load(self, seq: int, state: KVState) -> None:
        super().load(seq, state)
        self.looks[seq] = 3

    def forward(self, spans: Sequence[Span], should_stop: ShouldStop | None = None) -> Logits:
        assert not any(self.looks.get(span.seq) for span in spans), "a pass over KV that is on its way"
        return super().forward(spans, should_stop)

    def allocate(self, size_bytes: int) -> HeldKV:
        raise ValueError(size_bytes)

    def is_loading(self, seq: int) -> bool:
        self.looks[seq] = max(0, self.looks.get(seq, 0) - 1)
        return self.looks[seq] > 0

    def finish_loading(self, seq: int) -> None:
        self.waited.append(seq)
        self.looks[seq] = 0


def test_others_go_on_while_a_session_comes_back(tmp_path: Path) -> None:
    """A turn whose KV is on its way from host memory delays nobody; alone it waits, and says the same."""
    runner = SlowCopies()
    parked_cache = ParkedCache(tmp_path, kv_format="hash", limit_bytes=1_000_000)
    desk = Desk(runner, parked_cache)
    desk.run(Open("a"), Generate("a", "a1", PROMPT, max_tokens=3))
    desk.run(Park("a"), Open("b"), Generate("b", "b1", RULES, max_tokens=3))
    desk.give(Generate("b", "b2", [1], max_tokens=20), Generate("a", "a2", [2], max_tokens=3))
    desk.engine.step()
    desk.engine.step()
    assert desk.tokens("b2")
    assert not desk.tokens("a2")
    desk.run()
    assert runner.waited == []
    alone = [2, *desk.tokens("a2")]
    assert desk.finished("a2").waterfall.restored_tokens == len(PROMPT) + 2
    desk.run(Park("a"), Generate("a", "a3", [2], max_tokens=3))
    assert len(runner.waited) == 1
    log = [*PROMPT, *desk.tokens("a1"), *alone, 2]
    assert desk.tokens("a3")[0] == int(endless(log).argmax())
    desk.run(Stats())
    (reply,) = [frame for frame in desk.sent if isinstance(frame, StatsReply)]
    assert reply.parked_memory_bytes == 12
    parked_cache.close()
