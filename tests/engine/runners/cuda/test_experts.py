"""The kernels of a mixture of experts against plain torch; each token's results in passes of all sizes."""

from dataclasses import replace

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: vivace extras add cuda")

from tests.engine.runners.cuda.bed import NAN, distance  # noqa: E402
from tests.engine.runners.cuda.emulator import COMPILER  # noqa: E402
from tests.engine.runners.cuda.expert_bed import ExpertBed, some_x  # noqa: E402
from vivace.engine.runners.cuda.model import reference  # noqa: E402
from vivace.engine.runners.cuda.model.shape import Shape  # noqa: E402

pytestmark = pytest.mark.skipif(
    not COMPILER and not torch.cuda.is_available(), reason="neither an NVIDIA GPU nor a C++ compiler"
)
HEAVY = pytest.mark.thorough
FOUR = Shape(
    1, 512, 512, 4, 2, 640, 512, qkv_bias=False, qk_norm=True, experts=16, experts_per_token=4, expert_ffn=128
)
EIGHT = replace(FOUR, experts=32, experts_per_token=8, expert_ffn=192)
CLOSE = {4: 1e-3, 8: 1e-3, 16: 6e-3}  # with the weights as they were rounded; bf16 rounds x and h, too


@pytest.mark.parametrize(
    ("shape", "bits"), [(FOUR, 8), (EIGHT, 4), pytest.param(FOUR, 16, marks=HEAVY)], ids=["8", "4", "16"]
)
def test_experts(shape: Shape, bits: int, seed: int) -> None:
    """x gets what its own experts make of it, each with its share."""
    bed, x = ExpertBed(shape, bits, seed), some_x(shape, 2, seed)
    found = bed.run(x, 2)
    assert distance(found - x, bed.wanted(x) - x) < CLOSE[bits]


def test_scores_are_those_of_the_router(seed: int) -> None:
    """In fp32, of the normalised x: so the choice is the reference's wherever scores are not within 1e-4."""
    bed, x = ExpertBed(EIGHT, 4, seed), some_x(EIGHT, 3, seed)
    bed.run(x, 4)
    y = reference.norm(x, bed.gain.cpu(), EIGHT.norm_epsilon)
    wanted = y @ bed.packed.router.cpu().float().T
    assert distance(bed.scores[:3].cpu(), wanted) < 1e-5


@pytest.mark.parametrize(("shape", "bits"), [(FOUR, 8), (EIGHT, 4)], ids=["8", "4"])
def test_a_token_does_not_depend_on_its_pass(shape: Shape, bits: int, seed: int) -> None:
    """Alone, with padding, with others: the same to the bit."""
    bed, x = ExpertBed(shape, bits, seed), some_x(shape, 5, seed)
    alone = torch.cat([bed.run(x[i : i + 1], 1) for i in range(5)])
    assert torch.equal(bed.run(x, 8), alone)
    assert torch.equal(bed.run(x[[3, 0]], 2), alone[[3, 0]])


def test_the_lower_number_wins_a_tie(seed: int) -> None:
    """Experts with equal scores: the first of them are taken, as in the reference."""
    bed, x = ExpertBed(FOUR, 8, seed), some_x(FOUR, 1, seed)
    bed.packed.router[:] = bed.packed.router[0]
    assert distance(bed.run(x, 1) - x, bed.wanted(x) - x) < CLOSE[8]


@pytest.mark.parametrize("change", [{"expert_part_warps": 2, "expert_up_kb": 12}, {"expert_later_kb": 8}])
def test_cuts_that_change_no_result_but_the_order_of_sums(change: dict[str, int], seed: int) -> None:
    """Fewer warps, a ring that is filled several times, other weights brought near meanwhile."""
    bed, x = ExpertBed(FOUR, 8, seed), some_x(FOUR, 1, seed)
    assert distance(bed.run(x, 1, **change), bed.run(x, 1)) < 1e-6


def test_scores_that_are_no_numbers_read_no_weights_of_nobody(seed: int) -> None:
    """A row that holds anything gets anything, and its neighbour what it would have got."""
    bed, x = ExpertBed(FOUR, 8, seed), some_x(FOUR, 2, seed)
    alone = bed.run(x[:1], 1)
    x[1] = NAN
    assert torch.equal(bed.run(x, 2)[:1], alone)
