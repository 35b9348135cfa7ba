"""Our own attention of a chunk of a prompt (kernels/prompt_attention.cuh): how it is launched."""

import torch  # type: ignore[import-not-found,unused-ignore]

from vivace.engine.runners.cuda.decode.launch import Launch, Tiles
from vivace.engine.runners.cuda.decode.launches import LOG2_E
from vivace.engine.runners.cuda.decode.plan import Size
from vivace.engine.runners.cuda.model.shape import HEAD_DIM, PAGE_TOKENS, Shape

ROWS = 64  # of a task
TEAMS, SHORT_TEAMS = 3, 2  # of a block
TILE_BYTES = PAGE_TOKENS * HEAD_DIM * 2
SLOTS, SHORT_SLOTS = 5, 6  # of keys and values


def prompt_attention(
    shape: Shape,
    state: torch.Tensor,
    rows: torch.Tensor,  # [size, heads and those of k and v, 128]
    kv: torch.Tensor,  # one layer's: [pages, 2, kv_heads, 64, 128]
    pages: torch.Tensor,
    mixed: torch.Tensor,  # [size, heads * 128]
    scale: float,
    *,
    is_short: bool,
) -> Launch:
    """Return the launch for a chunk of up to `len(rows)` tokens. In a short one a block has one task."""
    tasks = -(-len(rows) // ROWS) * shape.heads // shape.kv_heads
    here, teams, slots = (1, SHORT_TEAMS, SHORT_SLOTS) if is_short else (TEAMS, TEAMS, SLOTS)
    shared_bytes = (here + 2 * slots) * TILE_BYTES + 16 * slots + 16
    size = Size((-(-tasks // here), shape.kv_heads, 1), (teams + 1) * 128, 1, shared_bytes)
    name = "short_prompt_attention" if is_short else "prompt_attention"
    arguments = (state, rows, rows.stride(0), Tiles(kv), pages, mixed, scale * LOG2_E)
    return Launch(name, size, arguments, overlaps=False)
