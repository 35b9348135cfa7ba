"""The cases of `vivace eval steers` are enough, of all kinds, and say what they mean."""

from collections import Counter

from vivace.eval.steers.cases import read_cases
from vivace.eval.steers.checks import passes
from vivace.eval.steers.report import KINDS

CASES = read_cases()


def test_there_are_cases_of_every_kind() -> None:
    """At least ten of each kind, sixty together, all with names of their own."""
    counts = Counter(case.kind for case in CASES)
    assert set(counts) == set(KINDS)
    assert min(counts.values()) >= 10
    assert len({case.name for case in CASES}) == len(CASES) >= 60


def test_a_third_is_held_out() -> None:
    """About a third of each kind was not looked at while wordings were chosen."""
    for kind in KINDS:
        chosen = [case.held_out for case in CASES if case.kind == kind]
        assert 0.25 <= sum(chosen) / len(chosen) <= 0.45


def test_steers_come_early_and_late_once_and_twice_in_every_form() -> None:
    """Places from a few tokens to many, second steers, and all three ways to say them."""
    places = [steer.after for case in CASES for steer in case.steers]
    assert min(places) <= 10
    assert max(places) >= 60
    assert sum(len(case.steers) > 1 for case in CASES) >= 5
    assert min(Counter(case.form for case in CASES).values()) >= 5


def test_what_only_changes_a_task_must_keep_it() -> None:
    """Only a steer to something else, or to an end, has no task to keep."""
    assert all(bool(case.kept) == (case.kind not in ("topic", "word")) for case in CASES)


def test_neither_the_request_nor_silence_is_obedience() -> None:
    """An answer that repeats what was asked first, or says nothing, obeys no steer."""
    for case in CASES:
        assert not passes(case.obeyed, ""), case.name
        assert not passes(case.obeyed, f"Sure! {12 * case.ask}"), case.name
