"""What sessions begin with is kept, and is in the KV of the next engine at its start."""

import os

import pytest

from tests.engine.desk import Desk
from tests.engine.hashing import HashRunner
from tests.engine.kv.parking_desk import RULES, Place, alone, say, tokens_in
from vivace.engine.wire.frames import Fork, Open


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
