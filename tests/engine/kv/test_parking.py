"""Sessions on disk, through the engine: parked and restored; shared beginnings kept for the next start."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.engine.desk import Desk
from tests.engine.hashing import HashRunner
from tests.engine.loop.test_scheduler import endless
from vivace.engine.kv.kv_file import file_size
from vivace.engine.kv.parked_cache import ParkedCache
from vivace.engine.runners.base import HeldKV, KVState, Logits, ShouldStop, Span
from vivace.engine.wire.frames import Append, Fork, Generate, Open, Park, Stats, StatsReply, Waterfall

PROMPT = [i % 60 for i in range(100)]
RULES = [i * 7 % 61 for i in range(200)]  # what an agent's sessions begin with


class Place:
    """One folder, and the engines that use it one after the other."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.parked_caches: list[ParkedCache] = []

    def start(self, context_tokens: int = 2048, limit_bytes: int = 1_000_000) -> Desk:
        parked_cache = ParkedCache(self.folder, kv_format="hash", limit_bytes=limit_bytes)
        self.parked_caches.append(parked_cache)
        return Desk(HashRunner(context_tokens, 64, endless), parked_cache)

    def restart(self, **wishes: int) -> Desk:
        self.parked_caches[-1].close()
        return self.start(**wishes)

    def files(self, kind: str = "session") -> list[Path]:
        self.parked_caches[-1].flush()
        return sorted(self.folder.glob(f"*/*/*.{kind}"))


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    place = Place(tmp_path)
    yield place
    for parked_cache in place.parked_caches:
        parked_cache.close()


def say(desk: Desk, session: str, tokens: list[int], count: int = 4) -> tuple[list[int], Waterfall]:
    turn = f"{session}/{len(desk.sent)}"
    desk.run(Generate(session, turn, list(tokens), max_tokens=count, use_drafts=False))
    return desk.tokens(turn), desk.finished(turn).waterfall


def alone(log: list[int], count: int = 4) -> list[int]:
    """What an engine that never parked anything says after `log`."""
    desk = Desk(HashRunner(2048, 64, endless))
    desk.give(Open("s"))
    return say(desk, "s", log, count)[0]


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


def tokens_in(file: Path) -> list[int]:
    parked_cache = ParkedCache(file.parent.parent.parent, kv_format="hash", limit_bytes=1_000_000)
    (parked,) = [each for each in parked_cache._parked.values() if each.path == file]
    parked_cache.close()
    return list(parked.tokens)


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


def start_two_sessions(desk: Desk, rules: list[int] = RULES, rest: int = 60) -> None:
    for name, token in (("a", 1), ("b", 2)):
        desk.give(Open(name, [], "ann"))
        say(desk, name, [*rules, *[token] * rest])


@pytest.mark.parametrize("rest", [10, 60, 300])
def test_a_beginning_that_two_sessions_share_is_loaded_by_the_next_engine(place: Place, rest: int) -> None:
    """Rules that two sessions began with are in the KV at the next start, however short the rest was."""
    start_two_sessions(place.start(), rest=rest)
    (file,) = place.files("prefix")
    assert tokens_in(file) == RULES
    desk = place.restart()
    assert isinstance(desk.runner, HashRunner)
    assert desk.runner.used_cells() == len(RULES)
    desk.give(Open("new", [], "ann"))
    said, waterfall = say(desk, "new", [*RULES, 9])
    assert said == alone([*RULES, 9])
    assert waterfall.cached_tokens == len(RULES)


def test_a_loaded_beginning_is_for_its_tenant_only(place: Place) -> None:
    """Another tenant with the same rules prefills them."""
    start_two_sessions(place.start())
    desk = place.restart()
    desk.give(Open("new", [], "bob"))
    assert say(desk, "new", [*RULES, 9])[1].cached_tokens == 0


def test_a_short_beginning_is_not_kept(place: Place) -> None:
    """Fewer than 64 tokens are prefilled sooner than a file is read."""
    start_two_sessions(place.start(), RULES[:60])
    assert place.files("prefix") == []


def test_a_fork_is_no_shared_beginning(place: Place) -> None:
    """One talk that goes on in two ways is not what sessions begin with."""
    desk = place.start()
    desk.give(Open("s"))
    say(desk, "s", [*RULES, *[1] * 60])
    desk.run(Fork("f", "s", 230))
    say(desk, "f", [2] * 60)
    assert place.files("prefix") == []


