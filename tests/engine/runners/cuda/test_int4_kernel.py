"""Rounding to 4 bits in Triton against plain torch."""

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: vivace extras add cuda")

from tests.engine.runners.cuda.triton_here import HAS_GPU  # noqa: E402
from vivace.engine.runners.cuda.weights.int4 import (  # noqa: E402
    SPANS,
    Int4Weights,
    round_rows,
    round_to_int4,
    widen,
)
from vivace.engine.runners.cuda.weights.int4_kernel import round_groups  # noqa: E402

DEVICE = "cuda" if HAS_GPU else "cpu"


def some_rows(seed: int) -> "torch.Tensor":  # type: ignore[name-defined]
    """Rows of several sizes: one of zeros, one above and one below zero, and one with a stray weight."""
    torch.manual_seed(seed)
    rows = torch.randn(40, 192) * torch.logspace(-6, 2, 40)[:, None]
    rows[0] = 0.0
    rows[1], rows[2] = rows[1].abs(), -rows[2].abs()
    rows[3, 5] *= 1000
    return rows.to(torch.bfloat16)


def test_groups_are_rounded_as_in_plain_torch(seed: int) -> None:
    """The same steps, zeros and integers, but where two steps are equally good: there the same error."""
    rows = some_rows(seed)
    plain = round_rows(rows)
    unit = plain.scales * 16
    integers, step, zero = (each.cpu() for each in round_groups(rows.to(DEVICE), unit.to(DEVICE), SPANS))
    found = Int4Weights(integers, step, zero, plain.scales)
    is_same = (found.step == plain.step) & (found.zero == plain.zero)
    assert is_same.float().mean() > 0.98
    assert torch.equal(found.integers[is_same], plain.integers[is_same])
    errors = [
        (widen(each) - rows.float()).reshape(*plain.step.shape, -1).square().sum(-1)
        for each in (found, plain)
    ]
    assert torch.allclose(*errors, rtol=1e-4, atol=0.0)


@pytest.mark.skipif(not HAS_GPU, reason="no NVIDIA GPU on this machine")
def test_units_are_those_of_plain_torch(seed: int) -> None:
    rows = some_rows(seed)
    assert torch.allclose(round_to_int4(rows.cuda()).scales.cpu(), round_rows(rows).scales, rtol=1e-6)
