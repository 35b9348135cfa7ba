"""Our own gate and up of a chunk of a prompt, with SiLU (kernels/prompt_feed.cuh): how it is launched."""

import torch  # type: ignore[import-not-found,unused-ignore]

from vivace.engine.runners.cuda.decode.launch import Launch, Tiles
from vivace.engine.runners.cuda.decode.plan import Size

ROWS, COLUMNS = 128, 96  # of a tile: tokens, and columns of gate and of up
SLOTS = 5
SHARED_BYTES = SLOTS * (ROWS + 2 * COLUMNS) * 128 + 16 * SLOTS + 16
THREADS = 3 * 128


def prompt_gate_up(
    rows: torch.Tensor,  # [size, hidden] in 8-bit floats
    weights: torch.Tensor,  # [2 * ffn, hidden]
    scale: torch.Tensor,  # of each row
    unit: float,  # of the weights
    h: torch.Tensor,  # [size, ffn]
    *,
    blocks: int,
) -> Launch:
    """Return the launch that writes silu(gate) * up to `h`."""
    tiles = -(-len(rows) // (2 * ROWS)) * -(-h.shape[1] // COLUMNS)
    size = Size((2 * min(blocks // 2, tiles), 1, 1), THREADS, 2, SHARED_BYTES)
    arguments = (Tiles(rows, ROWS // 2), Tiles(weights, COLUMNS // 2), scale, unit, h, len(rows))
    return Launch("prompt_gate_up", size, arguments, overlaps=False)
