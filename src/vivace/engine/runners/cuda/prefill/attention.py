"""Triton's attention of a chunk of a prompt, out of the pages of its sequence.

For small chunks, for gpt-oss with its windows and sinks, and for GPUs that are not Hopper's; large chunks
have their own kernel (`prompt_attention`). A chunk of few rows behind a long context would keep only a few
multiprocessors busy: there its keys are split, and a second kernel puts the parts together. Position and
number of tokens are read on the device, so a captured launch serves every context. Owns the two kernels and
how a chunk is cut.
"""

import torch  # type: ignore[import-not-found,unused-ignore]
import triton  # type: ignore[import-not-found,import-untyped,unused-ignore]
import triton.language as tl  # type: ignore[import-not-found,import-untyped,unused-ignore]
from triton.tools.tensor_descriptor import (  # type: ignore[import-not-found,import-untyped,unused-ignore]
    TensorDescriptor,
)

from vivace.engine.runners.cuda.decode.launches import COUNT, LOG2_E, POSITION
from vivace.engine.runners.cuda.model.reference import ALL, View
from vivace.engine.runners.cuda.model.shape import HEAD_DIM, PAGE_TOKENS, Shape

ROWS = 64  # queries of a block: of 64 and 128, with 4 and 8 warps, the quickest at every size on an H200
WARPS = 4
STAGES = 3  # of the ring in shared memory that pages come into
BUSY_BLOCKS = 200  # one and a half for each multiprocessor
MAX_SPLITS = 16


