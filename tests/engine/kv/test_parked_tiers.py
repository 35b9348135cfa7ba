"""Parked KV above the disk: states in memory that the runner owns."""

import threading
from pathlib import Path
from typing import Any

import pytest

from tests.engine.kv.parked_desk import ANN, LIMIT, files, state_of
from vivace.engine.kv import parked_cache as parked_cache_module
from vivace.engine.kv.parked_cache import ParkedCache
from vivace.engine.runners.base import HostMemoryFull


class HostMemory:
    """A runner's own memory for states."""

    def __init__(self, limit_bytes: int) -> None:
        self.free_bytes = limit_bytes

    def allocate(self, size_bytes: int) -> "Held":
        if size_bytes > self.free_bytes:
            raise HostMemoryFull
        self.free_bytes -= size_bytes
        return Held(self, size_bytes)

    def save(self, state: bytes) -> "Held":
        held = self.allocate(len(state))
        held.data[:] = state
        return held


class Held:
    def __init__(self, memory: HostMemory, size_bytes: int) -> None:
        self._memory, self.size_bytes, self.data = memory, size_bytes, bytearray(size_bytes)
        self.is_freed = False

    def pieces(self) -> list[memoryview]:
        half = self.size_bytes // 2
        return [memoryview(self.data)[:half], memoryview(self.data)[half:]]

    def free(self) -> None:
        assert not self.is_freed
        self.is_freed = True
        self._memory.free_bytes += self.size_bytes
        self.data[:] = b"?" * self.size_bytes


class TwoTiers:
    """A cache above a runner's memory of 2,000 bytes."""

    def __init__(self, folder: Path, limit_bytes: int = LIMIT) -> None:
        self.memory = HostMemory(2_000)
        self.cache = ParkedCache(
            folder, kv_format="held", limit_bytes=limit_bytes, allocate=self.memory.allocate
        )

    def park(self, token: int) -> None:
        tokens = [token] * 10
        self.cache.park(ANN, tokens, lambda: self.memory.save(state_of(tokens)))

    def find(self, token: int) -> Held | None:
        found = self.cache.find(ANN, [token] * 10)
        if found is None or found.length < 10:
            return None
        saved = self.cache.read(found.parked)
        if saved is None:
            return None
        assert isinstance(saved.state, Held)
        assert saved.state.data == state_of([token] * 10)
        return saved.state


@pytest.mark.usefixtures("clock")
def test_a_state_stays_in_the_runners_memory_until_that_is_full(tmp_path: Path) -> None:
    """The least recently used is then on disk only, and is read into the same memory when it is wanted."""
    tiers = TwoTiers(tmp_path)
    for token in range(4):
        tiers.park(token)
    tiers.cache.flush()
    first = tiers.find(0)
    assert first
    assert tiers.memory.free_bytes == 0
    tiers.park(4)
    tiers.cache.flush()
    assert not first.is_freed
    assert tiers.find(0) is first
    again = tiers.find(1)
    assert again
    assert tiers.memory.free_bytes == 0
    assert len(files(tmp_path)) == 5
    tiers.cache.close()


def test_what_is_being_written_is_not_freed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While the disk is slow, states that it has not got keep their memory, and others are not kept."""
    disk_is_back = threading.Event()
    real = parked_cache_module._write

    def slow(*arguments: Any) -> None:
        disk_is_back.wait(60)
        real(*arguments)

    monkeypatch.setattr(parked_cache_module, "_write", slow)
    tiers = TwoTiers(tmp_path)
    for token in range(5):
        tiers.park(token)
    assert [tiers.find(token) is not None for token in range(5)] == [True, True, True, True, False]
    tiers.cache.park(
        ANN, [0] * 20, lambda: tiers.memory.save(b"")
    )  # replaces the first, which is being written
    assert tiers.memory.free_bytes == 0
    disk_is_back.set()
    tiers.cache.flush()
    assert tiers.memory.free_bytes == 500
    assert len(files(tmp_path)) == 4
    tiers.cache.close()


@pytest.mark.usefixtures("clock")
def test_without_a_disk_memory_is_the_only_tier(tmp_path: Path) -> None:
    """Where nothing may be written, states stay in the runner's memory, and the oldest is given up."""
    tiers = TwoTiers(tmp_path, limit_bytes=0)
    for token in range(5):
        tiers.park(token)
    assert [tiers.find(token) is not None for token in range(5)] == [False, True, True, True, True]
    assert files(tmp_path) == []
    tiers.cache.close()


@pytest.mark.parametrize("place", [60, -1])
def test_a_harmed_file_gives_its_memory_back(tmp_path: Path, place: int) -> None:
    """A state that came back different from what was written takes no memory."""
    first = TwoTiers(tmp_path)
    first.park(1)
    first.cache.close()
    (file,) = files(tmp_path)
    data = bytearray(file.read_bytes())
    data[place] ^= 1
    file.write_bytes(data)
    second = TwoTiers(tmp_path)
    assert second.find(1) is None
    assert second.memory.free_bytes == 2_000
    second.cache.close()
