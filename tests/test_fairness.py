"""The fair counters that the server's queue and the engine's scheduler share."""

from vivace.fairness import REALTIME_IN_A_ROW, SPARE_NAMES, FairCounters, RealtimeShare


def test_a_newcomer_starts_level_with_the_least_served() -> None:
    """Who comes anew has neither a claim on the others nor a debt to them."""
    served = FairCounters()
    served.join("ann", [])
    served.pick("ann", 100)
    served.join("bob", ["ann"])
    assert served["bob"] == served["ann"] == 100


def test_a_newcomer_among_nobody_starts_where_the_last_one_stood() -> None:
    """A key that left with a debt is not overtaken for ever by keys that come while nobody waits."""
    served = FairCounters()
    served.join("ann", [])
    served.pick("ann", 100)
    served.pick("ann", 100)
    served.join("bob", [])
    assert served["bob"] == 100


def test_what_was_charged_too_much_is_given_back() -> None:
    """A correction counts in full, and never makes a credit."""
    served = FairCounters()
    served.join("ann", [])
    served.pick("ann", 100)
    served.charge("ann", -40)
    assert served["ann"] == 60
    served.charge("ann", -100)
    assert served["ann"] == 0


def test_memory_is_bounded_and_present_names_stay() -> None:
    """However many names come and go, only those present and the most served are remembered."""
    served = FairCounters()
    for number in range(1000):
        served.join(str(number), [])
        served.charge(str(number), number)
        served.forget(["0"])
    assert len(served) <= 1 + 2 * SPARE_NAMES
    assert served["0"] == 0
    assert served["999"] >= 999


def test_other_work_gets_one_pick_in_twenty() -> None:
    """Realtime goes first, but never more often in a row than it may while something else waits."""
    share, picks = RealtimeShare(), list[bool]()
    for _ in range(100):
        is_realtime = not share.is_other_due
        picks.append(is_realtime)
        share.count(is_realtime=is_realtime, is_other_waiting=True)
    assert picks.count(False) == 100 // (REALTIME_IN_A_ROW + 1)
    share.count(is_realtime=True, is_other_waiting=False)
    assert not share.is_other_due
