"""The product of many rows in Triton against plain torch: the same sums, to the bit."""

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: vivace extras add cuda")

from tests.engine.runners.cuda.triton_here import HAS_GPU  # noqa: E402
from vivace.engine.runners.cuda.rows import product  # noqa: E402
from vivace.engine.runners.cuda.rows.launches import Cut  # noqa: E402
from vivace.engine.runners.cuda.rows.product import Tile, launch, plain_sums  # noqa: E402
from vivace.engine.runners.cuda.weights import layout  # noqa: E402

DEVICE = "cuda" if HAS_GPU else "cpu"
CASES = [(32, 72, Cut(1, 8, 64)), (16, 64, Cut(4, 7, 64)), (16, 40, Cut(2, 2, 320))]


@pytest.mark.parametrize(("rows", "count", "cut"), CASES)
@pytest.mark.parametrize("tile", [Tile(32, 4, 2), Tile(32, 4, blocks=4)], ids=["slices", "blocks"])
def test_sums_are_those_of_plain_torch(rows: int, count: int, cut: Cut, tile: Tile, seed: int) -> None:
    """Slices are summed as integers and added in their order, also where the last tile is not whole."""
    torch.manual_seed(seed)
    columns = cut.parts * cut.slices * cut.columns
    weights = torch.randint(-127, 128, (count * columns,), dtype=torch.int8)
    digits = torch.randint(-127, 128, (2, rows, columns), dtype=torch.int8)
    sums = torch.full((cut.parts, rows, count), float("nan"), device=DEVICE)
    launch(digits.to(DEVICE), weights.to(DEVICE), sums, cut, tile)
    assert torch.equal(sums.cpu(), plain_sums(digits, weights, cut))


def test_weights_are_read_as_they_lie(seed: int) -> None:
    """With the digits in the same order within 64 columns, the sums are those of the matrix itself."""
    torch.manual_seed(seed)
    matrix = torch.randint(-127, 128, (16, 128), dtype=torch.int8)
    plain = torch.randint(-127, 128, (2, 16, 128), dtype=torch.int8)
    column = torch.arange(128)
    place = column // 64 * 64 + column % 32 // 8 * 16 + column % 64 // 32 * 8 + column % 8
    digits = torch.empty_like(plain)
    digits[:, :, place] = plain
    sums = plain_sums(digits, layout.tile(matrix, 64), Cut(1, 1, 128))
    exact = (plain.double() @ matrix.double().T).float()
    assert torch.equal(sums[0], 256 * exact[0] + exact[1])


def test_sums_are_the_same_where_slices_are_long(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without room for two slices at once their blocks come one by one; the last tile is not whole."""
    monkeypatch.setattr(product, "MOST_BYTES", 0)
    test_sums_are_those_of_plain_torch(16, 40, Cut(2, 2, 320), Tile(32, 4, 2), seed)
