"""Divide the work of one pass into blocks: the macros of a module and the sizes of its launches.

A plan is for one model shape, one format of weights and KV, and one number of tokens a pass. Shared memory is
the budget (227 KB of a multiprocessor): it holds the weights of the running kernel, and prefetched weights of
the next ones. Constants that only speed depends on are `tuning`'s.
"""

from dataclasses import dataclass, field, replace
from functools import cached_property

from vivace.engine.runners.cuda.decode.clusters import (
    ATTENTION_WARPS,
    CLUSTER,
    SPLIT,
    Feed,
    cluster_bytes,
    fits_clusters,
    has_one_run,
    out_parts,
)
from vivace.engine.runners.cuda.decode.down_cut import MOST_WARPS, down_columns, down_cut
from vivace.engine.runners.cuda.decode.tuning import Tuning, default_tuning, near_tuning
from vivace.engine.runners.cuda.model.shape import HEAD_DIM, PAGE_TOKENS, Shape

PASS_TOKENS = (1, 2, 4, 8, 16, 32)
BATCH_ROWS = (2, 4, 8, 16, 32, 64)  # of passes over several sequences
PARTS = (1, 2, 4, 8)  # partial results of the attention that the out projection can combine
MOST_DRAFT_PARTS = 4  # of those, where a draft's rows share what they read: up to 10k tokens
STATS_WORDS = 32  # from one row's statistics to the next: a line of the cache, or all blocks queue for a few
HEAD_TILES = HEAD_DIM // 8  # of one head of q, k or v
PICK_BLOCKS = 16  # that share the head's rows of one token; the kernel `pick` has the same number
SHARED_BYTES = 227 << 10  # of one multiprocessor, and the most that a block may take


def place_bytes(shape: Shape) -> int:
    """Return the shared memory of a kernel that puts whole heads into place: their squares, by tile."""
    return (shape.heads + shape.kv_heads) * HEAD_TILES * 4 if shape.qk_norm else 0


MXFP4 = 40  # as a format of weights: no number of bits; the kernels have the same number


def tile_bytes(columns: int, bits: int) -> int:
    """Return the bytes of 8 rows of weights; in 4 bits with step and zero, or the scale, of every 32."""
    if bits == MXFP4:
        return columns * 17 // 4
    return columns * bits if bits > 4 else columns * 9 // 2


def fitting_passes(shape: Shape, bits: int) -> tuple[int, ...]:
    """Return the pass sizes that this shape has room for, empty if not even one token fits."""
    return tuple(size for size in PASS_TOKENS if Plan(shape, bits, size).shared_bytes <= SHARED_BYTES)


@dataclass(frozen=True)
class Size:
    """One launch: blocks along x (y and z come from the tokens), threads, cluster and shared memory."""

    grid: tuple[int, int, int]
    threads: int
    cluster: int
    shared_bytes: int
    is_meeting: bool = False  # all of its blocks wait for each other


