"""The memory of all KV pages, in bf16 or rounded to 8 bits.

In 8 bits every 16 dimensions of a head have a scale of their own: 8 neighbours and the 8 that turn with them,
since Qwen2.5's keys have a few dimensions that are up to 300 times larger than the rest, and rotation mixes
each with its partner (docs/gpu-notes.md has the errors of other ways). Owns the shape of a page and, in plain
torch, the numbers that kernels/kv.cuh makes. Does not own which sequence has which page (`pages`).
"""

import torch  # type: ignore[import-not-found,unused-ignore]

from vivace.engine.runners.cuda.model.shape import HEAD_DIM, PAGE_TOKENS, SCALE_BYTES, Shape

GROUP = 16  # dimensions that share a scale
KV_BITS = (16, 8)
_LOW = torch.arange(HEAD_DIM // 2).reshape(-1, GROUP // 2)
ORDER = torch.cat([_LOW, _LOW + HEAD_DIM // 2], dim=1).reshape(-1)  # byte of a row → its dimension
SCALE_ORDER = torch.tensor([0, 4, 1, 5, 2, 6, 3, 7])  # place among a row's scales → its group


def make_pool(
    shape: Shape, pages: int, bits: int, device: torch.device | str, layers: int | None = None
) -> torch.Tensor:
    """Return [layers][pages][2][kv_heads][64][128] of bf16, or [72][128] of bytes with scales at the end."""
    assert bits in KV_BITS
    rows = PAGE_TOKENS if bits == 16 else PAGE_TOKENS * (HEAD_DIM + SCALE_BYTES) // HEAD_DIM
    size = (layers or shape.layers, pages, 2, shape.kv_heads, rows, HEAD_DIM)
    return torch.zeros(size, dtype=torch.bfloat16 if bits == 16 else torch.uint8, device=device)


def make_unpacked(shape: Shape, pages: int, device: torch.device | str) -> torch.Tensor:
    """Return memory for one layer of one sequence in bf16, which a prefill reads instead of 8 bits."""
    return make_pool(shape, pages, 16, device, layers=1)[0]


def bits_of(kv: torch.Tensor) -> int:
    return 8 if kv.dtype == torch.uint8 else 16


def pack_rows(rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Pack keys or values [… , 128] into bytes [… , 128] and scales [… , 8], in the order of the pages."""
    groups = rows.float()[..., ORDER.to(rows.device)].reshape(*rows.shape[:-1], -1, GROUP)
    most = groups.abs().amax(-1, keepdim=True)
    scales = (most * (1 / 127)).to(torch.bfloat16)
    to_integer = torch.where(most > 1e-30, 1 / scales.float(), 0.0)
    integers = torch.round(groups * to_integer).clamp(-127, 127)
    order = SCALE_ORDER.to(rows.device)
    return (integers + 128).to(torch.uint8).flatten(-2), scales.squeeze(-1)[..., order]


def unpack_rows(packed: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    """Return packed rows as the attention reads them, in bf16."""
    plain_scales = torch.empty_like(scales).index_copy_(-1, SCALE_ORDER.to(scales.device), scales)
    groups = packed.reshape(*packed.shape[:-1], -1, GROUP).float() - 128
    ordered = (groups * plain_scales.float()[..., None]).flatten(-2).to(torch.bfloat16)
    return torch.empty_like(ordered).index_copy_(-1, ORDER.to(packed.device), ordered)


def rounded(rows: torch.Tensor) -> torch.Tensor:
    """Return rows as they come back from 8 bits, in fp32. A `reference.RoundKV`."""
    return unpack_rows(*pack_rows(rows)).float()


def split_page(held: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return views of the rows [… , 64, 128] and the scales [… , 64, 8] of pages in 8 bits."""
    tail = held[..., PAGE_TOKENS:, :].flatten(-2).view(torch.bfloat16)
    return held[..., :PAGE_TOKENS, :], tail.view(*tail.shape[:-1], PAGE_TOKENS, -1)


def read_pages(held: torch.Tensor) -> torch.Tensor:
    """Return pages of either format as [… , 64, 128] of bf16."""
    return held if bits_of(held) == 16 else unpack_rows(*split_page(held))
