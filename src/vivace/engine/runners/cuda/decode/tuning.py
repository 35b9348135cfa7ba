"""How deep rings are, how work is cut and when kernels start: what was measured to be quick on an H200.

Owns every tuning constant and which pass has which. Does not own what shared memory leaves of it (`plan`),
nor the numbers that a token's sums depend on.
"""

from dataclasses import dataclass, replace

from vivace.engine.runners.cuda.model.shape import Shape

WIDE_ROWS = 32  # in 8 bits, passes of this many rows and more have large products


@dataclass(frozen=True)
class Tuning:
    """Depth of each ring in tiles, and tiles between two meetings of a block's warps."""

    qkv_stages: int
    o_stages: int
    up_stages: int
    up_group: int
    down_stages: int
    down_group: int
    head_stages: int
    head_group: int
    qkv_tiles: int = 0  # of one block; 0: as many as its ring holds
    o_tiles: int = 0
    down_split: int = 2  # least blocks that share the down projection's columns, for up to 4 tokens
    keep_registers: int = 24
    late_start: int = 0b01000  # a bit for each kernel of a layer
    pace_bytes: int = 24576
    attention_warps: int = 4
    attention_cluster: int = 8
    attention_ranks: int = 1  # in a batch: so many of a cluster's blocks are one, which does the work of each
    early_blocks: int = 1  # in a batch: runs of positions that are brought to L2 before the wait
    is_wide: bool = False  # in a batch: large products, and what stands between them is done once
    attention_tiles: int = 1  # of 16 rows that share a reading of keys and values; no more than there are
    # In a pass over one draft (kernels/draft_attention.cuh):
    draft_tiles: int = 0  # of 16 rows, that share a block's reading; 0: no row shares any
    draft_blocks: int = 1  # on a multiprocessor, that must have room for their registers
    # (tokens of context, clusters): up to this context as many clusters share a key head.
    attention_parts: tuple[tuple[int, int], ...] = ((1024, 1), (2048, 2), (10240, 4))
    tiles_at_once: int = 2  # that a warp multiplies: half a ring, for the other half to come meanwhile
    # The whole cache as shared memory, for all kernels alike: a multiprocessor changes the share only when it
    # is empty. Then kernels to come begin early everywhere; that pays where memory is not the limit.
    takes_all_shared: bool = False
    is_clustered: bool = False  # q, k, v, attention and out of one token are one kernel, the rest another
    # Of a mixture of experts (`decode/experts.py`), in passes of all sizes.
    expert_up_kb: int = 108  # of the ring of gate and up: that of down should fit beside it
    expert_down_stages: int = 2
    expert_blocks: int = 1  # of each of its kernels, that are on a multiprocessor at once
    expert_part_warps: int = 1  # that share an expert's columns of the down projection, if they divide
    expert_down_registers: int = 88  # of a thread: then a block has room beside one of gate and up
    expert_up_blocks: int = 2  # of gate and up, that have room for their registers
    expert_early_x: bool = False  # whether x is staged while the router computes
    expert_group: int = 0  # most tokens for which an expert's weights are read once; 0: for each one
    serves_groups: bool = False  # of the module that has the kernels of such groups
    expert_later_kb: int = 0  # of what the next layer reads first, brought to L2 while the router computes


# Measured on an H200 (docs/gpu-notes.md). The attention's cut is the same in every pass over a format's
# weights, so that a token comes out the same from any of them.
TUNINGS = {
    4: Tuning(
        *(2, 2, 16, 18, 3, 4, 12, 16),  # nearly all of up and down at once: both fit on a multiprocessor
        late_start=0b10000,
        attention_cluster=16,
        attention_parts=((3072, 1), (10240, 4)),
        pace_bytes=27648,
        tiles_at_once=6,
        takes_all_shared=True,
    ),
    8: Tuning(
        *(2, 2, 12, 18, 3, 4, 12, 16),
        late_start=0b11000,
        attention_cluster=16,
        pace_bytes=36864,
        tiles_at_once=6,
        expert_up_kb=90,
    ),
    16: Tuning(*(2, 2, 6, 18, 2, 4, 6, 16), late_start=0b11000, attention_warps=8),
}


def near_tuning(tuning: Tuning) -> Tuning:
    """Return the tuning of a token behind a short context: q, k, v, attention and out are one kernel.

    Both of a layer's kernels start as early as they can: each has multiprocessors of its own.
    """
    return replace(tuning, is_clustered=True, late_start=0, pace_bytes=61440)


# One token of a wide model: memory is the limit in 4 bits, too, and a shorter ring leaves room for the next
# kernel. Measured with the shape of the 7B. The attention's cut must stay that of `TUNINGS`.
LARGE_HIDDEN = 3072
LARGE_TUNINGS = {
    4: replace(TUNINGS[4], up_stages=8, tiles_at_once=4, late_start=0b11000, takes_all_shared=False),
    8: replace(TUNINGS[8], up_stages=4, tiles_at_once=2),
}


