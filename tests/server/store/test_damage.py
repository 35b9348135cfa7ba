"""A damaged database file is set aside, whole, and a new one is begun: the server starts all the same."""

import logging
import os
from pathlib import Path

import pytest

from tests.server.store.making import assert_sound, make, opened, size_of
from tests.server.store.test_kill import acknowledged, writing
from vivace.errors import StartError
from vivace.server.store import database
from vivace.server.store.problems import StoreUnavailable


async def filled(path: Path) -> None:
    async with opened(path) as store:
        for number in range(30):
            await store.put(make(f"r{number}", says=["x" * 20_000]))


def aside(path: Path) -> list[Path]:
    return sorted(path.parent.glob(f"{path.name}.damaged-*Z*"))


def others(path: Path) -> set[str]:
    return {file.name for file in path.parent.iterdir()} - {file.name for file in aside(path)}


def overwrite_middle(path: Path) -> None:
    """All pages but the first, which says that it is a database."""
    data = path.read_bytes()
    path.write_bytes(data[:4096] + os.urandom(len(data) - 4096))


def overwrite_all(path: Path) -> None:
    path.write_bytes(os.urandom(100_000))


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: 4096 * 3 + 100])


@pytest.mark.parametrize("harm", [overwrite_middle, overwrite_all, cut])
async def test_a_damaged_file_is_set_aside(
    tmp_path: Path, harm: object, caplog: pytest.LogCaptureFixture
) -> None:
    """Renamed, not deleted, with a line in the log; the new store works."""
    path = tmp_path / "store.db"
    await filled(path)
    assert callable(harm)
    harm(path)
    damaged = path.read_bytes()
    with caplog.at_level(logging.ERROR):
        async with opened(path) as store:
            assert await store.get("r0", "alice") is None
            await store.put(make())
    (kept,) = aside(path)
    assert kept.read_bytes() == damaged
    assert kept.stat().st_mode & 0o777 == 0o600
    assert str(kept) in caplog.text
    assert_sound(path)
    async with opened(path) as store:
        assert await store.get("resp_1", "alice") is not None
    assert len(aside(path)) == 1


async def test_the_log_beside_it_is_kept_too(tmp_path: Path) -> None:
    """What a killed process left in the write-ahead log is still in what was set aside."""
    path = tmp_path / "store.db"
    await filled(path)
    with writing(path, "insert") as child:
        assert "r24" in acknowledged(child)
    assert size_of(path, "-wal") > 1_000_000
    overwrite_all(path)
    async with opened(path) as store:
        assert await store.get("r24", "alice") is None
    assert any(b"x" * 1000 in file.read_bytes() for file in aside(path))


async def test_a_second_damage_in_the_same_second(tmp_path: Path) -> None:
    """Each file set aside keeps its own name."""
    path = tmp_path / "store.db"
    for _ in range(3):
        overwrite_all(path)
        async with opened(path):
            pass
    assert len(aside(path)) == 3


async def test_a_file_in_use_is_not_set_aside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process may have it open: say so, and leave it where it is."""
    monkeypatch.setattr(database, "BUSY_S", 0.05)
    path = tmp_path / "store.db"
    await filled(path)
    async with opened(path):
        overwrite_all(path)
        with pytest.raises(StartError, match="another process") as raised:
            async with opened(path):
                pass
        assert raised.value.hint
        assert aside(path) == []


async def test_damage_found_later_is_mended_at_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A large file is not checked at each start; but after a read that met damage the next start does."""
    monkeypatch.setattr(database, "CHECKED_BYTES", 0)
    path = tmp_path / "store.db"
    await filled(path)
    overwrite_middle(path)
    async with opened(path) as store:
        with pytest.raises(StoreUnavailable) as raised:
            await store.get("r0", "alice")
        assert raised.value.code == "store_unavailable"
        assert "Restart" in raised.value.hint
        with pytest.raises(StoreUnavailable):
            await store.put(make())
    async with opened(path) as store:
        await store.put(make())
        assert await store.get("resp_1", "alice") == make()
    assert len(aside(path)) == 1
    assert others(path) == {"store.db", "store.db.lock"}


async def test_an_empty_file_is_a_new_store(tmp_path: Path) -> None:
    """What a process leaves that was killed while it began."""
    path = tmp_path / "store.db"
    path.touch()
    async with opened(path) as store:
        await store.put(make())
    assert aside(path) == []
