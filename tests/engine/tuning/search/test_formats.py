"""Which formats are offered, and the check that none costs quality."""

import math

import pytest

from vivace.engine.tuning.children.wire import Scores
from vivace.engine.tuning.search.formats import Likeness, compare, quality_problem, requantisations


@pytest.mark.parametrize(
    ("bits", "offered"), [(4.8, "neutral"), (6.6, "neutral"), (8.5, None), (16.0, "near-neutral")]
)
def test_only_finer_formats_are_offered(bits: float, offered: str | None) -> None:
    """A coarse file may become Q8_0; a Q8_0 file stays; a 16-bit one would lose a little, which is said."""
    formats = requantisations(bits)
    assert [format.quality for format in formats] == ([offered] if offered else [])


@pytest.mark.parametrize("bits", [4.8, 8.5, 16.0])
def test_costly_formats_are_marked(bits: float) -> None:
    """Formats that cost quality come only when asked for, and say what they are."""
    extra = [
        format for format in requantisations(bits, with_costly=True) if format not in requantisations(bits)
    ]
    assert {format.name for format in extra} == {"Q4_0", "IQ4_NL"}
    assert {format.quality for format in extra} == {"costly"}


def test_likeness_in_numbers() -> None:
    """Changes count whichever way they go; perplexity only as their sum; choices one by one."""
    found = compare(Scores([-1.0, -2.0], [7, 8]), Scores([-1.1, -1.9], [7, 9]))
    assert found.mean_change == pytest.approx(0.1)
    assert found.perplexity_ratio == pytest.approx(1.0)
    assert (found.same_choice, found.tokens) == (0.5, 2)


@pytest.mark.parametrize(
    ("change", "perplexity", "is_fine"),
    [
        (0.021, 1.002, True),  # Q8_0 of a 1.5B model
        (0.052, 1.003, True),  # Q8_0 of a 135M model
        (0.045, 1.004, True),  # the same file with other kernels
        (0.098, 1.016, False),  # Q4_0 of a 1.5B model
        (0.572, 1.286, False),  # Q4_0 of a 135M model
        (0.05, 1.05, False),  # small changes that all go one way
        (0.05, 0.9, True),  # better is not worse
        (math.nan, math.nan, False),  # a kernel that computes nonsense
    ],
)
def test_the_limit_lies_between_noise_and_loss(change: float, perplexity: float, is_fine: bool) -> None:
    """What was measured for kernels and neutral formats passes, what was measured for lossy ones does not."""
    assert (quality_problem(Likeness(change, perplexity, 0.97, 300)) == "") is is_fine
