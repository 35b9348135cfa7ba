"""KV on disk has a limit: what goes first, and that the limit is kept, by several engines too."""

import errno
import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.engine.kv.parked_desk import ANN, LIMIT, files, find, make_parked_cache, park, state_of
from tests.thorough import examples


@pytest.mark.usefixtures("clock")
def test_the_least_recently_used_goes_first(tmp_path: Path) -> None:
    """When the limit is reached, what was neither parked nor read for longest makes room."""
    parked_cache = make_parked_cache(tmp_path, 2_000)
    for token in range(3):
        park(parked_cache, [token] * 10)
    assert find(parked_cache, [0] * 10)
    park(parked_cache, [3] * 10)
    parked_cache.flush()
    assert [find(parked_cache, [token] * 10) is not None for token in range(4)] == [True, False, True, True]
    assert len(files(tmp_path)) == 3
    parked_cache.close()


@settings(max_examples=examples(50))
@given(sizes=st.lists(st.tuples(st.integers(1, 40), st.integers(0, 6_000)), max_size=25))
def test_the_limit_is_kept(tmp_path_factory: pytest.TempPathFactory, sizes: list[tuple[int, int]]) -> None:
    """Whatever is parked, the files together never exceed the limit."""
    folder = tmp_path_factory.mktemp("kv")
    parked_cache = make_parked_cache(folder)
    for index, (length, size_bytes) in enumerate(sizes):
        park(parked_cache, [index] * length, size_bytes)
        parked_cache.flush()
        on_disk = sum(file.stat().st_size for file in files(folder))
        assert parked_cache.disk_bytes == on_disk <= LIMIT
    parked_cache.close()


def test_a_smaller_limit_is_kept_from_the_start(tmp_path: Path) -> None:
    """An engine that may keep less removes what its predecessor kept beyond that."""
    first = make_parked_cache(tmp_path)
    for token in range(6):
        park(first, [token] * 10)
    first.close()
    second = make_parked_cache(tmp_path, 2_000)
    assert sum(file.stat().st_size for file in files(tmp_path)) <= 2_000
    second.close()


def test_the_limit_is_kept_after_writes_that_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What could not be written takes no room, and is not counted as room that was made."""
    parked_cache = make_parked_cache(tmp_path, 6_000)
    for token in range(3):
        park(parked_cache, [token] * 10, 1_000)
    parked_cache.flush()
    with monkeypatch.context() as patch:
        patch.setattr("vivace.engine.kv.kv_file.os.open", _full_disk)
        for token in range(3, 9):
            park(parked_cache, [token] * 10, 1_000)
            parked_cache.flush()
    for token in range(10, 30):
        park(parked_cache, [token] * 10, 1_000)
        parked_cache.flush()
        assert sum(file.stat().st_size for file in files(tmp_path)) <= 6_000
    parked_cache.close()


def _full_disk(*_: object) -> int:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_two_engines_use_one_folder(tmp_path: Path) -> None:
    """They have one salt; what one removes or writes harms the other in nothing."""
    first, second = make_parked_cache(tmp_path), make_parked_cache(tmp_path)
    assert first.key("ann") == second.key("ann")
    for parked_cache in (first, second):
        park(parked_cache, [1] * 50)
        parked_cache.flush()
    for file in files(tmp_path):
        file.unlink()
    assert find(first, [1] * 50) is None
    park(first, [1] * 50)
    first.flush()
    assert find(second, [1] * 50) == state_of([1] * 50)
    third = make_parked_cache(tmp_path)
    assert find(third, [1] * 50) == state_of([1] * 50)
    for parked_cache in (first, second, third):
        parked_cache.close()


@pytest.mark.usefixtures("clock")
def test_the_limit_is_for_all_engines_of_a_folder(tmp_path: Path) -> None:
    """What another engine parked counts, and the oldest of all goes first; the other one forgets it."""
    one, other = make_parked_cache(tmp_path), make_parked_cache(tmp_path)
    for token in range(1, 8):
        park(one if token % 2 else other, [token] * 50, 1500)
        one.flush()
        other.flush()
    assert sum(file.stat().st_size for file in files(tmp_path)) <= LIMIT
    assert one.disk_bytes == other.disk_bytes == sum(file.stat().st_size for file in files(tmp_path))
    for cache in (one, other):
        assert [token for token in range(1, 8) if cache.find(ANN, [token] * 50).length] == [3, 4, 5, 6, 7]  # type: ignore[union-attr]
    one.close()
    other.close()


@pytest.mark.usefixtures("clock")
def test_what_another_engine_uses_stays(tmp_path: Path) -> None:
    """Which is the oldest is a matter of use, whoever uses it."""
    one, other = make_parked_cache(tmp_path), make_parked_cache(tmp_path)
    park(one, [1] * 50, 4000)
    park(one, [2] * 50, 3000)
    one.flush()
    other.flush()
    assert find(one, [1] * 50)
    park(other, [3] * 50, 4000)
    other.flush()
    assert find(one, [1] * 50)
    assert not find(one, [2] * 50)
    one.close()
    other.close()


def test_half_written_files_of_a_living_engine_stay(tmp_path: Path) -> None:
    """A start removes what a dead engine left half-written, not what another one is writing now."""
    parked_cache = make_parked_cache(tmp_path)
    park(parked_cache, [1] * 50)
    parked_cache.close()
    (file,) = files(tmp_path)
    young, old = file.with_name("young.1.part"), file.with_name("old.2.part")
    young.write_bytes(b"half")
    old.write_bytes(b"half")
    os.utime(old, (1_000_000, 1_000_000))
    make_parked_cache(tmp_path).close()
    assert files(tmp_path) == sorted([file, young])
