"""Prefill: chunks of a prompt through torch's matrix products.

Our own kernels between the products make 9 launches a layer. The pass of a chunk is captured in segments for
each of a few sizes, so that the host starts a segment with one call. A pass can be stopped between two
segments: what a stopped chunk wrote is behind the end of its sequence and is never read. Of the last layer
only keys and values are needed of all tokens: what follows them is computed for the chunk's last tokens.
Owns a chunk's pass. Does not own pages, the attention (`prompt_attention`, `attention`), nor other formats of
the weights (`fp8`, `packed`, `experts`).
"""

import functools
import math
import struct
from collections.abc import Callable, Iterator, Sequence

import torch  # type: ignore[import-not-found,unused-ignore]

from vivace.engine.runners.base import ShouldStop, Stopped
from vivace.engine.runners.cuda.decode.graphs import Launcher, Pool, capture_work
from vivace.engine.runners.cuda.decode.launch import Argument, Launch
from vivace.engine.runners.cuda.decode.launches import COUNT, POSITION, STATE_WORDS, Model
from vivace.engine.runners.cuda.decode.plan import Size, place_bytes
from vivace.engine.runners.cuda.kernels.copies import Staged
from vivace.engine.runners.cuda.kernels.driver import has_team_products
from vivace.engine.runners.cuda.kv.pool import bits_of, make_unpacked
from vivace.engine.runners.cuda.model.reference import View, attend_pages
from vivace.engine.runners.cuda.model.shape import Shape
from vivace.engine.runners.cuda.prefill.prompt_attention import prompt_attention
from vivace.engine.runners.cuda.weights.build import Dense

SIZES = (64, 128, 256, 512, 768, 1024, 1536, 2048, 3072, 4096)  # of a captured chunk
SEGMENTS = 7  # least of a chunk's pass, which can be stopped between two
SEGMENT_MS, OPERATIONS_PER_MS = 5.0, 450e9  # in bf16 on an H200
# A segment should take less than 8 ms at any position. A token without attention costs as much as 9,000 keys.
TOKEN_KEYS = 9_000
MAX_KEYS = 130_000_000  # of all tokens of a chunk
AHEAD_KEYS = MAX_KEYS // 2  # up to so many a second segment is begun before the first has ended
TAIL = SIZES[0]  # tokens of a chunk that the last layer is computed for: logits are wanted of no more
LEAST_IN_TEAMS = 512  # tokens from which on kernels with the products of four warps are quicker
SHORT_ROWS = 2048 * 12  # up to so many of all heads a block of their attention has one task
UNPACKING_BLOCKS = 264  # for each head's keys or values

Scales = tuple[torch.Tensor, float]  # of rows, and of all
Attend = Callable[[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, View], None]


def chunk_at(position: int, sizes: Sequence[int]) -> int:
    """Return how many tokens a chunk has at `position`: the longer the past, the fewer."""
    fitting = [size for size in sizes if keys_of(size, position) <= MAX_KEYS]
    return max(fitting, default=sizes[0])


