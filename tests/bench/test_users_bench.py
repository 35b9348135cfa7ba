"""`vivace bench gpu --users` without a GPU: several turns at once, and the rate of all of them."""

import pytest

from tests.engine.loop.test_rows import RowsRunner
from vivace.bench.gpu.users import measure_users, parse_users, users_table


class Lasting(RowsRunner):
    """Says the same token for ever."""

    def __init__(self) -> None:
        super().__init__()
        self.info = self.info._replace(end_tokens=frozenset())


def test_all_users_decode_at_once() -> None:
    """Every user gets all tokens, in passes that they share, and a second number of users begins afresh."""
    runner = Lasting()
    for users in (4, 2, 1):
        found = measure_users(runner, users, prompt_tokens=20, output_tokens=30)
        assert found["tokens"] == users * 30
        assert found["tokens_per_s"] > 0
    assert {len(rows) for rows in runner.shared} >= {4, 2}


def test_the_report_is_a_line_a_number_of_users() -> None:
    """With the limit beside it where there is one."""
    text = users_table({"weights": "random", "bits": 8, "users": {"16": {"tokens_per_s": 9500.4}}})
    assert text.splitlines()[1].split() == ["16", "users", "9500", "tok/s,", "must", "9000"]


@pytest.mark.parametrize("text", ["", "0", "1,,2", "65", "two"])
def test_numbers_of_users_that_cannot_be_are_refused(text: str) -> None:
    """Before anything is loaded."""
    assert parse_users("1,2,64") == [1, 2, 64]
    with pytest.raises(ValueError):  # noqa: PT011
        parse_users(text)