def splits_for(size: int, heads: int) -> int:
    """Return how many parts the keys of a chunk of this size are split into."""
    return max(1, min(MAX_SPLITS, BUSY_BLOCKS // (-(-size // ROWS) * heads)))


class ChunkAttention:
    """The launches for chunks of some sizes, and room for their parts."""

    def __init__(self, shape: Shape, sizes: list[int], device: torch.device) -> None:
        self._shape = shape
        parts = max(size * splits_for(size, shape.heads) for size in sizes) * shape.heads
        self._parts = torch.empty(parts, HEAD_DIM, device=device)
        self._weights = torch.empty(parts, 2, device=device)  # greatest score, sum

    def run(
        self,
        state: torch.Tensor,
        q: torch.Tensor,  # [size, heads, head_width]; other rows may lie between these
        kv: torch.Tensor,  # one layer's: [pages, 2, kv_heads, 64, 128]
        pages: torch.Tensor,
        mixed: torch.Tensor,  # [size, heads * head_width]
        view: View = ALL,
    ) -> None:
        sinks = self._weights if view.sinks is None else view.sinks  # which nobody reads
        has_sinks = view.sinks is not None
        size, heads, kv_heads, width = len(q), self._shape.heads, self._shape.kv_heads, self._shape.head_width
        splits = splits_for(size, heads)
        dims = HEAD_DIM if width == HEAD_DIM else width // 2  # that lie together
        tiles = TensorDescriptor.from_tensor(kv.view(-1, HEAD_DIM), [PAGE_TOKENS, dims])
        _attend[(-(-size // ROWS), heads, splits)](
            *(state, q, q.stride(0), tiles, pages, mixed, self._parts, self._weights, sinks, size),
            *(view.scale * LOG2_E, heads, kv_heads, width, ROWS, splits, view.window, has_sinks),
            num_warps=WARPS,
            num_stages=STAGES,
        )
        if splits > 1:
            _combine[(size, heads)](
                *(state, self._parts, self._weights, sinks, mixed, size),
                *(heads, width, splits, triton.next_power_of_2(splits), has_sinks),
                num_warps=1,
            )


_POSITION, _COUNT = tl.constexpr(POSITION), tl.constexpr(COUNT)
_LOG2_E = tl.constexpr(LOG2_E)
_DIM, _HALF, _PAGE = tl.constexpr(HEAD_DIM), tl.constexpr(HEAD_DIM // 2), tl.constexpr(PAGE_TOKENS)


@triton.jit  # type: ignore[untyped-decorator,unused-ignore]
def _column(dim, WIDTH: tl.constexpr):  # type: ignore[no-untyped-def]
    """Return where a dimension of a row of 128 lies in a head; a narrow one has zeros behind each half."""
    return dim if WIDTH == _DIM else dim // (_DIM // 2) * (WIDTH // 2) + dim % (_DIM // 2)


@triton.jit  # type: ignore[untyped-decorator,unused-ignore]
def _some_pages(  # type: ignore[no-untyped-def]
    answer, more_answer, total, most, queries, more_queries, tiles, pages, tokens, length, kv_head,
    first, last, scale,
    KV_HEADS: tl.constexpr, IS_NARROW: tl.constexpr, IS_CAUSAL: tl.constexpr, WINDOW: tl.constexpr,
):  # fmt: skip
    """Add some pages of keys to the running output, the sum of its weights and the greatest score.

    A narrow head has two halves, with zeros behind each that are not read.
    """
    for page in tl.range(first, last):
        row = (tl.load(pages + page) * 2 * KV_HEADS + kv_head) * _PAGE
        at = page * _PAGE + tl.arange(0, _PAGE)
        scores = tl.dot(queries, tl.trans(tiles.load([row, 0])))
        if IS_NARROW:
            scores = tl.dot(more_queries, tl.trans(tiles.load([row, _HALF])), scores)
        if IS_CAUSAL:
            scores = tl.where(at[None, :] <= tokens[:, None], scores, float("-inf"))
        if WINDOW:
            scores = tl.where(at[None, :] > tokens[:, None] - WINDOW, scores, float("-inf"))
        new_most = tl.maximum(most, tl.max(scores, 1) * scale)
        weights = tl.exp2(scores * scale - new_most[:, None])
        shrink = tl.exp2(most - new_most)
        total = total * shrink + tl.sum(weights, 1)
        values = tiles.load([row + KV_HEADS * _PAGE, 0])
        if IS_CAUSAL:  # what lies behind the end may be anything
            values = tl.where((at < length)[:, None], values, 0.0)
        answer = tl.dot(weights.to(values.dtype), values, answer * shrink[:, None])
        if IS_NARROW:
            values = tiles.load([row + KV_HEADS * _PAGE, _HALF])
            if IS_CAUSAL:
                values = tl.where((at < length)[:, None], values, 0.0)
            more_answer = tl.dot(weights.to(values.dtype), values, more_answer * shrink[:, None])
        most = new_most
    return answer, more_answer, total, most


@triton.jit  # type: ignore[untyped-decorator,unused-ignore]
def _attend(  # type: ignore[no-untyped-def]
    state, q, q_stride, tiles, pages, mixed, parts, part_weights, sinks, size, scale,
    HEADS: tl.constexpr, KV_HEADS: tl.constexpr, WIDTH: tl.constexpr, ROWS: tl.constexpr,
    SPLITS: tl.constexpr, WINDOW: tl.constexpr, HAS_SINKS: tl.constexpr,
):  # fmt: skip
    """Attend for one block of queries of one head: over all of its keys, or over one split of them."""
    count, start = tl.load(state + _COUNT), tl.load(state + _POSITION)
    row0 = (tl.num_programs(0) - 1 - tl.program_id(0)) * ROWS  # the longest first
    if row0 >= count:
        return
    head, split = tl.program_id(1), tl.program_id(2)
    IS_NARROW: tl.constexpr = WIDTH < _DIM
    DIMS: tl.constexpr = WIDTH // 2 if IS_NARROW else _DIM
    rows, dims = row0 + tl.arange(0, ROWS), tl.arange(0, DIMS)
    is_real = (rows < count)[:, None]
    own = q + rows[:, None] * q_stride + head * WIDTH + dims[None, :]
    queries = tl.load(own, mask=is_real, other=0.0)
    more_queries = tl.load(own + DIMS, mask=is_real, other=0.0) if IS_NARROW else queries
    length = start + tl.minimum(row0 + ROWS, count)
    all_pages = tl.cdiv(length, _PAGE)
    begin = tl.maximum(0, start + row0 + 1 - WINDOW) // _PAGE if WINDOW else 0
    share = tl.cdiv(all_pages - begin, SPLITS)
    first, last = begin + split * share, tl.minimum(all_pages, begin + (split + 1) * share)
    # The pages before this one are seen by all of the queries.
    middle = tl.minimum(last, tl.maximum(first, (start + row0 + 1) // _PAGE))
    answer = tl.zeros([ROWS, DIMS], tl.float32)
    more_answer = tl.zeros([ROWS, DIMS], tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    most = tl.full([ROWS], -1e30, tl.float32)
    tokens, kv_head = start + rows, head // (HEADS // KV_HEADS)
    answer, more_answer, total, most = _some_pages(
        answer, more_answer, total, most, queries, more_queries, tiles, pages, tokens, length, kv_head,
        first, middle, scale, KV_HEADS, IS_NARROW, False, WINDOW,
    )  # fmt: skip
    answer, more_answer, total, most = _some_pages(
        answer, more_answer, total, most, queries, more_queries, tiles, pages, tokens, length, kv_head,
        middle, last, scale, KV_HEADS, IS_NARROW, True, WINDOW,
    )  # fmt: skip
    if SPLITS == 1:
        if HAS_SINKS:
            sink = tl.load(sinks + head) * _LOG2_E
            greatest = tl.maximum(most, sink)
            shrink = tl.exp2(most - greatest)
            answer, more_answer = answer * shrink[:, None], more_answer * shrink[:, None]
            total = total * shrink + tl.exp2(sink - greatest)
        out = mixed + rows[:, None] * (HEADS * WIDTH) + head * WIDTH + dims[None, :]
        tl.store(out, (answer / total[:, None]).to(mixed.dtype.element_ty), mask=is_real)
        if IS_NARROW:
            more_answer = (more_answer / total[:, None]).to(mixed.dtype.element_ty)
            tl.store(out + DIMS, more_answer, mask=is_real)
    else:
        at = (split * size + rows) * HEADS + head
        part = parts + at[:, None] * _DIM + dims[None, :]
        tl.store(part, answer, mask=is_real)
        if IS_NARROW:
            tl.store(part + _HALF, more_answer, mask=is_real)
        tl.store(part_weights + at * 2, most, mask=rows < count)
        tl.store(part_weights + at * 2 + 1, total, mask=rows < count)


@triton.jit  # type: ignore[untyped-decorator,unused-ignore]
def _combine(  # type: ignore[no-untyped-def]
    state, parts, part_weights, sinks, mixed, size,
    HEADS: tl.constexpr, WIDTH: tl.constexpr, SPLITS: tl.constexpr, SPLITS_UP: tl.constexpr,
    HAS_SINKS: tl.constexpr,
):  # fmt: skip
    """Sum the parts of one query of one head."""
    row, head = tl.program_id(0), tl.program_id(1)
    if row >= tl.load(state + _COUNT):
        return
    split, dims = tl.arange(0, SPLITS_UP), tl.arange(0, _DIM)
    at = (split * size + row) * HEADS + head
    is_part = split < SPLITS
    most = tl.load(part_weights + at * 2, mask=is_part, other=-1e30)
    total = tl.load(part_weights + at * 2 + 1, mask=is_part, other=0.0)
    greatest = tl.max(most, 0)
    sink = tl.load(sinks + head) * _LOG2_E if HAS_SINKS else greatest
    greatest = tl.maximum(greatest, sink)
    share = tl.exp2(most - greatest)
    answers = tl.load(parts + at[:, None] * _DIM + dims[None, :], mask=is_part[:, None], other=0.0)
    sum = tl.sum(total * share, 0)
    if HAS_SINKS:
        sum += tl.exp2(sink - greatest)
    answer = tl.sum(answers * share[:, None], 0) / sum
    out = mixed + (row * HEADS + head) * WIDTH + _column(dims, WIDTH)
    tl.store(out, answer.to(mixed.dtype.element_ty), mask=dims % (_DIM // 2) < WIDTH // 2)
