"""Harm to files and folders of parked KV costs a prefill, and nothing else."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.engine.kv.parked_desk import ANN, files, find, make_parked_cache, park, state_of


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
assert cache.read(cache.find("ann", [2] * 50).parked).state == b"y" * 1_000
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
