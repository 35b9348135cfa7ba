"""The store and the disk: room that runs out and comes back, private files, and files that stay small."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import REPOSITORY
from tests.server.store.making import assert_sound, make, opened, packed, size_of, until
from vivace.errors import StartError
from vivace.server.store import removal, writer
from vivace.server.store.problems import StoreUnavailable
from vivace.server.store.sqlite import SqliteStore


def test_a_full_disk(tmp_path: Path) -> None:
    """A put fails with a typed error, reads go on, and with room again everything works: see `full_disk`."""
    path = tmp_path / "store.db"
    done = subprocess.run(
        [sys.executable, "-m", "tests.server.store.full_disk", str(path)],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "cannot be tidied" in done.stderr
    assert_sound(path)


async def test_one_that_does_not_fit_fails_alone(tmp_path: Path) -> None:
    """Puts that are committed together: the large one is refused, the others are written."""
    async with SqliteStore(tmp_path / "store.db") as store:
        await store._write(lambda connection: connection.execute("PRAGMA max_page_count = 200").fetchall())
        puts = [store.put(make(f"r{number}")) for number in range(20)]
        puts.insert(10, store.put(make("large", says=["x" * 1_000_000])))
        outcomes = await asyncio.gather(*puts, return_exceptions=True)
        refused = outcomes.pop(10)
        assert isinstance(refused, StoreUnavailable)
        assert "full" in refused.hint
        assert outcomes == [None] * 20
        assert await store.get("large", "alice") is None
        assert await store.get("r19", "alice") is not None
        await store._write(lambda connection: connection.execute("PRAGMA max_page_count = 100000").fetchall())
        await store.put(make("large", says=["x" * 1_000_000]))


async def test_files_are_for_this_user_alone(tmp_path: Path) -> None:
    """The folder 0700, every file in it 0600, whatever the umask; a wider mode from before is narrowed."""
    path = tmp_path / "kept" / "store.db"
    umask = os.umask(0)
    try:
        for _ in range(2):
            async with opened(path) as store:
                await store.put(make())
                files = {file.name: file.stat().st_mode & 0o777 for file in path.parent.iterdir()}
                assert set(files) == {"store.db", "store.db-wal", "store.db-shm", "store.db.lock"}
                assert set(files.values()) == {0o600}
                assert path.parent.stat().st_mode & 0o777 == 0o700
            path.chmod(0o644)
    finally:
        os.umask(umask)


@pytest.mark.parametrize("kind", ["folder", "file above"])
async def test_a_path_that_cannot_be(tmp_path: Path, kind: str) -> None:
    """StartError with a hint."""
    if kind == "folder":
        (tmp_path / "store.db").mkdir()
        path = tmp_path / "store.db"
    else:
        (tmp_path / "file").touch()
        path = tmp_path / "file" / "store.db"
    with pytest.raises(StartError) as raised:
        async with opened(path):
            pass
    assert raised.value.hint


async def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    """StartError with a hint; when it can be written, the store opens."""
    path = tmp_path / "store.db"
    os.chmod(tmp_path, 0o500)  # noqa: PTH101
    if os.access(tmp_path, os.W_OK):
        pytest.skip("root may write anywhere")
    with pytest.raises(StartError):
        async with opened(path):
            pass
    os.chmod(tmp_path, 0o700)  # noqa: PTH101
    async with opened(path) as store:
        await store.put(make())


async def test_a_path_of_ugly_characters(tmp_path: Path) -> None:
    """Spaces, question marks, percent signs: in the addresses that SQLite opens these mean something."""
    path = tmp_path / "a ?b=1&c#d%20\u00e9" / "store?mode=memory.db"
    async with opened(path) as store:
        await store.put(make())
    assert size_of(path) > 0
    assert_sound(path)


async def test_the_log_is_emptied_when_it_is_quiet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A while after the last write the file has everything, while the store is open."""
    monkeypatch.setattr(writer, "QUIET_S", 0.01)
    path = tmp_path / "store.db"
    secret = b"quite a secret"
    async with opened(path) as store:
        await store.put(make(says=[secret.decode()]))
        until(lambda: size_of(path, "-wal") == 0)
        assert secret in path.read_bytes()
        await store.delete("resp_1", "alice")
        until(lambda: secret not in path.read_bytes() + path.with_name("store.db-wal").read_bytes())


async def test_the_log_does_not_grow_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is emptied now and then while writes come one after the other."""
    monkeypatch.setattr(writer, "WAL_BYTES", 1 << 20)
    monkeypatch.setattr(writer, "MOST_WAL_BYTES", 2 << 20)
    path = tmp_path / "store.db"
    sizes = []
    async with opened(path) as store:
        for number in range(60):
            await store.put(make(f"r{number}", says=["x" * 200_000]))
            sizes.append(size_of(path, "-wal"))
    assert max(sizes) < 4 << 20


async def test_a_file_that_became_empty_gets_smaller(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What retention frees is given back to the disk, bit by bit."""
    monkeypatch.setattr(writer, "QUIET_S", 0.01)
    monkeypatch.setattr(removal, "SPARE_PAGES", 100)
    path = tmp_path / "store.db"
    async with opened(path) as store:
        for number in range(100):
            await store.put(make(f"r{number}", says=["x" * 200_000], tokens=packed(number)))
        until(lambda: size_of(path) > 20_000_000)
        await store.sweep(5000)
        until(lambda: size_of(path) < 4_000_000)
        await store.put(make())
    assert_sound(path)
