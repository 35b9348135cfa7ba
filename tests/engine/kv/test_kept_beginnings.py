"""A beginning that the server names is on disk after its first use, however the engine ends."""

from pathlib import Path

import pytest

from tests.engine.desk import Desk
from tests.engine.kv.parking_desk import RULES, Place, alone, tokens_in
from vivace.engine.wire.frames import Append, Generate, Open, Waterfall


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def begin(desk: Desk, name: str, tokens: list[int], kept: int = len(RULES)) -> tuple[list[int], Waterfall]:
    desk.give(Open(name, [], "ann"))
    desk.run(Generate(name, f"{name}/1", tokens, max_tokens=4, use_drafts=False, kept_tokens=kept))
    return desk.tokens(f"{name}/1"), desk.finished(f"{name}/1").waterfall


@pytest.mark.parametrize("rest", [1, 60, 300])
def test_it_is_kept_when_it_is_read_the_first_time(place: Place, rest: int) -> None:
    """The next engine has it at its start, although no session was parked, and says the same."""
    said, _ = begin(place.start(), "a", [*RULES, *[1] * rest])
    assert said == alone([*RULES, *[1] * rest])
    (file,) = place.files("prefix")
    assert tokens_in(file) == RULES
    said, waterfall = begin(place.restart(), "b", [*RULES, 9])
    assert said == alone([*RULES, 9])
    assert waterfall.cached_tokens == len(RULES)


def test_it_is_kept_once(place: Place) -> None:
    """Another conversation adds nothing, nor one token more; a longer beginning does."""
    desk = place.start()
    begin(desk, "a", [*RULES, 1])
    begin(desk, "b", [*RULES, 2])
    begin(desk, "d", [*RULES, 5, 6], len(RULES) + 1)
    assert len(place.files("prefix")) == 1
    begin(desk, "c", [*RULES, *[3] * 40, 4], len(RULES) + 40)
    assert len(place.files("prefix")) == 2


def test_a_warm_up_keeps_it_too(place: Place) -> None:
    """One that prefills and says nothing."""
    desk = place.start()
    desk.give(Open("a", [], "ann"))
    desk.run(Append("a", "a/1", RULES, kept_tokens=len(RULES)))
    assert [tokens_in(file) for file in place.files("prefix")] == [RULES]


def test_nothing_is_kept_that_nobody_named(place: Place) -> None:
    """Nor what is shorter than a file is worth."""
    desk = place.start()
    begin(desk, "a", [*RULES, 1], 0)
    begin(desk, "b", [*reversed(RULES), 1], 60)
    assert place.files("prefix") == []


@pytest.mark.parametrize("kept", [-1, len(RULES) + 2])
def test_more_than_the_log_has_is_refused(place: Place, kept: int) -> None:
    """And leaves the session as it was."""
    desk = place.start()
    desk.give(Open("a", [], "ann"))
    desk.run(Generate("a", "a/1", [*RULES, 1], max_tokens=4, kept_tokens=kept))
    assert "kept_tokens" in desk.failed("a/1").message
