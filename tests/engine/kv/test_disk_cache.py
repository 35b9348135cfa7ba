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

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.thorough import examples
from vivace.engine.common_length import common_length
from vivace.engine.kv.disk_cache import DiskCache

LIMIT = 10_000
ANN = "ann"


def make_disk_cache(folder: Path, limit_bytes: int = LIMIT, kv_format: str = "test") -> DiskCache:
    return DiskCache(folder, kv_format=kv_format, limit_bytes=limit_bytes)


@pytest.fixture
def disk_cache(tmp_path: Path) -> Iterator[DiskCache]:
    disk_cache = make_disk_cache(tmp_path)
    yield disk_cache
    disk_cache.close()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every look at the clock finds it a second later, so that the order of use is plain."""
    now = iter(range(1_000_000_000, 2_000_000_000))
    monkeypatch.setattr("vivace.engine.kv.disk_cache.time.time", lambda: float(next(now)))


def state_of(tokens: Sequence[int], size_bytes: int = 500) -> bytes:
    return (bytes(token % 256 for token in tokens) * size_bytes)[:size_bytes]


def park(disk_cache: DiskCache, tokens: Sequence[int], size_bytes: int = 500, tenant: str = ANN) -> None:
    disk_cache.park(tenant, tokens, lambda: state_of(tokens, size_bytes))


def find(disk_cache: DiskCache, tokens: Sequence[int], tenant: str = ANN) -> bytes | None:
    """The state of a file that holds exactly these tokens."""
    found = disk_cache.find(tenant, tokens)
    if found is None or found.length != len(tokens) or len(found.parked.tokens) != len(tokens):
        return None
    return disk_cache.read(found.parked)


def files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.glob("*/*/*") if path.is_file())


def test_what_was_parked_is_found_by_its_tokens(disk_cache: DiskCache) -> None:
    """The longest common beginning wins, and the state is the one that was saved."""
    park(disk_cache, [1] * 50)
    park(disk_cache, [1] * 50 + [2] * 50)
    park(disk_cache, [3] * 50)
    assert find(disk_cache, [1] * 50 + [2] * 50) == state_of([1] * 50 + [2] * 50)
    found = disk_cache.find(ANN, [1] * 50 + [2] * 10 + [9])
    assert found is not None
    assert found.length == 60


def test_a_state_can_be_read_before_it_is_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A session that comes right back finds its state, however slow the disk is."""
    disk_is_back = threading.Event()
    monkeypatch.setattr("vivace.engine.kv.disk_cache._write", lambda *_: disk_is_back.wait(60))
    disk_cache = make_disk_cache(tmp_path)
    park(disk_cache, [1] * 50)
    assert find(disk_cache, [1] * 50) == state_of([1] * 50)
    disk_is_back.set()
    disk_cache.close()


def test_the_next_engine_finds_what_was_parked(tmp_path: Path) -> None:
    """Files outlive the engine that wrote them."""
    first = make_disk_cache(tmp_path)
    park(first, [1] * 50)
    first.close()
    second = make_disk_cache(tmp_path)
    assert find(second, [1] * 50) == state_of([1] * 50)
    second.close()


def test_another_kv_format_finds_nothing(tmp_path: Path) -> None:
    """A state is never given to a runner that could not read it."""
    first = make_disk_cache(tmp_path)
    park(first, [1] * 50)
    first.close()
    second = make_disk_cache(tmp_path, kv_format="other")
    assert second.find(ANN, [1] * 50) is None
    second.close()


def test_another_tenant_finds_nothing(disk_cache: DiskCache) -> None:
    """The same tokens of another tenant are not there."""
    park(disk_cache, [1] * 50)
    assert disk_cache.find("bob", [1] * 50) is None


def test_names_on_disk_tell_nothing(tmp_path: Path) -> None:
    """Neither a tenant nor tokens can be guessed from names: another folder gives other names to the same."""
    names = []
    for folder in (tmp_path / "a", tmp_path / "b"):
        disk_cache = make_disk_cache(folder)
        park(disk_cache, [1] * 50, tenant=disk_cache.key("ann"))
        disk_cache.close()
        (file,) = files(folder)
        assert "ann" not in str(file.relative_to(folder))
        names.append((file.parent.name, file.name))
    assert not set(names[0]) & set(names[1])


def test_only_the_owner_can_read(tmp_path: Path, disk_cache: DiskCache) -> None:
    """The salt and the files are readable by their owner only, in folders that nobody else may enter."""
    park(disk_cache, [1] * 50)
    disk_cache.flush()
    (file,) = files(tmp_path)
    assert [stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "salt", file)] == [0o600, 0o600]
    assert [stat.S_IMODE(path.stat().st_mode) for path in (file.parent, file.parent.parent)] == [0o700, 0o700]


