"""The cuts of large models on a small one: padded columns in 8 parts, clusters of 8, short rings."""

from collections.abc import Iterator

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: vivace extras add cuda")

from tests.engine.runners.cuda.bed import Bed, distance  # noqa: E402
from tests.engine.runners.cuda.emulator import COMPILER  # noqa: E402
from vivace.engine.runners.cuda.decode import down_cut  # noqa: E402
from vivace.engine.runners.cuda.model import reference  # noqa: E402
from vivace.engine.runners.cuda.model.shape import Shape  # noqa: E402

pytestmark = pytest.mark.skipif(
    not COMPILER and not torch.cuda.is_available(), reason="neither an NVIDIA GPU nor a C++ compiler"
)
SHAPE = Shape(1, 512, 1408, 4, 2, 323, 1280, qkv_bias=False, qk_norm=True)
SHORT_RINGS = {"qkv_stages": 2, "qkv_tiles": 4, "o_stages": 2, "o_tiles": 4}
# Tokens of a pass, and how it is cut.
CUTS: list[tuple[int, dict[str, int]]] = [(1, {}), (2, {"down_split": 8}), (8, SHORT_RINGS)]


@pytest.fixture
def has_8_parts(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """1,408 columns are many: they are padded to 1,536, in 8 parts of 3 slices."""
    monkeypatch.setattr(down_cut, "WIDE_COLUMNS", 1024)
    down_cut.down_cut.cache_clear()
    yield
    down_cut.down_cut.cache_clear()


@pytest.mark.usefixtures("has_8_parts")
@pytest.mark.parametrize("bits", [8, pytest.param(4, marks=pytest.mark.thorough)])
def test_large_cuts_agree_to_the_bit(bits: int, seed: int) -> None:
    """Logits of 8 tokens are the same however the work is cut, and those of plain torch."""
    tokens = torch.randint(0, SHAPE.vocab, (8,), generator=torch.Generator().manual_seed(seed)).tolist()
    found = []
    for size, tuning in CUTS:
        bed = Bed(SHAPE, bits, size, seed, tuning=tuning)
        assert bed.plan.down_slices == (8, 3)
        assert bed.plan.down_columns == 1536
        found.append(torch.cat([bed.run_pass(tokens[at : at + size], at) for at in range(0, 8, size)]))
        assert torch.equal(found[-1], found[0]), (size, tuning)
    wanted = reference.forward(SHAPE, bed.plain, torch.tensor(tokens, device=bed.device), bed.model.rotation)
    assert distance(found[0], wanted) < (0.03 if bits == 8 else 0.2)
