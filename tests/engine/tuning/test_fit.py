"""What this machine can run, worked out before a download."""

import os
import subprocess
import sys

import msgspec
import pytest

from vivace.config import Settings
from vivace.engine.tuning import fit as fit_module
from vivace.engine.tuning.fit import Machine, fit, read_bandwidth, this_machine
from vivace.models.catalog import Memory


class Model(msgspec.Struct, frozen=True):
    size_bytes: int
    active_share: float = 1.0
    kv_token_bytes: int = 0
    memory: Memory = "exact"


LAPTOP = Machine("", memory_bytes=32 * 10**9, bytes_per_second=40e9, measured_with="")


def test_speed_is_bandwidth_by_bytes_read() -> None:
    """A model of 4 GB at 40 GB/s makes 10 tokens a second; of a mixture only what is active counts."""
    assert fit(LAPTOP, Model(4 * 10**9), 4096).tokens_per_second == pytest.approx(10)
    assert fit(LAPTOP, Model(4 * 10**9, 0.1), 4096).tokens_per_second == pytest.approx(100)


def test_memory_decides_whether_it_fits() -> None:
    """Weights and KV must fit into the share of memory that models may take, or into the GPU's."""
    assert fit(LAPTOP, Model(10 * 10**9), 4096).fits
    large = fit(LAPTOP, Model(20 * 10**9), 4096)
    assert not large.fits
    assert large.words == "too large: 22.4 of 19.2 GB"
    with_gpu = msgspec.structs.replace(LAPTOP, gpu_bytes=24 * 10**9)
    assert fit(with_gpu, Model(20 * 10**9), 4096).words == "fits the GPU"


def test_a_gpus_speed_is_estimated_by_its_bandwidth() -> None:
    """Decoding reaches 60% of it; a mixture's many small kernels take a time of their own."""
    gpu = msgspec.structs.replace(LAPTOP, gpu_bytes=24 * 10**9, gpu_bytes_per_second=1000e9)
    assert fit(gpu, Model(6 * 10**9), 4096).words == "about 100 tok/s on the GPU"
    assert fit(gpu, Model(6 * 10**9, 0.1), 4096).words == "about 200 tok/s on the GPU"


def test_what_was_measured_is_said_plainly() -> None:
    """An estimate is "about"; a measurement takes its place."""
    assert fit(LAPTOP, Model(4 * 10**9), 4096).words == "about 10 tok/s"
    assert fit(LAPTOP, Model(4 * 10**9), 4096, measured=7.0).words == "7 tok/s"


def test_the_kv_of_a_token_counts_where_it_is_known() -> None:
    """A hybrid's KV is a fraction of what its size suggests."""
    guessed, known = (fit(LAPTOP, Model(10 * 10**9, 1.0, each), 16_384) for each in (0, 20_000))
    assert guessed.needed_bytes - known.needed_bytes > 3 * 10**9


def test_states_and_checkpoints_count() -> None:
    """A window's checkpoints take up to a GiB, recurrent states and theirs two."""
    kinds: tuple[Memory, ...] = ("exact", "bounded", "checkpoints")
    needed = [fit(LAPTOP, Model(10**9, memory=kind), 4096).needed_bytes for kind in kinds]
    assert [each - needed[0] for each in needed] == [0, 1 << 30, 2 << 30]


def test_the_best_measurement_stays(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that is busy now is not slower for ever; a damaged file is measured anew."""
    measured = iter([30e9, 10e9, 20e9])
    monkeypatch.setattr(fit_module, "read_bandwidth", lambda _: next(measured))
    assert [this_machine(settings).bytes_per_second for _ in range(2)] == [30e9, 30e9]
    (settings.cache_dir / "bandwidth.json").write_text("{")
    assert this_machine(settings).bytes_per_second == 20e9


def test_bandwidth_is_measured() -> None:
    """Memory is read at more than 100 MB/s on any machine."""
    assert read_bandwidth(1) > 1e8


def test_a_busy_machine_has_the_same_memory() -> None:
    """Programs that take nearly all of the CPU do not make the memory look a hundred times slower."""
    others = [
        subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(os.cpu_count() or 1)
    ]
    try:
        program = "import os; os.nice(19)\nfrom vivace.engine.tuning.fit import read_bandwidth\n"
        asked = [sys.executable, "-c", f"{program}print(read_bandwidth(2))"]
        done = subprocess.run(asked, capture_output=True, text=True, timeout=300, check=True)
    finally:
        for other in others:
            other.kill()
            other.wait()
    assert float(done.stdout) > 1e9