@pytest.mark.usefixtures("clock")
def test_the_least_recently_used_goes_first(tmp_path: Path) -> None:
    """When the limit is reached, what was neither parked nor read for longest makes room."""
    disk_cache = make_disk_cache(tmp_path, 2_000)
    for token in range(3):
        park(disk_cache, [token] * 10)
    assert find(disk_cache, [0] * 10)
    park(disk_cache, [3] * 10)
    disk_cache.flush()
    assert [find(disk_cache, [token] * 10) is not None for token in range(4)] == [True, False, True, True]
    assert len(files(tmp_path)) == 3
    disk_cache.close()


@settings(max_examples=examples(50))
@given(sizes=st.lists(st.tuples(st.integers(1, 40), st.integers(0, 6_000)), max_size=25))
def test_the_limit_is_kept(tmp_path_factory: pytest.TempPathFactory, sizes: list[tuple[int, int]]) -> None:
    """Whatever is parked, the files together never exceed the limit."""
    folder = tmp_path_factory.mktemp("kv")
    disk_cache = make_disk_cache(folder)
    for index, (length, size_bytes) in enumerate(sizes):
        park(disk_cache, [index] * length, size_bytes)
        disk_cache.flush()
        on_disk = sum(file.stat().st_size for file in files(folder))
        assert disk_cache.size_bytes == on_disk <= LIMIT
    disk_cache.close()


def test_a_smaller_limit_is_kept_from_the_start(tmp_path: Path) -> None:
    """An engine that may keep less removes what its predecessor kept beyond that."""
    first = make_disk_cache(tmp_path)
    for token in range(6):
        park(first, [token] * 10)
    first.close()
    second = make_disk_cache(tmp_path, 2_000)
    assert sum(file.stat().st_size for file in files(tmp_path)) <= 2_000
    second.close()


def test_the_limit_is_kept_after_writes_that_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What could not be written takes no room, and is not counted as room that was made."""
    disk_cache = make_disk_cache(tmp_path, 6_000)
    for token in range(3):
        park(disk_cache, [token] * 10, 1_000)
    disk_cache.flush()
    with monkeypatch.context() as patch:
        patch.setattr("vivace.engine.kv.disk_cache.os.open", _full_disk)
        for token in range(3, 9):
            park(disk_cache, [token] * 10, 1_000)
            disk_cache.flush()
    for token in range(10, 30):
        park(disk_cache, [token] * 10, 1_000)
        disk_cache.flush()
        assert sum(file.stat().st_size for file in files(tmp_path)) <= 6_000
    disk_cache.close()


def _full_disk(*_: object) -> int:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_a_session_that_grew_replaces_its_file(tmp_path: Path, disk_cache: DiskCache) -> None:
    """Of a log that is parked again and again only the longest state is kept."""
    for length in (50, 100, 150):
        park(disk_cache, [1] * length)
    disk_cache.flush()
    assert len(files(tmp_path)) == 1
    assert find(disk_cache, [1] * 150)


def test_a_state_too_large_to_keep_costs_no_other(disk_cache: DiskCache) -> None:
    """What does not fit is not kept, and what was kept of the same session stays."""
    park(disk_cache, [1] * 50)
    park(disk_cache, [1] * 100, LIMIT)
    assert find(disk_cache, [1] * 50) == state_of([1] * 50)


def test_parking_the_same_again_saves_nothing_again(disk_cache: DiskCache) -> None:
    """A state that is on disk is not asked for a second time."""
    park(disk_cache, [1] * 50)
    disk_cache.park(ANN, [1] * 50, lambda: pytest.fail("saved again"))


@pytest.mark.parametrize("harm", ["empty", "torn", "longer", "garbage", "deleted"])
@pytest.mark.parametrize("is_before_start", [True, False])
def test_a_harmed_file_is_not_used(tmp_path: Path, harm: str, is_before_start: bool) -> None:
    """A file that is not whole, or is gone, is as if it had never been; the next park writes it anew."""
    disk_cache = make_disk_cache(tmp_path)
    park(disk_cache, [1] * 50)
    disk_cache.flush()
    (file,) = files(tmp_path)
    if is_before_start:
        disk_cache.close()
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
        disk_cache = make_disk_cache(tmp_path)
    assert find(disk_cache, [1] * 50) is None
    assert disk_cache.size_bytes == 0
    park(disk_cache, [1] * 50)
    disk_cache.flush()
    assert find(disk_cache, [1] * 50) == state_of([1] * 50)
    disk_cache.close()


@pytest.mark.parametrize("place", [30, -1])
def test_a_bit_that_turned_is_noticed(tmp_path: Path, place: int) -> None:
    """A state or its tokens that came back different from what was written are not used."""
    disk_cache = make_disk_cache(tmp_path)
    park(disk_cache, [1] * 50)
    disk_cache.close()
    (file,) = files(tmp_path)
    data = bytearray(file.read_bytes())
    data[place] ^= 1
    file.write_bytes(data)
    disk_cache = make_disk_cache(tmp_path)
    found = disk_cache.find(ANN, [1] * 50)
    assert found is None or found.length < 10 or disk_cache.read(found.parked) is None
    disk_cache.close()


def test_a_full_disk_costs_nothing_else(tmp_path: Path) -> None:
    """Where a file may have 4 kB: large states are lost, small ones kept, and nothing is left over."""
    code = """
