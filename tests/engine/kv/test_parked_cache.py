"""KV on disk: what is kept, what goes first, and that no harm to a file costs more than a prefill."""

import errno
import os
import stat
import subprocess
import sys
import threading
from array import array
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.thorough import examples
from vivace.engine.common_length import common_length
from vivace.engine.kv import parked_cache as parked_cache_module
from vivace.engine.kv.parked_cache import ParkedCache
from vivace.engine.runners.base import HostMemoryFull, KVState

LIMIT = 10_000
ANN = "ann"


def make_parked_cache(folder: Path, limit_bytes: int = LIMIT, kv_format: str = "test") -> ParkedCache:
    return ParkedCache(folder, kv_format=kv_format, limit_bytes=limit_bytes)


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


def state_of(tokens: Sequence[int], size_bytes: int = 500) -> bytes:
    return (bytes(token % 256 for token in tokens) * size_bytes)[:size_bytes]


def park(parked_cache: ParkedCache, tokens: Sequence[int], size_bytes: int = 500, tenant: str = ANN) -> None:
    parked_cache.park(tenant, tokens, lambda: state_of(tokens, size_bytes))


def find(parked_cache: ParkedCache, tokens: Sequence[int], tenant: str = ANN) -> KVState | None:
    """The state of a file that holds exactly these tokens."""
    found = parked_cache.find(tenant, tokens)
    if found is None or found.length != len(tokens) or len(found.parked.tokens) != len(tokens):
        return None
    return parked_cache.read(found.parked)


def files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.glob("*/*/*") if path.is_file())


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


@pytest.mark.parametrize("harm", ["empty", "torn", "longer", "garbage", "deleted"])
@pytest.mark.parametrize("is_before_start", [True, False])
def test_a_harmed_file_is_not_used(tmp_path: Path, harm: str, is_before_start: bool) -> None:
    """A file that is not whole, or is gone, is as if it had never been; the next park writes it anew."""
    parked_cache = make_parked_cache(tmp_path)
    park(parked_cache, [1] * 50)
    parked_cache.flush()
    (file,) = files(tmp_path)
    if is_before_start:
        parked_cache.close()
    whole = file.read_bytes()
    match harm:
        case "deleted":
            file.unlink()
        case "empty":
            file.write_bytes(b"")
        case "torn":
            file.write_bytes(whole[:-100])
        case "longer":
            file.write_bytes(whole + b"more")
        case "garbage":
            file.write_bytes(os.urandom(len(whole)))
    if is_before_start:
        parked_cache = make_parked_cache(tmp_path)
    assert find(parked_cache, [1] * 50) is None
    assert parked_cache.disk_bytes == 0
    park(parked_cache, [1] * 50)
    parked_cache.flush()
    assert find(parked_cache, [1] * 50) == state_of([1] * 50)
    parked_cache.close()


@pytest.mark.parametrize("place", [30, -1])
def test_a_bit_that_turned_is_noticed(tmp_path: Path, place: int) -> None:
    """A state or its tokens that came back different from what was written are not used."""
    parked_cache = make_parked_cache(tmp_path)
    park(parked_cache, [1] * 50)
    parked_cache.close()
    (file,) = files(tmp_path)
    data = bytearray(file.read_bytes())
    data[place] ^= 1
    file.write_bytes(data)
    parked_cache = make_parked_cache(tmp_path)
    found = parked_cache.find(ANN, [1] * 50)
    assert found is None or found.length < 10 or parked_cache.read(found.parked) is None
    parked_cache.close()


def test_a_full_disk_costs_nothing_else(tmp_path: Path) -> None:
    """Where a file may have 4 kB: large states are lost, small ones kept, and nothing is left over."""
    code = """
import resource, sys
from pathlib import Path
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
from vivace.engine.kv.parked_cache import ParkedCache
from vivace.engine.runners.base import KVState
cache = ParkedCache(Path(sys.argv[1]), kv_format="test", limit_bytes=1_000_000)
cache.park("ann", [1] * 50, lambda: b"x" * 100_000)
cache.park("ann", [2] * 50, lambda: b"y" * 1_000)
cache.flush()
assert cache.find("ann", [1] * 50).length == 0
assert cache.read(cache.find("ann", [2] * 50).parked) == b"y" * 1_000
assert cache.disk_bytes < 2_000
cache.close()
"""
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True)
    assert len(files(tmp_path)) == 1


def test_a_folder_that_vanishes_costs_nothing_else(tmp_path: Path) -> None:
    """Somebody empties the cache while the engine runs: parking goes on in vain, reading finds nothing."""
    folder = tmp_path / "kv"
    parked_cache = make_parked_cache(folder)
    park(parked_cache, [1] * 50)
    parked_cache.flush()
    folder.rename(tmp_path / "elsewhere")
    park(parked_cache, [2] * 50)
    parked_cache.flush()
    assert find(parked_cache, [1] * 50) is None
    assert find(parked_cache, [2] * 50) is None
    parked_cache.close()


def test_a_folder_that_cannot_be_made_is_an_oserror(tmp_path: Path) -> None:
    """Where a file is in the way, whoever starts the engine is told so, and can do without."""
    (tmp_path / "kv").write_text("in the way")
    with pytest.raises(OSError, match="kv"):
        make_parked_cache(tmp_path / "kv")


@pytest.mark.parametrize("salt", [b"", b"short", b"x" * 100])
def test_a_broken_salt_is_made_anew(tmp_path: Path, salt: bytes) -> None:
    """A salt that is not what we wrote neither stops the engine nor is used."""
    (tmp_path / "salt").write_bytes(salt)
    parked_cache = make_parked_cache(tmp_path)
    assert len((tmp_path / "salt").read_bytes()) == 32
    park(parked_cache, [1] * 50)
    assert find(parked_cache, [1] * 50)
    parked_cache.close()


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


def test_a_prefix_that_a_kept_one_covers_is_not_kept(parked_cache: ParkedCache) -> None:
    """Beginnings that differ in a few tokens do not fill the disk."""
    parked_cache.keep_prefix(ANN, [1] * 100, lambda: b"state")
    parked_cache.keep_prefix(ANN, [1] * 95 + [2] * 5, lambda: pytest.fail("saved"))
    parked_cache.keep_prefix(ANN, [1] * 50 + [2] * 50, lambda: b"state")
    assert len(parked_cache.prefixes()) == 2


LENGTHS = st.integers(0, 40) | st.integers(1000, 1050) | st.integers(2040, 2060)


@settings(max_examples=examples(200))
@given(
    one=LENGTHS,
    other=LENGTHS,
    differs=st.integers(0, 2100),
    kind=st.sampled_from([list, lambda x: array("i", x)]),
)
def test_common_length_is_that_of_a_plain_loop(one: int, other: int, differs: int, kind: type) -> None:
    """The fast comparison finds the same length as one token at a time."""
    first, second = list(range(one)), list(range(other))
    if differs < other:
        second[differs] = -1
    naive = 0
    while naive < min(one, other) and first[naive] == second[naive]:
        naive += 1
    assert common_length(kind(first), kind(second)) == naive
    assert common_length(kind(second), kind(first)) == naive


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
        state = self.cache.read(found.parked)
        if state is None:
            return None
        assert isinstance(state, Held)
        assert state.data == state_of([token] * 10)
        return state


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
