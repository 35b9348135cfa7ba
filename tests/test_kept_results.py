"""Names of kept results: the newest is the last in the folder."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vivace.kept_results import file_name

MOMENTS = st.integers(10**18, 4 * 10**18)  # nanoseconds: from 2001 to 2096


@given(MOMENTS, st.integers(1, 2 * 10**9))
def test_a_later_result_has_a_later_name(at_ns: int, more_ns: int) -> None:
    """Also where a second ends between the two."""
    assert file_name(at_ns) < file_name(at_ns + more_ns)


def test_an_hour_that_comes_twice_changes_no_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """In Berlin it was 02:30 twice on 25 October 2026, and the second is later."""
    monkeypatch.setenv("TZ", "CET-1CEST,M3.5.0,M10.5.0/3")
    time.tzset()
    try:
        first_s = 1792888200
        clocks = [time.strftime("%H:%M", time.localtime(first_s + more)) for more in (0, 3600)]
        assert clocks == ["02:30", "02:30"]
        assert file_name(first_s * 10**9) < file_name((first_s + 3600) * 10**9)
    finally:
        monkeypatch.undo()
        time.tzset()