import resource, sys
from pathlib import Path
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
from vivace.engine.kv.disk_cache import DiskCache
cache = DiskCache(Path(sys.argv[1]), kv_format="test", limit_bytes=1_000_000)
cache.park("ann", [1] * 50, lambda: b"x" * 100_000)
cache.park("ann", [2] * 50, lambda: b"y" * 1_000)
cache.flush()
assert cache.find("ann", [1] * 50).length == 0
assert cache.read(cache.find("ann", [2] * 50).parked) == b"y" * 1_000
assert cache.size_bytes < 2_000
cache.close()
"""
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True)
    assert len(files(tmp_path)) == 1


def test_a_folder_that_vanishes_costs_nothing_else(tmp_path: Path) -> None:
    """Somebody empties the cache while the engine runs: parking goes on in vain, reading finds nothing."""
    folder = tmp_path / "kv"
    disk_cache = make_disk_cache(folder)
    park(disk_cache, [1] * 50)
    disk_cache.flush()
    folder.rename(tmp_path / "elsewhere")
    park(disk_cache, [2] * 50)
    disk_cache.flush()
    assert find(disk_cache, [1] * 50) is None
    assert find(disk_cache, [2] * 50) is None
    disk_cache.close()


def test_a_folder_that_cannot_be_made_is_an_oserror(tmp_path: Path) -> None:
    """Where a file is in the way, whoever starts the engine is told so, and can do without."""
    (tmp_path / "kv").write_text("in the way")
    with pytest.raises(OSError, match="kv"):
        make_disk_cache(tmp_path / "kv")


@pytest.mark.parametrize("salt", [b"", b"short", b"x" * 100])
def test_a_broken_salt_is_made_anew(tmp_path: Path, salt: bytes) -> None:
    """A salt that is not what we wrote neither stops the engine nor is used."""
    (tmp_path / "salt").write_bytes(salt)
    disk_cache = make_disk_cache(tmp_path)
    assert len((tmp_path / "salt").read_bytes()) == 32
    park(disk_cache, [1] * 50)
    assert find(disk_cache, [1] * 50)
    disk_cache.close()


def test_two_engines_use_one_folder(tmp_path: Path) -> None:
    """They have one salt; what one removes or writes harms the other in nothing."""
    first, second = make_disk_cache(tmp_path), make_disk_cache(tmp_path)
    assert first.key("ann") == second.key("ann")
    for disk_cache in (first, second):
        park(disk_cache, [1] * 50)
        disk_cache.flush()
    for file in files(tmp_path):
        file.unlink()
    assert find(first, [1] * 50) is None
    park(first, [1] * 50)
    first.flush()
    assert find(second, [1] * 50) == state_of([1] * 50)
    third = make_disk_cache(tmp_path)
    assert find(third, [1] * 50) == state_of([1] * 50)
    for disk_cache in (first, second, third):
        disk_cache.close()


def test_half_written_files_of_a_living_engine_stay(tmp_path: Path) -> None:
    """A start removes what a dead engine left half-written, not what another one is writing now."""
    disk_cache = make_disk_cache(tmp_path)
    park(disk_cache, [1] * 50)
    disk_cache.close()
    (file,) = files(tmp_path)
    young, old = file.with_name("young.1.part"), file.with_name("old.2.part")
    young.write_bytes(b"half")
    old.write_bytes(b"half")
    os.utime(old, (1_000_000, 1_000_000))
    make_disk_cache(tmp_path).close()
    assert files(tmp_path) == sorted([file, young])


def test_a_prefix_that_a_kept_one_covers_is_not_kept(disk_cache: DiskCache) -> None:
    """Beginnings that differ in a few tokens do not fill the disk."""
    disk_cache.keep_prefix(ANN, [1] * 100, lambda: b"state")
    disk_cache.keep_prefix(ANN, [1] * 95 + [2] * 5, lambda: pytest.fail("saved"))
    disk_cache.keep_prefix(ANN, [1] * 50 + [2] * 50, lambda: b"state")
    assert len(disk_cache.prefixes()) == 2


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
