"""How the columns of the down projection are cut: in parts with a sum each, of slices that warps have.

Owns what a token's sums depend on; so every pass of a model has the same cut. Does not own who has a slice
(`plan`).
"""

import functools

from vivace.engine.runners.cuda.model.shape import Shape

# How many slices the down projection's columns have, and how much longer it takes than with the most: a warp
# has a slice, and few warps do not keep a multiprocessor busy.
SLICE_COSTS = {32: 1.0, 28: 1.0, 24: 1.02, 20: 1.06, 16: 1.12, 12: 1.25, 8: 1.5, 4: 3.0}
MOST_WARPS = 16  # of a block of the down projection, besides the one that fetches
WIDE_COLUMNS = 18_432  # from here on 16 tokens do not fit beside a fourth of the columns


@functools.cache
def down_cut(shape: Shape) -> tuple[int, int]:
    """Return parts of the down projection's columns and slices of a part. A token's sums depend on both."""
    parts = 8 if shape.ffn > WIDE_COLUMNS else 4
    _, slices = min(
        (-(-shape.ffn // (64 * count)) * count * cost, -count)
        for count, cost in SLICE_COSTS.items()
        if count % parts == 0
    )
    return parts, -slices // parts


def down_columns(shape: Shape) -> int:
    """Return the columns of the down projection with zeros at the end, so that its slices are alike."""
    if not shape.is_dense:
        return shape.ffn
    parts, slices = down_cut(shape)
    return -(-shape.ffn // (64 * parts * slices)) * 64 * parts * slices
