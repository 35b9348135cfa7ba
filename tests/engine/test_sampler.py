"""Sampling with a key of (seed, position)."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vivace.engine.sampler import log_probability, sample

LOGITS = np.log(np.array([0.5, 0.3, 0.15, 0.05], np.float32))


def test_zero_temperature_takes_the_likeliest() -> None:
    """Greedy is the argmax, whatever the seed."""
    assert {sample(LOGITS, temperature=0, top_p=1, seed=s, position=3) for s in range(20)} == {0}


@given(st.integers(0, 2**31), st.integers(0, 10_000))
def test_a_draw_is_a_function_of_seed_and_position(seed: int, position: int) -> None:
    """The same seed at the same position draws the same token."""
    draws = {sample(LOGITS, temperature=0.8, top_p=0.95, seed=seed, position=position) for _ in range(3)}
    assert len(draws) == 1


def test_draws_follow_the_distribution() -> None:
    """Over many positions, tokens come about as often as they are likely."""
    draws = [sample(LOGITS, temperature=1.0, top_p=1.0, seed=7, position=p) for p in range(4000)]
    shares = np.bincount(draws, minlength=4) / 4000
    assert shares == pytest.approx([0.5, 0.3, 0.15, 0.05], abs=0.03)


def test_top_p_leaves_out_the_unlikely() -> None:
    """With top_p 0.7 only the tokens that make up the first 70% are ever drawn."""
    draws = {sample(LOGITS, temperature=1.0, top_p=0.7, seed=1, position=p) for p in range(500)}
    assert draws == {0, 1}


def test_log_probability_is_normalised() -> None:
    """Log-probabilities are those of a distribution that sums to one."""
    shifted = LOGITS + 40
    assert [np.exp(log_probability(shifted, t)) for t in range(4)] == pytest.approx(
        [0.5, 0.3, 0.15, 0.05], rel=1e-5
    )
