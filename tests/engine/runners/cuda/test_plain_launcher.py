"""The stand-in for the kernels in the engine's tests computes what the kernels compute."""

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: vivace extras add cuda")
pytest.importorskip("msgspec", reason="the engine's packages are not installed")

from tests.engine.runners.cuda.bed import Bed, distance  # noqa: E402
from tests.engine.runners.cuda.emulator import COMPILER  # noqa: E402
from tests.engine.runners.cuda.plain_launcher import PlainLauncher  # noqa: E402
from vivace.engine.runners.cuda.model.shape import Shape  # noqa: E402

pytestmark = [
    pytest.mark.skipif(not COMPILER, reason="no C++ compiler"),
    pytest.mark.skipif(torch.cuda.is_available(), reason="the kernels run on the GPU here"),
]


@pytest.mark.parametrize("bits", [4, 8, 16])
def test_a_pass_is_the_kernels_pass(bits: int, seed: int) -> None:
    """Two tokens at a border of pages: the logits, and the KV that they leave."""
    found = []
    for is_plain in (False, True):
        bed = Bed(Shape(1, 512, 1792, 4, 2, 1003, 1280), bits, 2, seed, parts=1)
        if is_plain:
            bed.run_launch = PlainLauncher(bed.plan).run
        bed.fill_kv(63)
        torch.manual_seed(seed)
        bed.buffers.kv[0][~bed.buffers.kv[0].isnan()] = 0.25
        logits = bed.run_pass([5, 700], 63)
        found.append((logits, bed.kv_rows(0, 65), bed.kv_rows(1, 65), bed.buffers.ring[:2].tolist()))
    for kernels, plain in zip(found[0][:3], found[1][:3], strict=True):
        assert distance(plain, kernels) < 0.02
    assert found[0][3] == found[1][3]