def keys_of(tokens: int, position: int) -> int:
    """Return what a chunk costs, as keys that are read."""
    return tokens * (TOKEN_KEYS + position + tokens // 2)


def segments_for(shape: Shape, chunk_tokens: int) -> int:
    """Return how many segments a pass has, none empty, so that one of the largest chunk takes about 5 ms."""
    of_layer = (shape.parameters - 2 * shape.vocab * shape.hidden) / shape.layers
    pass_ms = shape.layers * 2 * of_layer * chunk_tokens / OPERATIONS_PER_MS
    return min(shape.layers, max(SEGMENTS, math.ceil(pass_ms / SEGMENT_MS)))


def _attention(shape: Shape, sizes: list[int], device: torch.device) -> Attend:
    if device.type != "cuda":
        return attend_pages
    from vivace.engine.runners.cuda.prefill.attention import ChunkAttention

    return ChunkAttention(shape, sizes, device).run


class Prefill:
    def __init__(
        self,
        model: Model,
        dense: list[Dense],
        kv: torch.Tensor,
        pages: torch.Tensor,  # the page table of whichever sequence is read
        launcher: Launcher,
    ) -> None:
        self._model, self._dense, self._kv, self._launcher = model, dense, kv, launcher
        self._pages = pages
        shape, positions = model.shape, model.rotation.shape[0]
        self._sizes = [size for size in SIZES if size < positions] + [min(positions, SIZES[-1])]
        self.chunk_tokens = most = self._sizes[-1]  # the most that one call should take
        self._inputs = torch.zeros(STATE_WORDS + most, dtype=torch.int32, device=kv.device)
        self._staged = Staged(self._inputs)
        self._state, self._tokens = self._inputs[:STATE_WORDS], self._inputs[STATE_WORDS:]
        self._tail_state = self._state.clone()
        self._has_teams = has_team_products()
        self._attend = _attention(shape, self._sizes, kv.device)
        self._unpacked = make_unpacked(shape, len(pages), kv.device) if bits_of(kv) == 8 else None
        self._identity_pages = torch.arange(len(pages), dtype=torch.int32, device=kv.device)

        def zeros(columns: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
            return torch.zeros(most, columns, dtype=dtype, device=kv.device)

        self._x = zeros(shape.hidden, torch.float32)
        self._y, self._delta = zeros(shape.hidden), zeros(shape.hidden)
        self._in_its_unit: Scales = (torch.ones(most, device=kv.device), 1.0)
        self._rows, self._mixed = zeros(shape.qkv_rows), zeros(shape.attention_width)  # q, k, v; answers
        self._gate_up, self._h = zeros(2 * shape.ffn), zeros(shape.ffn)
        self.segments = segments_for(shape, most)
        self._graphs: dict[int, list[torch.cuda.CUDAGraph]] = {}
        self._pool: Pool = torch.cuda.graph_pool_handle() if kv.is_cuda else (0, 0)

    @staticmethod
    def keep(dense: Dense) -> Dense:
        """Return what this prefill reads of a layer in bf16, which is all."""
        return dense

    def run(
        self, tokens: Sequence[int], start: int, want: int, should_stop: ShouldStop | None
    ) -> torch.Tensor:
        """Put tokens into the pages of their sequence. Return what the head reads of the last `want` of them.

        That is [want, hidden], before the final norm; `want` is at most TAIL.
        """
        at, chunk = 0, tokens[:0]
        while at < len(tokens):
            if at:
                self._synchronize()  # the inputs of the chunk before are read
            self._check_stop(should_stop)
            chunk = tokens[at : at + chunk_at(start + at, self._sizes)]
            self._write(chunk, start + at)
            self._replay(len(chunk), start + at, should_stop)
            at += len(chunk)
        last = min(TAIL, len(chunk))
        assert want <= last
        return self._x[last - want : last]

    def warm_up(self) -> None:
        """Capture every size. The input has no tokens, so nothing is written to the KV."""
        if not self._kv.is_cuda:
            return
        for size in self._sizes:
            self._write([], 0)
            self._prepare(size)

    def _is_in_teams(self, size: int) -> bool:
        """Return whether a chunk of this size has kernels with the products of four warps."""
        return self._has_teams and size >= LEAST_IN_TEAMS

    def _write(self, tokens: Sequence[int], start: int) -> None:
        words = self._staged.words
        words[:] = 0
        words[POSITION], words[COUNT] = start, len(tokens)
        struct.pack_into(f"{len(tokens)}i", words.data, 4 * STATE_WORDS, *tokens)  # a sixth of a list's time
        self._staged.send(len(words))

    def _synchronize(self) -> None:
        if self._kv.is_cuda:
            torch.cuda.current_stream().synchronize()

    def _check_stop(self, should_stop: ShouldStop | None) -> None:
        if should_stop:
            self._synchronize()  # the host must not run ahead of its question
            if should_stop():
                raise Stopped

    def _replay(self, count: int, start: int, should_stop: ShouldStop | None) -> None:
        size = next(size for size in self._sizes if size >= count)
        if not self._kv.is_cuda or size not in self._graphs:
            for segment in range(self.segments):
                self._check_stop(should_stop)
                self._run_segment(segment, size)
            return
        is_ahead = keys_of(size, start) <= AHEAD_KEYS
        ended: list[torch.cuda.Event] = []
        for graph in self._graphs[size]:
            if should_stop and len(ended) > is_ahead:
                ended[-1 - is_ahead].synchronize()
                if should_stop():
                    raise Stopped
            graph.replay()
            ended.append(torch.cuda.current_stream().record_event())

    def _prepare(self, size: int) -> None:
        if size not in self._graphs:
            self._graphs[size] = [
                capture_work(functools.partial(self._run_segment, segment, size), self._pool)
                for segment in range(self.segments)
            ]

    def _run_segment(self, segment: int, size: int) -> None:
        """Run some layers of a pass over `size` tokens. The first segment begins it, the last ends it."""
        shape, model = self._model.shape, self._model
        if segment == 0:
            self._launch("read_tokens", Size((size, 1, 1), 256, 1, 0), self._tokens, model.embedding, self._x)
        for index in self._layers(segment):
            self._decoder_layer(index, size)
        if segment == self.segments - 1:
            self._add_norm(model.final_gain, min(TAIL, size), self._left_by(shape.layers - 1))

    def _layers(self, segment: int) -> Iterator[int]:
        """Yield the layers of a segment: one of the first, which the host has started soon."""
        rest, others = len(self._dense) - 1, self.segments - 1
        if segment == 0:
            yield 0
        else:
            yield from range(1 + rest * (segment - 1) // others, 1 + rest * segment // others)

    def _weights(self, index: int) -> Dense:
        return self._dense[index]

    def _decoder_layer(self, index: int, size: int) -> None:
        layer, kv, shape = self._weights(index), self._kv[index], self._model.shape
        self._add_norm(layer.attention_gain, size, self._left_by(index - 1))
        _matmul(self._y[:size], layer.qkv, self._rows[:size], layer.dense_bias)
        gain = (layer.head_gain, shape.norm_epsilon) if shape.qk_norm else ()
        one = Size((size, 1, 1), 256, 1, place_bytes(shape))
        placing = (self._state, self._rows[:size], self._model.rotation, self._pages, kv)
        self._launch("place", one, *placing, *gain)
        if index == len(self._dense) - 1 and size > TAIL:
            self._keep_tail()
            size, state = TAIL, self._tail_state
        else:
            state = self._state
        mixed = self._mix(state, index, size)
        _matmul(mixed, layer.out, self._delta[:size], layer.out_bias)
        self._feed_forward(index, size)

    def _keep_tail(self) -> None:
        """Move the last tokens of a chunk to its beginning. How many it has is known on the device alone."""
        words = self._x.shape[1] // 4 + self._rows.shape[1] // 8  # of 16 bytes
        size = Size((-(-words // 64), 1, 1), 64, 1, 0)
        self._launch("keep_tail", size, self._state, self._tail_state, self._x, self._rows, TAIL)

    def _mix(self, state: torch.Tensor, index: int, size: int) -> torch.Tensor:
        """Return the attention of a chunk, [size, heads * head_width]."""
        shape, oss = self._model.shape, self._model.layers[index].oss
        view = View(shape.score_scale, shape.window_of(index), oss.sinks if oss else None)
        rows = self._rows[:size].view(size, -1, shape.head_width)
        mixed, pages = self._mixed[:size], self._bf16_kv(self._kv[index])
        if self._is_in_teams(size) and not shape.oss:
            is_short = size * shape.heads <= SHORT_ROWS
            launch = prompt_attention(shape, state, rows, *pages, mixed, view.scale, is_short=is_short)
            self._launcher.run(launch)
        else:
            self._attend(state, rows[:, : shape.heads], *pages, mixed, view)
        return mixed

    def _bf16_kv(self, kv: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return a layer's KV in bf16 and its page table, unpacked as far as the chunk reads if need be."""
        if self._unpacked is None:
            return kv, self._pages
        blocks = Size((UNPACKING_BLOCKS, 2 * self._model.shape.kv_heads, 1), 256, 1, 0)
        self._launch("unpack_pages", blocks, self._state, kv, self._pages, self._unpacked)
        return self._unpacked, self._identity_pages

    def _feed_forward(self, index: int, size: int) -> None:
        layer, shape = self._weights(index), self._model.shape
        self._add_norm(layer.ffn_gain, size, self._in_its_unit)
        _matmul(self._y[:size], layer.gate_up, self._gate_up[:size])
        launch_size = Size((-(-size * shape.ffn // 8 // 256), 1, 1), 256, 1, 0)
        self._launch("silu_product", launch_size, self._gate_up[:size], self._h[:size], size)
        _matmul(self._h[:size], layer.down, self._delta[:size])

    def _left_by(self, index: int) -> Scales | None:
        """Return the unit of what a layer has left in `delta`, or None if there is no such layer."""
        return self._in_its_unit if index >= 0 else None

    def _add_norm(self, gain: torch.Tensor, size: int, delta_scales: Scales | None) -> None:
        rows, epsilon = Size((size, 1, 1), 256, 1, 32), self._model.shape.norm_epsilon
        scales = delta_scales or self._in_its_unit
        added = (self._delta, int(delta_scales is not None), *scales)
        self._launch("add_norm", rows, self._x, *added, gain, self._y, epsilon)

    def _launch(self, kernel: str, size: Size, *arguments: Argument) -> None:
        self._launcher.run(Launch(kernel, size, arguments, overlaps=False))


def _matmul(
    rows: torch.Tensor, weight: torch.Tensor, out: torch.Tensor, bias: torch.Tensor | None = None
) -> None:
    """Write rows @ weight.T + bias to `out`. Sum in 32 bits and round once, as a GPU does.

    A CPU without bf16 instructions takes 1.5 s where the same product in 32 bits takes 10 ms.
    """
    if not rows.is_cuda:
        product = rows.float() @ weight.float().T
        out.copy_(product if bias is None else product + bias.float())
    elif bias is None:
        torch.mm(rows, weight.T, out=out)
    else:
        torch.addmm(bias, rows, weight.T, out=out)