# `draft_tiles` and `draft_blocks` by bits of a weight and tokens of a pass, where they gain. 16 tokens of the
# 1.5B in 8 bits do not; of the 30B-A3B in 4 bits behind 1200 tokens 6097 → 5906 µs, 32 of them 10055 → 9360.
DRAFTS = {4: {16: (8, 1), 32: (8, 1)}, 8: {32: (6, 1), 64: (6, 2)}, 16: {}}
OSS_DRAFTS = {16: (8, 1), 32: (16, 1)}  # heads of 64 need half of the registers: 32 tokens 9124 → 8287 µs


def verify_tuning(bits: int, tokens: int) -> Tuning:
    """Return the tuning of passes over several tokens, whose activations take memory from the rings."""
    group = {2: 18, 4: 10, 8: 8}.get(tokens, 4)
    # Staging many rows takes longer than a few tiles more: fewer blocks of qkv stage them.
    small = 2 if tokens == 2 or (tokens == 4 and bits <= 8) else 4
    one = TUNINGS[bits]
    tiles, blocks = DRAFTS[bits].get(tokens, (0, 1))
    return Tuning(
        *(small, small, 8 if tokens <= 4 or bits <= 8 else 6, group, 4, 2, 8, group),
        o_tiles=2 if tokens >= 8 and bits <= 8 else 0,  # 16 tokens of the 1.5B: 1397 → 1376 µs
        # In 4 bits what is kept leaves no room for more: 16 tokens of the 30B-A3B 5655 → 5348 µs without.
        keep_registers=24 if tokens == 2 or (tokens >= 8 and bits == 4) else 96,
        late_start=0b11111,
        attention_warps=one.attention_warps,
        attention_cluster=one.attention_cluster,
        attention_tiles=2 if tokens >= 16 else 1,
        attention_parts=one.attention_parts,
        draft_tiles=tiles,
        draft_blocks=blocks,
    )


# Blocks of the attention that are one in a batch of so many rows: many rows are blocks enough. Two are left
# at least: a block that sends to itself without a cluster is suspected of an illegal instruction.
RANKS = {2: 1, 4: 2, 8: 2, 16: 4, 32: 4, 64: 8}


def batch_tuning(bits: int, rows: int) -> Tuning:
    """Return the tuning of passes over several sequences. No field changes what a row's numbers are."""
    tuning = verify_tuning(bits, rows)
    ranks = min(RANKS[rows], max(1, tuning.attention_cluster // 2))
    return replace(
        tuning,
        attention_cluster=tuning.attention_cluster // ranks,
        attention_ranks=ranks,
        attention_tiles=1,
        is_wide=bits == 8 and rows >= WIDE_ROWS,
    )


# Tokens of a group of one expert, in passes of so many tokens (`decode/expert_groups.py`), as measured: of
# gpt-oss, where 16 tokens choose 64 times among 32 experts, and of Qwen3-Coder-30B-A3B, which has 128.
OSS_GROUPS = {4: 2, 8: 4, 16: 4, 32: 8}
EXPERT_GROUPS = {16: 4, 32: 4}


def default_tuning(shape: Shape, bits: int, tokens: int, *, is_batch: bool) -> Tuning:
    """Return the tuning of a pass that nobody has chosen one for."""
    if is_batch or tokens > 1:
        several = batch_tuning(bits, tokens) if is_batch else verify_tuning(bits, tokens)
        groups = OSS_GROUPS if shape.oss else EXPERT_GROUPS if shape.experts else {}
        if shape.oss:
            tiles, blocks = OSS_DRAFTS.get(tokens, (0, 1))
            several = replace(several, draft_tiles=tiles, draft_blocks=blocks)
        return replace(several, expert_group=groups.get(tokens, 0))
    is_large = shape.hidden >= LARGE_HIDDEN and bits in LARGE_TUNINGS
    one = LARGE_TUNINGS[bits] if is_large else TUNINGS[bits]
    if not shape.experts:
        return one
    if shape.oss:
        # 2880 columns are 3 x 15 x 64. A ring of 9 tiles, two of them at once: 1586 → 1242 µs a step.
        one = replace(one, expert_part_warps=3, tiles_at_once=2, expert_up_kb=110)
        return replace(one, qkv_stages=4, late_start=0b10111)
    # Of Qwen3-Coder-30B-A3B in 4 bits: 160 blocks of qkv run at once, 320 do not: 1442 → 1348 µs a step. Late
    # starts of attention and out leave room to the experts' blocks: 1344 → 1279. So of down with more
    # registers: 1256 → 1243 (medians of six).
    return replace(one, qkv_stages=4, late_start=0b00110, expert_down_registers=104)
