"""Dense models of all sizes: what each has room for on a Hopper, in shared memory and in memory."""

import pytest

pytest.importorskip("torch", reason="torch is not installed: vivace extras add cuda")

from vivace.engine.runners.cuda.decode.down_cut import MOST_WARPS, down_columns
from vivace.engine.runners.cuda.decode.plan import PASS_TOKENS, SHARED_BYTES, Plan, fitting_passes
from vivace.engine.runners.cuda.load import GpuOptions, weight_bytes, with_prefill
from vivace.engine.runners.cuda.model.shape import KNOWN_SHAPES
from vivace.engine.runners.cuda.rows.passes import batch_plans

DENSE = {name: shape for name, shape in KNOWN_SHAPES.items() if shape.is_dense}
# The largest pass in 4, 8 and 16 bits: what drafts can be, and how many rows share the narrow kernels.
LARGEST = {
    "qwen2.5-coder-1.5b": (32, 32, 32), "qwen2.5-coder-3b": (32, 32, 32), "qwen2.5-coder-7b": (32, 32, 8),
    "qwen2.5-coder-14b": (8, 8, 4), "qwen2.5-coder-32b": (8, 8, 4), "qwen3-0.6b": (32, 32, 32),
    "qwen3-1.7b": (32, 32, 32), "qwen3-4b": (32, 32, 32), "qwen3-8b": (32, 32, 8),
    "qwen3-14b": (8, 8, 4), "qwen3-32b": (8, 8, 4),
}  # fmt: skip
H200_BYTES, H100_BYTES = 149_000_000_000, 84_000_000_000


@pytest.mark.parametrize("name", DENSE)
def test_every_shape_has_room(name: str) -> None:
    """Shared memory, clusters and warps of every pass of every format are within a Hopper's limits."""
    shape, largest = DENSE[name], []
    for bits in (4, 8, 16):
        sizes = fitting_passes(shape, bits)
        largest.append(sizes[-1])
        assert sizes == PASS_TOKENS[: len(sizes)]
        cuts = {Plan(shape, bits, size).down_slices for size in sizes}
        assert len(cuts) == 1, "the order of sums would depend on the size of the pass"
        plans = [Plan(shape, bits, size) for size in sizes] + batch_plans(shape, bits, 132, 16)
        for plan in plans:
            split, warps = plan.down
            assert warps <= MOST_WARPS
            assert plan.down_columns % (64 * split * warps) == 0
            for size in plan.sizes(1).values():
                assert size.cluster <= 16
                assert size.grid[0] % size.cluster == 0
                assert size.threads <= 1024
            assert plan.shared_bytes <= SHARED_BYTES
    assert tuple(largest) == LARGEST[name]


@pytest.mark.parametrize("name", DENSE)
def test_few_columns_are_padded(name: str) -> None:
    """The down projection is padded by at most 5.5%, and at least 20 warps share its columns."""
    parts, slices = Plan(DENSE[name], 8, 1).down_slices
    assert DENSE[name].ffn <= down_columns(DENSE[name]) <= 1.055 * DENSE[name].ffn
    assert parts * slices >= 20


@pytest.mark.parametrize(
    ("name", "bits", "free_bytes", "way"),
    [
        ("qwen2.5-coder-7b", 8, H100_BYTES, "fp8"),
        ("qwen2.5-coder-14b", 8, H100_BYTES, "fp8"),
        ("qwen2.5-coder-32b", 16, H200_BYTES, "packed"),
        ("qwen2.5-coder-32b", 4, H200_BYTES, "fp8"),
        ("qwen2.5-coder-32b", 8, H200_BYTES, "fp8"),
        ("qwen2.5-coder-32b", 8, H100_BYTES, "packed"),
        ("qwen2.5-coder-32b", 4, H100_BYTES, "packed"),
    ],
)
def test_a_prefill_that_has_room(name: str, bits: int, free_bytes: int, way: str) -> None:
    """A 32B on a smaller GPU reads prompts out of its packed weights; others have copies for it."""
    chosen = with_prefill(GpuOptions(0, weight_bits=bits), DENSE[name], free_bytes)
    assert chosen.prefill_format == way
    assert weight_bytes(DENSE[name], bits, way) < 0.6 * free_bytes


def test_a_prefill_that_was_chosen_stays() -> None:
    """What somebody has asked for is not changed; whether it has room is checked later."""
    asked = GpuOptions(0, prefill="bf16")
    assert with_prefill(asked, DENSE["qwen2.5-coder-32b"], H100_BYTES) == asked
