"""Prometheus' text format, read back by a strict parser."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.server.watch.metrics_page import parsed
from vivace.server.watch.metrics_text import MetricsPage


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"])), min_size=1, unique=True), st.text())
def test_any_label_value_comes_back_as_it_was(values: list[str], help: str) -> None:
    """Quotes, backslashes and line ends in labels and help are escaped, and nothing else changes."""
    page = MetricsPage()
    family = page.gauge("some", help, "label")
    for number, text in enumerate(values):
        family.at(text).value = number
    samples = parsed(page.render())["some"].samples
    assert samples == {("some", frozenset({("label", text)})): n for n, text in enumerate(values)}


@given(st.lists(st.floats(0, 10) | st.sampled_from([0.0, 0.5, 1.0, 2.0])))
def test_a_bucket_holds_what_is_not_above_its_bound(values: list[float]) -> None:
    """`le` means less or equal; the sum and the count are those of all values."""
    page = MetricsPage()
    histogram = page.histogram("some", "", (0.5, 1, 2)).at()
    for number in values:
        histogram.observe(number)
    samples = parsed(page.render())["some"].samples
    for bound in (0.5, 1.0, 2.0):
        expected = sum(number <= bound for number in values)
        assert samples[("some_bucket", frozenset({("le", repr(bound))}))] == expected
    assert samples[("some_count", frozenset())] == len(values)
    assert samples[("some_sum", frozenset())] == pytest.approx(sum(values))


@pytest.mark.parametrize("odd", [float("nan"), float("inf"), -1.0])
def test_an_impossible_duration_is_not_counted(odd: float) -> None:
    """One value that is none would spoil the sum until the server ends."""
    page = MetricsPage()
    histogram = page.histogram("some", "", (1,)).at()
    histogram.observe(odd)
    histogram.observe(0.25)
    assert b"some_sum 0.25\nsome_count 1\n" in page.render()
