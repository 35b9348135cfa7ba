from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vivace.engine.speculation.costs import SHAPE, SIZES, StepCosts, estimate_costs

POINTS = {1: 50.0, 2: 80.0, 4: 90.0, 8: 130.0, 16: 130.0, 32: 260.0}


def test_a_measured_size_costs_what_was_measured() -> None:
    """At each measured size the cost is the measured one."""
    costs = StepCosts(POINTS)
    assert {size: costs.ms(size) for size in POINTS} == POINTS


def test_between_two_sizes_lies_on_their_line() -> None:
    """Between two sizes the cost lies on the line between theirs, beyond the last it goes on in its slope."""
    costs = StepCosts(POINTS)
    assert costs.ms(24) == pytest.approx(195.0)
    assert costs.ms(64) == pytest.approx(520.0)


def test_one_measured_size_is_enough() -> None:
    """With a single point costs grow in proportion."""
    assert StepCosts({2: 10.0}).ms(20) == pytest.approx(100.0)
    assert StepCosts({2: 10.0}).ms(1) == 10.0


@given(st.lists(st.floats(0.01, 1e4), min_size=len(SIZES), max_size=len(SIZES)))
def test_more_tokens_never_cost_less(measured: list[float]) -> None:
    """However noisy the measurement was, a longer pass never seems cheaper than a shorter one."""
    costs = StepCosts(dict(zip(SIZES, measured, strict=True)))
    seen = [costs.ms(tokens) for tokens in range(1, 129)]
    assert all(later >= earlier - 1e-6 for earlier, later in pairwise(seen))


def test_one_bad_measurement_is_outvoted() -> None:
    """A size that was measured while the machine was busy costs no more than the next larger one."""
    assert StepCosts({**POINTS, 8: 900.0}).ms(8) == 130.0


def test_it_follows_a_lasting_change() -> None:
    """When all passes of a size take twice as long, its cost doubles within a hundred of them."""
    costs = StepCosts(POINTS)
    for _ in range(100):
        costs.observe(32, 520.0)
    assert costs.ms(32) == pytest.approx(520.0, rel=0.02)


def test_single_slow_passes_hardly_count() -> None:
    """With every tenth pass ten times as slow, the cost stays within 5%."""
    costs = StepCosts(POINTS)
    for turn in range(1000):
        costs.observe(1, 500.0 if turn % 10 == 0 else 50.0)
    assert costs.ms(1) == pytest.approx(50.0, rel=0.05)


def test_a_size_between_teaches_nothing() -> None:
    """A pass of a size far from all measured ones moves no point, for costs may have a step there."""
    costs = StepCosts(POINTS)
    for _ in range(100):
        costs.observe(22, 1000.0)
    assert costs.points() == POINTS


def test_points_are_a_table_to_start_with() -> None:
    """What was learnt is given to the next start as it is."""
    costs = StepCosts(POINTS)
    costs.observe(8, 200.0)
    again = StepCosts(costs.points())
    assert again.points() == costs.points() != POINTS


def test_an_estimate_keeps_to_its_shape() -> None:
    """Until something is measured, every size costs what the shape says of a pass of one token."""
    costs = estimate_costs(10.0)
    assert {size: costs.ms(size) for size in SIZES} == {size: 10.0 * SHAPE[size] for size in SIZES}
    assert costs.estimated == list(SIZES)


def test_what_is_measured_corrects_the_estimates_nearest_to_it() -> None:
    """A size that costs half of its estimate halves those that nothing nearer has shown."""
    costs = estimate_costs(10.0)
    costs.measure(1, 10.0)
    costs.measure(32, 5.0 * SHAPE[32])
    assert costs.ms(64) == pytest.approx(5.0 * SHAPE[64])
    assert costs.ms(2) == pytest.approx(10.0 * SHAPE[2])
    assert costs.estimated == [2, 4, 8, 16, 64]


def test_the_first_pass_of_an_estimated_size_counts_in_full() -> None:
    """What a turn's first pass shows replaces the estimate; the second one moves it a little."""
    costs = estimate_costs(10.0)
    costs.observe(8, 90.0)
    assert costs.ms(8) == pytest.approx(90.0)
    costs.observe(8, 180.0)
    assert costs.ms(8) == pytest.approx(90.0, rel=0.02)