def test_a_history_that_is_sent_again_is_no_shared_beginning(place: Place) -> None:
    """A client that sends its whole history again with one more message leaves no prefix."""
    desk = place.start()
    desk.give(Open("s"), Open("again"))
    said, _ = say(desk, "s", [*RULES, *[1] * 60])
    say(desk, "again", [*RULES, *[1] * 60, *said, 5, 6, 7])
    assert place.files("prefix") == []


def test_loading_at_start_is_no_use(place: Place) -> None:
    """What was last used stays known: a start touches no file, a session that begins with it does."""
    start_two_sessions(place.start())
    (file,) = place.files("prefix")
    os.utime(file, (1_000_000, 1_000_000))
    desk = place.restart()
    assert file.stat().st_mtime == 1_000_000
    desk.give(Open("new", [], "ann"))
    say(desk, "new", [*RULES, 9])
    assert file.stat().st_mtime > 1_000_000


def test_loaded_beginnings_are_the_first_to_make_room(place: Place) -> None:
    """They never keep a session from working."""
    start_two_sessions(place.start())
    desk = place.restart()
    desk.give(Open("large", [], "bob"))
    said, _ = say(desk, "large", [4] * 2000)
    assert said == alone([4] * 2000)


def test_more_beginnings_than_fit_are_left_on_disk(place: Place) -> None:
    """A start loads no more than an eighth of the cells."""
    desk = place.start(context_tokens=8192)
    for group in range(4):
        rules = [(i * (group + 3)) % 61 for i in range(300)]
        for name in (f"{group}a", f"{group}b"):
            desk.give(Open(name))
            say(desk, name, [*rules, *[ord(name[1]) - 60] * 200])
    assert len(place.files("prefix")) == 4
    desk = place.restart(context_tokens=8192)
    assert isinstance(desk.runner, HashRunner)
    assert 600 <= desk.runner.used_cells() <= 1024


# ---- the engine's end ----------------------------------------------------------------------------------


def start_talks(desk: Desk, count: int) -> None:
    """Sessions of one tenant that have nothing in common, used in the order of their numbers."""
    for number in range(count):
        desk.give(Open(str(number)))
        say(desk, str(number), [number, *PROMPT])


def test_an_engine_that_ends_parks_its_sessions(place: Place) -> None:
    """Each of them goes on in the next engine from where it was, without the text that was being typed."""
    desk = place.start()
    start_talks(desk, 3)
    desk.run(Append("1", "typed", [9] * 40, is_provisional=True))
    desk.engine.close()
    desk = place.start()
    for number in range(3):
        desk.give(Open(str(number)))
        assert say(desk, str(number), [number, *PROMPT, 1, 2])[1].restored_tokens >= len(PROMPT)
    assert all(9 not in tokens_in(file)[-3:] for file in place.files())


def test_a_turn_that_runs_when_the_engine_ends_is_parked_as_far_as_it_got(place: Place) -> None:
    """Its prompt need not be read again when it is submitted to the next engine."""
    desk = place.start()
    desk.give(Open("s"), Generate("s", "t", list(PROMPT), max_tokens=50))
    while not desk.tokens("t"):
        desk.engine.step()
    desk.engine.close()
    desk = place.start()
    desk.give(Open("s"))
    assert say(desk, "s", [*PROMPT, 1])[1].restored_tokens == len(PROMPT)


def test_the_sessions_used_last_are_parked_where_not_all_fit_on_disk(place: Place) -> None:
    """The limit is kept, and within it the latest are, also for the engine after the next."""
    desk = place.start(limit_bytes=2500)
    start_talks(desk, 8)
    desk.engine.close()
    kept = sorted(tokens_in(file)[0] for file in place.files())
    assert kept == list(range(8))[-len(kept) :]
    assert 1 < len(kept) < 8
    place.restart(limit_bytes=1300)
    later = sorted(tokens_in(file)[0] for file in place.files())
    assert later == kept[-len(later) :]
    assert later


def test_an_engine_that_has_no_time_left_ends_without_parking(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Parking is a courtesy: the end is not."""
    monkeypatch.setattr("vivace.engine.loop.engine.PARK_S", 0.0)
    desk = place.start()
    start_talks(desk, 3)
    desk.engine.close()
    assert place.files() == []


def test_a_session_that_a_longer_file_begins_with_is_not_written_again(place: Place) -> None:
    """A fork that has said nothing of its own costs no disk."""
    desk = place.start()
    start_talks(desk, 1)
    desk.give(Fork("fork", "0", 80))
    desk.run(Append("fork", "t", []))
    desk.engine.close()
    assert len(place.files()) == 1


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
