"""Rounding to 4 bits on the GPU, in Triton: all that `int4.round_rows` does to a weight, in one kernel.

A program has some groups of 32 and tries all spans while they are in registers. Numbers are those of plain
torch; where two spans are equally good but for rounding, the other may be taken. Owns the kernel.
"""

import torch  # type: ignore[import-not-found,unused-ignore]
import triton  # type: ignore[import-not-found,import-untyped,unused-ignore]
import triton.language as tl  # type: ignore[import-not-found,import-untyped,unused-ignore]

GROUP = 32
GROUPS = 64  # of one program
WARPS = 4
_ROUNDING = tl.constexpr(12582912.0)  # 1.5 * 2^23: a float of that size has no fraction


def round_groups(
    weight: torch.Tensor, unit: torch.Tensor, spans: range
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return integers [rows, groups, 32], steps and zeros [rows, groups]. `unit` has one number a row."""
    rows, columns = weight.shape
    groups = columns // GROUP
    integers = torch.empty(rows, groups, GROUP, dtype=torch.uint8, device=weight.device)
    step, zero = (integers.new_empty(rows, groups) for _ in range(2))
    count = rows * groups
    _round[(triton.cdiv(count, GROUPS),)](
        *(weight.contiguous(), unit, integers, step, zero, count),
        *(groups, GROUP, GROUPS, spans[0], len(spans)),
        num_warps=WARPS,
    )
    return integers, step, zero


@triton.jit  # type: ignore[untyped-decorator,unused-ignore]
def _rint(x):  # type: ignore[no-untyped-def]
    """Round as torch does, half to even, what is far below 2^22."""
    return (x + _ROUNDING) - _ROUNDING


@triton.jit  # type: ignore[untyped-decorator,unused-ignore]
def _clamp(x, low, high):  # type: ignore[no-untyped-def]
    return tl.minimum(tl.maximum(x, low), high)


@triton.jit  # type: ignore[untyped-decorator,unused-ignore]
def _round(  # type: ignore[no-untyped-def]
    weight, units, integers, steps, zeros, count,
    GROUPS_OF_ROW: tl.constexpr, GROUP: tl.constexpr, GROUPS: tl.constexpr, LARGEST: tl.constexpr,
    SPANS: tl.constexpr,
):  # fmt: skip
    group = tl.program_id(0).to(tl.int64) * GROUPS + tl.arange(0, GROUPS)
    is_there = group < count
    places = group[:, None] * GROUP + tl.arange(0, GROUP)[None, :]
    w = tl.load(weight + places, mask=is_there[:, None], other=0.0).to(tl.float32)
    unit = tl.load(units + group // GROUPS_OF_ROW, mask=is_there, other=1.0)
    least = tl.minimum(tl.min(w, 1), 0.0)  # zero itself is always on the scale
    width = tl.maximum(tl.max(w, 1), 0.0) - least
    best_step = tl.zeros([GROUPS], tl.float32)
    best_zero = tl.zeros([GROUPS], tl.float32)
    error = tl.full([GROUPS], float("inf"), tl.float32)
    for at in tl.static_range(SPANS):
        step = _clamp(_rint(tl.div_rn(width, (LARGEST - at) * unit)), 1.0, 255.0)
        size = step * unit
        zero = _clamp(_rint(tl.div_rn(-16.0 * least, size)), 0.0, 255.0)
        found = _clamp(_rint(tl.div_rn(w, size[:, None]) + (zero / 16.0)[:, None]), 0.0, 15.0)
        off = tl.div_rn((16.0 * found - zero[:, None]) * (size / 16.0)[:, None] - w, unit[:, None])
        squares = tl.sum(off * off, 1)
        is_better = squares < error
        best_step = tl.where(is_better, step, best_step)
        best_zero = tl.where(is_better, zero, best_zero)
        error = tl.minimum(squares, error)
    size = best_step * unit
    chosen = _clamp(_rint(tl.div_rn(w, size[:, None]) + (best_zero / 16.0)[:, None]), 0.0, 15.0)
    tl.store(integers + places, chosen.to(tl.uint8), mask=is_there[:, None])
    tl.store(steps + group, best_step.to(tl.uint8), mask=is_there)
    tl.store(zeros + group, best_zero.to(tl.uint8), mask=is_there)
