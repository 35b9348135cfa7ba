"""Fixtures of the tests of parked KV."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.engine.kv.parked_desk import make_parked_cache
from tests.engine.kv.parking_desk import Place
from vivace.engine.kv.parked_cache import ParkedCache


@pytest.fixture
def parked_cache(tmp_path: Path) -> Iterator[ParkedCache]:
    parked_cache = make_parked_cache(tmp_path)
    yield parked_cache
    parked_cache.close()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every look at the clock finds it a second later, so that the order of use is plain."""
    now = iter(range(1_000_000_000, 2_000_000_000))
    monkeypatch.setattr("vivace.engine.kv.parked_cache.time.time", lambda: float(next(now)))


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    place = Place(tmp_path)
    yield place
    for parked_cache in place.parked_caches:
        parked_cache.close()
