"""Fuzzed tests go on for a share of ten minutes each in a thorough run, and count what they tried.

Owns the mark, the shares, the seeds and the count. A fuzzed test is a plain Hypothesis test in this folder;
without `--thorough` it runs once, as any other. The seed of each round is one higher, so that no round
repeats another; the round that runs when the time is up is finished.
"""

import functools
import inspect
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest

FOLDER = Path(__file__).parent
TOTAL_S = 600.0  # of all fuzzed tests together
ROUND = 100  # examples
_SHARE = pytest.StashKey[float]()
_TRIED = pytest.StashKey[list[int]]()


def mark(items: list[pytest.Item]) -> None:
    """Mark the tests of this folder."""
    for item in items:
        if FOLDER in item.path.parents:
            item.add_marker("fuzz")


def share(items: list[pytest.Item]) -> None:
    """Give each fuzzed Hypothesis test an equal share of the time."""
    fuzzed = [item for item in items if item.get_closest_marker("fuzz") and _is_hypothesis(item)]
    for item in fuzzed:
        item.stash[_SHARE] = TOTAL_S / len(fuzzed)


def begin(item: pytest.Function) -> float:
    """Count the examples from now on, if the test has a share of time. Return when it began."""
    began = time.monotonic()
    if _SHARE in item.stash:
        item.stash[_TRIED] = [0]
        handle = item.obj.hypothesis
        handle.inner_test = _counted(handle.inner_test, item.stash[_TRIED])
        usual = item.obj._hypothesis_internal_use_settings
        item.obj._hypothesis_internal_use_settings = hypothesis.settings(usual, max_examples=ROUND)
        _seed(item, _first_seed(item))
    return began


def go_on(item: pytest.Function, began: float) -> None:
    """Run further rounds until the share is used up, and note what was tried."""
    if _SHARE not in item.stash:
        return
    arguments = {name: item.funcargs[name] for name in item._fixtureinfo.argnames}
    first = seed = item.obj._hypothesis_internal_use_seed
    while time.monotonic() - began < item.stash[_SHARE]:
        seed += 1
        _seed(item, seed)
        item.obj(**arguments)
    tried, took_s = item.stash[_TRIED][0], time.monotonic() - began
    said = f"{item.nodeid}: {tried:,} examples in {took_s:.0f} s, seeds {first} to {seed}"
    item.user_properties.append(("fuzzed", said))


def summary(reporter: pytest.TerminalReporter) -> Iterator[str]:
    """Yield a line for each test that was fuzzed longer."""
    for report in reporter.stats.get("passed", []):
        yield from (f"fuzzed {text}" for name, text in report.user_properties if name == "fuzzed")


def _is_hypothesis(item: pytest.Item) -> bool:
    return isinstance(item, pytest.Function) and hasattr(item.obj, "hypothesis")


def _first_seed(item: pytest.Function) -> int:
    given = item.config.getoption("hypothesis_seed", None)
    return int(given) if given and str(given).isdecimal() else random.randrange(10**9)


def _seed(item: pytest.Function, seed: int) -> None:
    item.obj._hypothesis_internal_use_seed = seed  # what @hypothesis.seed sets


def _counted(test: Callable[..., Any], tried: list[int]) -> Callable[..., Any]:
    """Return the test with a count."""
    if inspect.iscoroutinefunction(test):

        @functools.wraps(test)
        async def counted_async(*args: Any, **kwargs: Any) -> None:
            tried[0] += 1
            await test(*args, **kwargs)

        return counted_async

    @functools.wraps(test)
    def counted(*args: Any, **kwargs: Any) -> None:
        tried[0] += 1
        test(*args, **kwargs)

    return counted
