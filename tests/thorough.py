"""How much a run tries: as much as a change needs, or ten times that and the largest models (`--thorough`).

Owns Hypothesis's profiles and the mark of tests that only a thorough run takes. tests/conftest.py has the
option. Does not own how long tests of hostile input go on (`tests.fuzz.longer`).
"""

import pytest
from hypothesis import settings

MARK = "thorough"
THOROUGH_EXAMPLES = 1000
# No deadlines: a busy machine is no fault of the code.
settings.register_profile("usual", max_examples=100, deadline=None)
settings.register_profile(MARK, max_examples=THOROUGH_EXAMPLES, deadline=None)


def choose(config: pytest.Config) -> None:
    """Load the profile of this run, before any test module is imported."""
    settings.load_profile(MARK if config.getoption("--thorough") else "usual")


def examples(usual: int, times: int = 10) -> int:
    """Return how many examples a property has that has its own settings: `times` as many at night."""
    return usual * (times if settings.default.max_examples == THOROUGH_EXAMPLES else 1)


def deselect(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what only a thorough run takes, unless this is one."""
    if config.getoption("--thorough"):
        return
    left_out = {item: None for item in items if item.get_closest_marker(MARK)}
    if left_out:
        config.hook.pytest_deselected(items=list(left_out))
        items[:] = [item for item in items if item not in left_out]
