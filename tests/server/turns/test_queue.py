"""The queue: who may begin now and in which order, what is refused, and the estimate."""

import pytest

from tests.server.turns.queue_desk import Desk, busy_desk, ended_in_order
from vivace.engine.wire.frames import Tier
from vivace.server.turns.limits import RateRefused
from vivace.server.turns.queue import FIRST_GUESS_S


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
