"""Who drafts how much in a pass that several turns share."""

from itertools import accumulate
from operator import mul

from hypothesis import given
from hypothesis import strategies as st

from vivace.engine.speculation.company import MOST_PASSES, share_rows
from vivace.engine.speculation.costs import StepCosts

# Milliseconds of an H200, the 1.5B in 8 bits (docs/gpu-notes.md).
ROWS = StepCosts({2: 0.70, 4: 0.78, 8: 0.90, 16: 1.32, 32: 2.1, 64: 2.47})
ALONE = StepCosts({1: 0.63, 8: 0.95, 16: 1.4, 32: 2.6})
FREE = StepCosts({2: 1.0, 4: 1.0, 8: 1.0, 16: 1.0})


def falling(rate: float, count: int) -> list[float]:
    return list(accumulate([rate] * count, mul))


@st.composite
def passes(draw: st.DrawFn) -> tuple[list[list[float]], StepCosts, int]:
    rates = st.floats(0.01, 0.99)
    drafts = [
        list(accumulate(draw(st.lists(rates, max_size=31)), mul)) for _ in range(draw(st.integers(2, 9)))
    ]
    steps = [draw(st.floats(0.0, 2.0)) for _ in range(6)]
    costs = dict(zip((2, 4, 8, 16, 32, 64), accumulate(steps, initial=0.5), strict=False))
    return drafts, StepCosts(costs), draw(st.integers(len(drafts), 64))


@given(passes())
def test_rows_are_shared_within_bounds(case: tuple[list[list[float]], StepCosts, int]) -> None:
    """No pass has more rows than it may, no turn drafts more than it has, the likeliest tokens come first."""
    drafts, costs, most = case
    shares = share_rows(drafts, costs, ALONE, most)
    if shares is None:
        assert all(drafts)
        return
    assert len(drafts) + sum(shares) <= most
    taken = [chance for chances, share in zip(drafts, shares, strict=True) for chance in chances[:share]]
    left = [chances[share] for chances, share in zip(drafts, shares, strict=True) if share < len(chances)]
    assert not taken or not left or min(taken) >= max(left)
    if not all(drafts):
        sizes = [size for size in costs.points() if size >= len(drafts)]
        size = min(size for size in sizes if size >= len(drafts) + sum(shares))
        assert costs.ms(size) <= MOST_PASSES * costs.ms(sizes[0]) or not sum(shares)


@given(st.integers(2, 8), st.floats(0.5, 0.99))
def test_equal_drafts_have_equal_shares(turns: int, rate: float) -> None:
    shares = share_rows([falling(rate, 31)] * turns, FREE, StepCosts({1: 1.0}), 16)
    assert shares is not None
    assert max(shares) - min(shares) <= 1
    assert sum(shares) == 16 - turns


def test_rows_that_are_padding_are_drafted() -> None:
    """Five turns have a pass of eight rows: three drafted tokens cost nothing, unlikely as they are."""
    costs = StepCosts({4: 1.0, 8: 1.2, 16: 9.0})
    assert share_rows([falling(0.3, 9), [], [], [], []], costs, ALONE, 16) == [3, 0, 0, 0, 0]


def test_likely_drafts_fill_a_large_pass() -> None:
    """Two turns that edit have all the rows of the pass that says the most a second."""
    assert share_rows([falling(0.97, 31)] * 2, ROWS, ALONE, 64) == [31, 31]
    assert share_rows([falling(0.5, 31)] * 2, ROWS, ALONE, 64) == [3, 3]


def test_a_turn_without_a_draft_pays_at_most_a_second_pass() -> None:
    assert share_rows([falling(0.97, 31), []], ROWS, ALONE, 64) == [14, 0]


def test_drafts_are_verified_alone_where_rows_cost_more() -> None:
    """Never where one of the turns has no draft: it would wait for the others' passes."""
    dear = StepCosts({2: 3.0, 4: 6.0, 8: 12.0})
    assert share_rows([falling(0.9, 31)] * 2, dear, ALONE, 64) is None
    assert share_rows([falling(0.9, 31), []], dear, ALONE, 64) == [0, 0]


def test_more_turns_than_were_measured_draft_nothing() -> None:
    assert share_rows([falling(0.9, 5)] * 5, StepCosts({2: 1.0, 4: 1.0}), ALONE, 64) == [0] * 5
