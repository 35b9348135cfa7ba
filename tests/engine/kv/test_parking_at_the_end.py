"""An engine that ends parks its sessions for the next one."""

import pytest

from tests.engine.desk import Desk
from tests.engine.kv.parking_desk import PROMPT, Place, say, tokens_in
from vivace.engine.wire.frames import Append, Fork, Generate, Open


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
