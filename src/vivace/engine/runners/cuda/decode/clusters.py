"""One token in two kernels a layer (kernels/cluster_attention.cuh, feed.cuh): for whom, and how large.

q, k, v, attention and out are a cluster of blocks for each key head; gate, up and down have the other
multiprocessors. Owns what fits into their shared memory, and what that means for passes of all sizes: the
columns of the out projection that belong to a key head are a part of their own, for a cluster does not know
the others'. Does not own which pass takes them (`graphs`), nor constants of speed (`tuning`).
"""

from dataclasses import dataclass
from functools import cache

from vivace.engine.runners.cuda.decode.down_cut import down_columns, down_cut
from vivace.engine.runners.cuda.model.shape import HEAD_DIM, PAGE_TOKENS, Shape

CLUSTER = 16  # blocks for each key head; the attention's clusters have as many
MOST_PARTS = 2  # of the attention, that one cluster has: each is a team's of its warps
MOST_GROUP = 8  # heads that share a key head
ATTENTION_WARPS = 4  # of a team
SHARED_BYTES = 227 << 10  # that a block may take
SPLIT = 2  # blocks that share the columns of the down projection
TILE_ROWS = 8


def out_parts(shape: Shape, bits: int) -> int:
    """Return into how many parts the columns of the out projection are cut, each with a scale of its own."""
    return shape.kv_heads if fits_clusters(shape, bits) else 1


@cache
def fits_clusters(shape: Shape, bits: int) -> bool:
    is_plain = shape.is_dense and not shape.qk_norm and not shape.oss and shape.head_width == HEAD_DIM
    group = shape.heads // shape.kv_heads
    return (
        is_plain
        and bits == 8
        and shape.hidden_warps == 8
        and 8 % shape.kv_heads == 0
        and group <= MOST_GROUP
        and group % 2 == 0
        and shape.hidden % (16 * CLUSTER * shape.kv_heads) == 0
        and cluster_bytes(shape) <= SHARED_BYTES
        and down_columns(shape) == shape.ffn
        and down_cut(shape)[0] == 2 * SPLIT
    )


def has_one_run(attention_parts: tuple[tuple[int, int], ...]) -> bool:
    """Return whether no team of a cluster has more than a page of positions, in parts cut like this."""
    return all(
        tokens <= parts * CLUSTER * PAGE_TOKENS for tokens, parts in attention_parts if parts <= MOST_PARTS
    )


def cluster_bytes(shape: Shape) -> int:
    """Return the shared memory of a block: all of its weights, and what the blocks tell each other."""
    group, hidden = shape.heads // shape.kv_heads, shape.hidden
    tiles, columns = group + 2, group * HEAD_DIM
    weights = tiles * hidden * TILE_ROWS + hidden // CLUSTER * columns
    product = tiles * 16 + 16 + _product_bytes(hidden, 8, tiles, 1)
    told = tiles * (HEAD_DIM + 8) * 2 + 4 * MOST_PARTS * group * (HEAD_DIM + 2 * CLUSTER)
    scores = 4 * MOST_PARTS * 8 * (16 * ATTENTION_WARPS + 8)
    out = (
        4 * (columns // CLUSTER + columns)
        + 2 * (columns + 32)
        + hidden // CLUSTER * (8 // shape.kv_heads) * 4
    )
    return weights + product + 16 + 32 + told + scores + out


@dataclass(frozen=True)
class Feed:
    """How the kernel for gate, up and down is cut on a GPU with so many multiprocessors."""

    shape: Shape
    multiprocessors: int

    @property
    def blocks(self) -> int:
        """Return its blocks, all of them resident: one on each multiprocessor that the clusters leave."""
        left = self.multiprocessors - self.shape.kv_heads * CLUSTER
        return (left if left >= SPLIT else self.multiprocessors) // SPLIT * SPLIT

    @property
    def tiles(self) -> int:
        """Return the most tiles of gate and up that a block has."""
        return -(-2 * self.shape.ffn // TILE_ROWS // self.blocks)

    @property
    def down_tiles(self) -> int:
        return -(-self.shape.hidden // TILE_ROWS // (self.blocks // SPLIT))

    @property
    def slots(self) -> int:
        """Return the tiles of gate and up that have room at once: as many as are whole tiles of down."""
        slot, each = self.shape.hidden * TILE_ROWS, self._each
        return (SHARED_BYTES - self._rest) // (each * (slot + 16) + 16) * each

    @property
    def shared_bytes(self) -> int:
        barriers = 16 * self.slots + 16 * self.slots // self._each
        return self.slots * self.shape.hidden * TILE_ROWS + barriers + self._rest

    def macros(self) -> dict[str, int]:
        return {
            "FEED_SLOTS": self.slots,
            "FEED_TILES": self.tiles,
            "FEED_DOWN_TILES": self.down_tiles,
        }

    @property
    def _each(self) -> int:
        """Return how many slots a tile of down needs."""
        return -(-self.shape.ffn // SPLIT // self.shape.hidden)

    @property
    def _rest(self) -> int:
        """Return what it needs besides its ring: what either product needs, and down's inbox."""
        parts, warps = down_cut(self.shape)
        up = _product_bytes(self.shape.hidden, 8, self.tiles, 1)
        down = _product_bytes(
            self.shape.ffn // SPLIT, warps * parts // SPLIT, self.down_tiles, parts // SPLIT
        )
        return max(up, down) + parts * self.down_tiles * TILE_ROWS * 4 + 64


def _product_bytes(columns: int, warps: int, tiles: int, parts: int) -> int:
    """Return the shared memory of a product of one token besides its ring: activations, sums, scratch."""
    return 2 * (columns + 32) + tiles * warps * TILE_ROWS * 4 + 2 * warps * 32 * 4 + 8 * parts