@dataclass(frozen=True)
class Plan:
    shape: Shape
    bits: int  # of a weight: 8, 16, or 4 with the head in 8
    tokens: int  # of one pass
    blocks: int = 132  # multiprocessors
    tuning: Tuning | None = field(default=None)
    kv_bits: int = 16  # of a key's or value's dimension: 8 or 16
    is_batch: bool = False  # whether each token is of a sequence of its own

    @cached_property
    def tuned(self) -> Tuning:
        """Return the tuning with rings as deep as shared memory allows. Depth changes no arithmetic."""
        tuning = self._with_small_rings(self._with_down_split(self.tuning or self._default()))
        for name, count in (
            ("up", self._up_bytes),
            ("head", self._head_bytes),
            ("down", self._down_bytes),
        ):
            for key, least, step in self._trims(name):
                while count(tuning) > SHARED_BYTES and getattr(tuning, key) > least:
                    tuning = replace(tuning, **{key: max(least, getattr(tuning, key) - step)})
        # The other half of the ring comes meanwhile.
        if self.tuning is None and tuning.up_stages < 2 * tuning.tiles_at_once:
            tuning = replace(tuning, tiles_at_once=max(2, tuning.up_stages // 4 * 2))
        return tuning

    def _default(self) -> Tuning:
        return default_tuning(self.shape, self.bits, self.tokens, is_batch=self.is_batch)

    def _with_small_rings(self, tuning: Tuning) -> Tuning:
        """Return the tuning with room for q, k, v and for the out projection: first the rings give it."""
        qkv, out = tuning.qkv_tiles or tuning.qkv_stages, tuning.o_tiles or tuning.o_stages
        tuning = replace(tuning, qkv_tiles=qkv, o_tiles=out)
        for key in ("qkv_stages", "qkv_tiles"):
            while self._qkv_bytes(tuning) > SHARED_BYTES and getattr(tuning, key) > 2:
                tuning = replace(tuning, **{key: getattr(tuning, key) // 2})
        for key, least in (("o_stages", 2), ("o_tiles", 2), ("o_stages", 1), ("o_tiles", 1)):
            while self._out_bytes(tuning) > SHARED_BYTES and getattr(tuning, key) > least:
                tuning = replace(tuning, **{key: getattr(tuning, key) // 2})
        return self._in_one_wave(tuning)

    def _in_one_wave(self, tuning: Tuning) -> Tuning:
        """Return the tuning with as many tiles a block as make all blocks of qkv and out run at once.

        With many tokens a block has a multiprocessor for itself: one block too many takes twice the time. It
        stays as it is where that leaves no room for two tiles of a ring.
        """
        if self.tokens < 8:
            return tuning
        for name, rows, count in (
            ("qkv", self.shape.qkv_rows, self._qkv_bytes),
            ("o", self.shape.hidden, self._out_bytes),
        ):
            tiles, stages = f"{name}_tiles", f"{name}_stages"
            wished = -(-rows // 8 // self.blocks)
            if name == "qkv" and self.shape.qk_norm:  # the blocks of a head are a cluster
                wished = next((each for each in (4, 8, HEAD_TILES) if each >= wished), HEAD_TILES)
            if wished <= getattr(tuning, tiles) or (name == "qkv" and self.kv_bits == 8):
                continue
            for depth in (getattr(tuning, stages), 2):
                wider = replace(tuning, **{tiles: wished, stages: min(depth, getattr(tuning, stages))})
                if count(wider) <= SHARED_BYTES:
                    tuning = wider
                    break
        return tuning

    def _trims(self, name: str) -> tuple[tuple[str, int, int], ...]:
        """Return what a product gives up for room, in order: (field, least, step).

        Two tiles of a ring are multiplied while two come. With many tokens sums take much room, too, and
        warps that meet more often cost less than a ring of two.
        """
        stages, group = f"{name}_stages", f"{name}_group"
        if self.tokens <= 4:
            return (stages, 2, 1), (group, 2, 2)
        return (stages, 4, 1), (group, 2, 2), (stages, 2, 1)

    @property
    def is_wide(self) -> bool:
        """Return whether the products are those for many rows (`rows/product.py`)."""
        return self.tuned.is_wide and self.shape.is_dense

    def parts_for(self, length: int) -> int:
        """Return how many clusters share a key head in a pass that ends with this context."""
        for tokens, parts in self._parts:
            if length <= tokens:
                return parts
        return self._most_parts

    def same_split_length(self, start: int, tokens: int) -> int:
        """Return how many tokens from `start` on have the same attention split: the most for one pass."""
        return min((tokens, *(limit - start for limit, _ in self._parts if limit > start)))

    @cached_property
    def _most_parts(self) -> int:
        room = 2 * self.blocks // (self.shape.kv_heads * self.all_ranks)  # two blocks each
        return max((parts for parts in PARTS if parts <= room), default=1)

    @cached_property
    def _parts(self) -> tuple[tuple[int, int], ...]:
        return tuple((tokens, min(parts, self._most_parts)) for tokens, parts in self.tuned.attention_parts)

    @property
    def tile_tokens(self) -> int:
        return min(self.tokens, 16)

    @property
    def down(self) -> tuple[int, int]:
        """Return blocks of a cluster and warps of a block that share the columns of the down projection."""
        return self._down(self.tuned)

    def _down(self, tuning: Tuning) -> tuple[int, int]:
        parts, warps = self._down_parts
        return tuning.down_split, warps * parts // tuning.down_split

    @property
    def down_slices(self) -> tuple[int, int]:
        """Return parts of the down projection's columns and slices of a part: the order of its sums."""
        return self._down_parts

    @property
    def down_columns(self) -> int:
        """Return the columns of the down projection, padded so that warps share them evenly."""
        return down_columns(self.shape)

    @cached_property
    def _down_parts(self) -> tuple[int, int]:
        """Return parts of the columns, summed in a fixed order, and warps of a part."""
        return down_cut(self.shape)

    def _with_down_split(self, tuning: Tuning) -> Tuning:
        """Return the tuning with as few blocks a cluster as have room for the columns."""
        parts, warps = self._down_parts
        least = tuning.down_split if self.tokens <= 4 and parts >= 4 else min(parts, 4)
        fitting = [n for n in (1, 2, 4, 8) if least <= n <= parts and warps * parts // n <= MOST_WARPS]
        small = replace(tuning, down_stages=2, down_group=2)
        for split in fitting:
            if self._down_bytes(replace(small, down_split=split)) <= SHARED_BYTES:
                return replace(tuning, down_split=split)
        return replace(tuning, down_split=fitting[-1])

    def macros(self) -> dict[str, int]:
        shape, tuned, (split, warps) = self.shape, self.tuned, self.down
        return {
            "HIDDEN": shape.hidden, "FFN": shape.ffn, "DOWN_COLUMNS": self.down_columns,
            "HEADS": shape.heads, "KV_HEADS": shape.kv_heads,
            "VOCAB": shape.vocab, "BITS": self.bits, "KV_BITS": self.kv_bits, "TOKENS": self.tokens,
            "QKV_STAGES": tuned.qkv_stages, "O_STAGES": tuned.o_stages,
            "QKV_TILES": tuned.qkv_tiles, "O_TILES": tuned.o_tiles,
            "UP_STAGES": tuned.up_stages, "UP_GROUP": tuned.up_group,
            "DOWN_SPLIT": split, "DOWN_WARPS": warps,
            "DOWN_STAGES": tuned.down_stages, "DOWN_GROUP": tuned.down_group,
            "HEAD_STAGES": tuned.head_stages, "HEAD_GROUP": tuned.head_group,
            "DOWN_PARTS": self._down_parts[0], "DOWN_BLOCKS": 2 if warps > 8 else 3,
            "KEEP_REGISTERS": tuned.keep_registers, "LATE_START": tuned.late_start,
            "PACE_BYTES": tuned.pace_bytes,
            "TILES_AT_ONCE": tuned.tiles_at_once, "STATS_STRIDE": STATS_WORDS // 2,
            "ATTENTION_WARPS": tuned.attention_warps, "ATTENTION_CLUSTER": tuned.attention_cluster,
            "ATTENTION_TILES": self._attention_tiles, "BATCH": int(self.is_batch),
            "DRAFT_TILES": self.draft_tiles, "DRAFT_BLOCKS": tuned.draft_blocks,
            "WIDE": int(self.is_wide), "ATTENTION_RANKS": tuned.attention_ranks,
            "EARLY_BLOCKS": tuned.early_blocks, "QK_NORM": int(shape.qk_norm),
            "OUT_PARTS": out_parts(shape, self.bits), "CLUSTERED": int(self.is_clustered),
            "HEAD_WIDTH": shape.head_width, "HIDDEN_WARPS": shape.hidden_warps, "OSS": int(bool(shape.oss)),
        } | (self._feed.macros() if self.is_clustered else {})  # fmt: skip

    def sizes(self, parts: int) -> dict[str, Size]:
        """Return the size of each launch. `parts` clusters for each key head share the attention."""
        shape, tuned, (split, warps) = self.shape, self.tuned, self.down
        token_tiles = (self.tokens + 15) // 16
        clusters = -(-shape.hidden // 8 // self._down_tiles(split))  # no more than that many tiles each need
        splits = parts * tuned.attention_cluster

        def product(blocks: int, warps: int, shared_bytes: int, cluster: int = 1) -> Size:
            return Size((blocks, token_tiles, 1), warps * 32 + 32, cluster, shared_bytes)

        # The blocks of a head are a cluster where they share the head's norm.
        qkv_cluster = HEAD_TILES // tuned.qkv_tiles if shape.qk_norm else 1

        return {
            "embed": Size((self.tokens, 1, 1), 256, 1, 0),
            "qkv": product(-(-shape.qkv_rows // 8 // tuned.qkv_tiles), shape.hidden_warps,
                           self._qkv_bytes(tuned), qkv_cluster),
            "attention": Size((shape.kv_heads * splits, 1, self._attention_depth),
                              tuned.attention_warps * 32, tuned.attention_cluster, self._attention_bytes),
            "draft_attention": self._draft_size(parts),
            "merge_ranks": Size((self.tokens, parts, shape.kv_heads),
                                32 * shape.heads // shape.kv_heads, 1, 0),
            "out_projection": product(-(-shape.hidden // 8 // tuned.o_tiles), 8, self._out_bytes(tuned)),
            "gate_up": product(min(self.blocks, 2 * shape.ffn // 8), 8, self._up_bytes(tuned)),
            "down_projection": product(clusters * split, warps, self._down_bytes(tuned), split),
            "head": product(min(self.blocks, -(-shape.vocab // 8)), shape.hidden_warps,
                            self._head_bytes(tuned)),
            "choose": Size((1, 1, 1), 256, 1, 4 * self.tokens),
            "row": Size((self.tokens, 1, 1), 256, 1, 64),
            "place": Size((self.tokens, 1, 1), 256, 1, place_bytes(shape)),
            "out_parts": Size((self.tokens, out_parts(shape, self.bits), 1), 256, 1, 64),
            "row_parts": Size((self.tokens, self._down_parts[0], 1), 256, 1, 64),
            "pick": Size((self.tokens, PICK_BLOCKS, 1), 256, 1, 2048),
        } | (self._near_sizes() if self.is_clustered else {})  # fmt: skip

    def _near_sizes(self) -> dict[str, Size]:
        feed, (_, warps) = self._feed, self.down
        clusters = Size((self.shape.kv_heads * CLUSTER, 1, 1), 256, CLUSTER, cluster_bytes(self.shape))
        grid = (feed.blocks, 1, 1)
        return {
            "cluster_attention": clusters,
            "feed": Size(grid, warps * 32 + 32, SPLIT, feed.shared_bytes, is_meeting=True),
        }

    def _down_tiles(self, split: int) -> int:
        """Return the tiles of one cluster."""
        tiles = self.shape.hidden // 8
        # Clusters of four have room on 120 of an H200's 132 multiprocessors: one too many waits for the rest.
        room = self.blocks // split if split <= 2 else self.blocks * 7 // 8 // split
        return -(-tiles // min(max(1, room), tiles))

    def _down_bytes(self, tuning: Tuning) -> int:
        """Return the shared memory of a product and of the inbox for the parts of every tile."""
        split, warps = self._down(tuning)
        parts = self._down_parts[0]
        product = self._product_bytes(
            self.down_columns // split, warps, tuning.down_stages, tuning.down_group, parts // split
        )
        inbox = parts * self._down_tiles(split) * self.tile_tokens * 8 * 4
        return product + (inbox // split if parts > 4 else inbox) + 16

    def _qkv_bytes(self, tuning: Tuning) -> int:
        """Return the shared memory of a product and of the squares of a head, where it has a norm."""
        inbox = HEAD_TILES * self.tile_tokens * 4 + 16 if self.shape.qk_norm else 0
        warps = self.shape.hidden_warps
        product = self._product_bytes(
            self.shape.hidden, warps, tuning.qkv_stages, tuning.qkv_tiles, is_one_group=self.tokens >= 8
        )
        return product + inbox

    def _out_bytes(self, tuning: Tuning) -> int:
        width, is_one_group = self.shape.attention_width, self.tokens >= 8
        parts = out_parts(self.shape, self.bits)
        return self._product_bytes(
            width, 8, tuning.o_stages, tuning.o_tiles, parts, is_one_group=is_one_group
        )

    @property
    def is_clustered(self) -> bool:
        return self.tuning is not None and self.tuning.is_clustered

    @property
    def near(self) -> "Plan | None":
        """Return the plan for the same pass behind a short context, if that is quicker with another."""
        is_one = self.tokens == 1 and not self.is_batch and self.kv_bits == 16
        is_alike = (self.tuned.attention_cluster, self.tuned.attention_warps) == (CLUSTER, ATTENTION_WARPS)
        if not (is_one and is_alike and fits_clusters(self.shape, self.bits) and has_one_run(self._parts)):
            return None
        return replace(self, tuning=near_tuning(self.tuned))

    @property
    def _feed(self) -> Feed:
        return Feed(self.shape, self.blocks)

    def _up_bytes(self, tuning: Tuning) -> int:
        return self._product_bytes(self.shape.hidden, 8, tuning.up_stages, tuning.up_group)

    def _head_bytes(self, tuning: Tuning) -> int:
        bits = max(self.bits, 8)
        return self._product_bytes(
            self.shape.hidden, self.shape.hidden_warps, tuning.head_stages, tuning.head_group, bits=bits
        )

    @property
    def expert_bits(self) -> int:
        """Return the format of the experts' weights."""
        return MXFP4 if self.shape.oss else self.bits

    @property
    def shared_bytes(self) -> int:
        """Return the most shared memory that one of its launches uses."""
        products = ("qkv", "out_projection", "gate_up", "down_projection", "head") if self.is_wide else ()
        return max(size.shared_bytes for name, size in self.sizes(1).items() if name not in products)

    @property
    def _rows(self) -> int:
        """Return the attention's rows: the heads that share a key head, for every token of a sequence."""
        return (1 if self.is_batch else self.tokens) * self.shape.heads // self.shape.kv_heads

    @property
    def _attention_depth(self) -> int:
        return self.tokens if self.is_batch else -(-self._rows // 16 // self._attention_tiles)

    @property
    def _attention_tiles(self) -> int:
        return min(self.tuned.attention_tiles, -(-self._rows // 16))

    @property
    def _attention_bytes(self) -> int:
        """Return the shared memory of the scores, twice, and of a cluster's inbox."""
        rows = min(self._rows, 16)
        scores = 2 * (8 if rows <= 8 else 16) * (16 * self.tuned.attention_warps + 8)
        ranks = self.tuned.attention_ranks
        tile = scores + ranks * rows * HEAD_DIM + ranks * self.tuned.attention_cluster * rows * 2
        return 4 * self._attention_tiles * tile + 16

    @property
    def draft_tiles(self) -> int:
        """Return how many tiles of a draft's rows share a block's reading, or 0 if they do not."""
        is_one_draft = self.is_wide or not self.is_batch
        is_served = self.kv_bits == 16 and 16 * self.tuned.attention_warps == PAGE_TOKENS
        return self.tuned.draft_tiles if is_one_draft and is_served else 0

    def shares_reading(self, parts: int) -> bool:
        """Return whether the rows of a draft with these parts of the attention share what they read."""
        return self.draft_tiles > 0 and parts <= MOST_DRAFT_PARTS

    @property
    def all_ranks(self) -> int:
        """Return how many ranks have a share of each part of the attention."""
        return self.tuned.attention_cluster * self.tuned.attention_ranks

    @property
    def rank_slots(self) -> int:
        """Return how many ranks leave what they find in memory, of all parts together."""
        return self.all_ranks * MOST_DRAFT_PARTS if self.draft_tiles else 0

    def _draft_size(self, parts: int) -> Size:
        """Return the size of `draft_attention`, whose blocks keep a run of keys and values."""
        tiles, shape = max(1, self.draft_tiles), self.shape
        row_tiles = -(-self.tokens * shape.heads // shape.kv_heads // 16)
        grid = (shape.kv_heads * parts * self.all_ranks, 1, -(-row_tiles // tiles))
        return Size(grid, 32 * tiles, 1, 2 * PAGE_TOKENS * shape.head_width * 2)

    def _product_bytes(
        self,
        slice_columns: int,
        warps: int,
        stages: int,
        group: int,
        parts: int = 1,
        *,
        bits: int = 0,
        is_one_group: bool = False,
    ) -> int:
        """Return the shared memory of a `Product`: ring, activations, sums, scratch and barriers.

        One group of tiles needs room for its sums once. With few tokens it has room for two all the same: so
        the kernels that wait beside each other were measured.
        """
        ring = stages * tile_bytes(slice_columns, bits or self.bits)
        row = slice_columns + 32 if self.bits <= 8 else 2 * slice_columns + 64
        activations = self.tile_tokens * (2 if self.bits <= 8 else 1) * row
        sums = (1 if is_one_group else 2) * group * warps * self.tile_tokens * 8 * 4
        return (
            ring
            + activations
            + sums
            + 2 * warps * 32 * 4
            + 2 * self.tile_tokens * parts * 4
            + stages * 16
            + 16
        )
