"""The tour stays a tour: few stops, each of them there."""

import re

from tests import REPOSITORY

STOP = re.compile(r"^(\d+)\. `([\w./]+?)(?:: [\w.]+)?`", re.MULTILINE)


def test_one_token_passes_at_most_25_files() -> None:
    """The stops are numbered from 1, name a file each, and no file twice."""
    stops = STOP.findall((REPOSITORY / "docs" / "tour.md").read_text())
    assert [int(number) for number, _ in stops] == list(range(1, len(stops) + 1))
    assert 20 <= len(stops) <= 25
    assert len({file for _, file in stops}) == len(stops)
    assert all((REPOSITORY / file).is_file() for _, file in stops)
