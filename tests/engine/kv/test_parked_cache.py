"""KV on disk: what is kept, how it is found, and by whom."""

import stat
import threading
from pathlib import Path

import pytest

from tests.engine.kv.parked_desk import ANN, LIMIT, files, find, make_parked_cache, park, state_of
from vivace.engine.kv.parked_cache import ParkedCache


def test_what_was_parked_is_found_by_its_tokens(parked_cache: ParkedCache) -> None:
    """The longest common beginning wins, and the state is the one that was saved."""
    park(parked_cache, [1] * 50)
    park(parked_cache, [1] * 50 + [2] * 50)
    park(parked_cache, [3] * 50)
    assert find(parked_cache, [1] * 50 + [2] * 50) == state_of([1] * 50 + [2] * 50)
    found = parked_cache.find(ANN, [1] * 50 + [2] * 10 + [9])
    assert found is not None
    assert found.length == 60


def test_a_state_can_be_read_before_it_is_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A session that comes right back finds its state, however slow the disk is."""
    disk_is_back = threading.Event()
    monkeypatch.setattr("vivace.engine.kv.parked_cache._write", lambda *_: disk_is_back.wait(60))
    parked_cache = make_parked_cache(tmp_path)
    park(parked_cache, [1] * 50)
    assert find(parked_cache, [1] * 50) == state_of([1] * 50)
    disk_is_back.set()
    parked_cache.close()


def test_the_next_engine_finds_what_was_parked(tmp_path: Path) -> None:
    """Files outlive the engine that wrote them."""
    first = make_parked_cache(tmp_path)
    park(first, [1] * 50)
    first.close()
    second = make_parked_cache(tmp_path)
    assert find(second, [1] * 50) == state_of([1] * 50)
    second.close()


def test_another_kv_format_finds_nothing(tmp_path: Path) -> None:
    """A state is never given to a runner that could not read it."""
    first = make_parked_cache(tmp_path)
    park(first, [1] * 50)
    first.close()
    second = make_parked_cache(tmp_path, kv_format="other")
    assert second.find(ANN, [1] * 50) is None
    second.close()


def test_another_tenant_finds_nothing(parked_cache: ParkedCache) -> None:
    """The same tokens of another tenant are not there."""
    park(parked_cache, [1] * 50)
    assert parked_cache.find("bob", [1] * 50) is None


def test_names_on_disk_tell_nothing(tmp_path: Path) -> None:
    """Neither a tenant nor tokens can be guessed from names: another folder gives other names to the same."""
    names = []
    for folder in (tmp_path / "a", tmp_path / "b"):
        parked_cache = make_parked_cache(folder)
        park(parked_cache, [1] * 50, tenant=parked_cache.key("ann"))
        parked_cache.close()
        (file,) = files(folder)
        assert "ann" not in str(file.relative_to(folder))
        names.append((file.parent.name, file.name))
    assert not set(names[0]) & set(names[1])


def test_only_the_owner_can_read(tmp_path: Path, parked_cache: ParkedCache) -> None:
    """The salt and the files are readable by their owner only, in folders that nobody else may enter."""
    park(parked_cache, [1] * 50)
    parked_cache.flush()
    (file,) = files(tmp_path)
    assert [stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "salt", file)] == [0o600, 0o600]
    assert [stat.S_IMODE(path.stat().st_mode) for path in (file.parent, file.parent.parent)] == [0o700, 0o700]


def test_a_session_that_grew_replaces_its_file(tmp_path: Path, parked_cache: ParkedCache) -> None:
    """Of a log that is parked again and again only the longest state is kept."""
    for length in (50, 100, 150):
        park(parked_cache, [1] * length)
    parked_cache.flush()
    assert len(files(tmp_path)) == 1
    assert find(parked_cache, [1] * 150)


def test_a_state_too_large_to_keep_costs_no_other(parked_cache: ParkedCache) -> None:
    """What does not fit is not kept, and what was kept of the same session stays."""
    park(parked_cache, [1] * 50)
    park(parked_cache, [1] * 100, LIMIT)
    assert find(parked_cache, [1] * 50) == state_of([1] * 50)


def test_parking_the_same_again_saves_nothing_again(parked_cache: ParkedCache) -> None:
    """A state that is on disk is not asked for a second time."""
    park(parked_cache, [1] * 50)
    parked_cache.park(ANN, [1] * 50, lambda: pytest.fail("saved again"))


def test_a_prefix_that_a_kept_one_covers_is_not_kept(parked_cache: ParkedCache) -> None:
    """Beginnings that differ in a few tokens do not fill the disk."""
    parked_cache.keep_prefix(ANN, [1] * 100, lambda: b"state")
    parked_cache.keep_prefix(ANN, [1] * 95 + [2] * 5, lambda: pytest.fail("saved"))
    parked_cache.keep_prefix(ANN, [1] * 50 + [2] * 50, lambda: b"state")
    assert len(parked_cache.prefixes()) == 2
