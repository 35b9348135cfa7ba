"""Many tokens at once: chunks of a prompt through torch's matrix products.

Ways to the same numbers. `GraphPrefill` has our own kernels between the products (9 launches a layer) and
captures a chunk's whole pass, in pieces, for each of a few sizes: the host then starts a piece with one call.
`Fp8Prefill` is that with 8-bit floats in the large products.
`TorchPrefill` is the plain way (17 launches a layer, each started by the host), kept to be compared with.
All ask between pieces whether to go on; what a given-up chunk wrote lies behind the sequence's end and is
never read. Owns a chunk's pass. Does not own pages.
"""

from collections.abc import Iterator, Sequence
from typing import Protocol

import torch  # type: ignore[import-not-found,unused-ignore]
from torch.nn import functional  # type: ignore[import-not-found,unused-ignore]

from vivace.engine.runners.base import ShouldStop, Stopped
from vivace.engine.runners.cuda.chain import COUNT, POSITION, STATE_WORDS, Launch, Model
from vivace.engine.runners.cuda.graphs import Machine, Pool, capture_work
from vivace.engine.runners.cuda.plan import Size
from vivace.engine.runners.cuda.shape import HEAD_DIM, Shape
from vivace.engine.runners.cuda.weights import Dense

FP8 = torch.float8_e4m3fn
SIZES = (64, 128, 256, 512, 768, 1024, 1536, 2048, 3072, 4096)  # of a captured chunk
PIECES = 4  # of its pass: somebody may stop it between two
LAYERS_BETWEEN_QUESTIONS = 4
QUERY_ROWS = 128  # tokens of a block of chunk_attention
ATTENTION_BYTES = (QUERY_ROWS + 4 * 64) * HEAD_DIM * 2


class Prefill(Protocol):
    chunk_tokens: int  # the most that one call should take

    def run(
        self,
        tokens: Sequence[int],
        start: int,
        want: int,
        should_stop: ShouldStop | None,
    ) -> torch.Tensor:
        """Put tokens into the pages of their sequence; logits [want, vocab] of the last ones."""
        ...

    def warm_up(self) -> None: ...


class _Common:
    """What both ways share: the inputs of a chunk, and the rows at its end."""

    def __init__(
        self,
        model: Model,
        dense: list[Dense],
        kv: torch.Tensor,
        pages: torch.Tensor,  # the page table of whichever sequence is read
        machine: Machine,
        chunk_tokens: int,
    ) -> None:
        self._model, self._dense, self._kv, self._machine = model, dense, kv, machine
        self._pages = pages
        self.chunk_tokens = chunk_tokens
        self._inputs = torch.zeros(STATE_WORDS + chunk_tokens, dtype=torch.int32, device=kv.device)
        staging = torch.zeros(STATE_WORDS + chunk_tokens, dtype=torch.int32)
        self._staging = staging.pin_memory() if kv.is_cuda else staging
        self._state, self._tokens = self._inputs[:STATE_WORDS], self._inputs[STATE_WORDS:]

    def _write(self, tokens: Sequence[int], start: int) -> None:
        words = self._staging.numpy()
        words[:] = 0
        words[POSITION], words[COUNT] = start, len(tokens)
        words[STATE_WORDS : STATE_WORDS + len(tokens)] = tokens
        self._inputs.copy_(self._staging, non_blocking=True)

    def _logits(self, y: torch.Tensor) -> torch.Tensor:
        return (y @ self._model.dense_head.T).float()

    def _launch(self, kernel: str, size: Size, *arguments: torch.Tensor | int | float) -> None:
        self._machine.run(Launch(kernel, size, arguments, overlaps=False))

    def _settle(self) -> None:
        if self._kv.is_cuda:
            torch.cuda.current_stream().synchronize()

    def _ask(self, should_stop: ShouldStop | None) -> None:
        if should_stop:
            self._settle()  # the host must not run ahead of its question
            if should_stop():
                raise Stopped


class GraphPrefill(_Common):
    def __init__(
        self, model: Model, dense: list[Dense], kv: torch.Tensor, pages: torch.Tensor, machine: Machine
    ) -> None:
        positions = model.rotation.shape[0]
        self._sizes = [size for size in SIZES if size < positions] + [min(positions, SIZES[-1])]
        super().__init__(model, dense, kv, pages, machine, max(self._sizes))
        shape, most = model.shape, self.chunk_tokens

        def zeros(columns: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
            return torch.zeros(most, columns, dtype=dtype, device=kv.device)

        self._x = zeros(shape.hidden, torch.float32)
        self._y, self._delta = zeros(shape.hidden), zeros(shape.hidden)
        self._rows, self._q = zeros(shape.qkv_rows), zeros(shape.heads * HEAD_DIM)
        self._mixed = zeros(shape.heads * HEAD_DIM)
        self._gate_up, self._h = zeros(2 * shape.ffn), zeros(shape.ffn)
        self._graphs: dict[int, list[torch.cuda.CUDAGraph]] = {}
        self._pool: Pool = torch.cuda.graph_pool_handle() if kv.is_cuda else (0, 0)

    def run(
        self,
        tokens: Sequence[int],
        start: int,
        want: int,
        should_stop: ShouldStop | None,
    ) -> torch.Tensor:
        for at in range(0, len(tokens), self.chunk_tokens):
            if at:
                self._settle()  # the inputs of the chunk before are read
            self._ask(should_stop)
            chunk = tokens[at : at + self.chunk_tokens]
            self._write(chunk, start + at)
            self._replay(next(size for size in self._sizes if size >= len(chunk)), should_stop)
        assert want <= len(chunk)
        return self._logits(self._y[len(chunk) - want : len(chunk)])

    def warm_up(self) -> None:
        """Capture every size; nothing is written, since no token is real."""
        if not self._kv.is_cuda:
            return
        for size in self._sizes:
            self._write([], 0)
            self._prepare(size)

    def _replay(self, size: int, should_stop: ShouldStop | None) -> None:
        if self._kv.is_cuda and size in self._graphs:
            for piece in self._graphs[size]:
                self._ask(should_stop)
                piece.replay()
            return
        for piece in range(PIECES):
            self._ask(should_stop)
            self._run_piece(piece, size)

    def _prepare(self, size: int) -> None:
        if size not in self._graphs:
            self._graphs[size] = [
                capture_work(lambda piece=piece: self._run_piece(piece, size), self._pool)  # type: ignore[misc]
                for piece in range(PIECES)
            ]

    def _run_piece(self, piece: int, size: int) -> None:
        """Some layers of a pass over `size` tokens; the first begins it, the last ends it."""
        shape, model = self._model.shape, self._model
        if piece == 0:
            self._launch("read_tokens", Size((size, 1, 1), 256, 1, 0), self._tokens, model.embedding, self._x)
        for index in self._layers(piece):
            self._decoder_layer(index, size)
        if piece == PIECES - 1:
            self._add_norm(model.final_gain, size, has_delta=shape.layers > 0)

    def _layers(self, piece: int) -> Iterator[int]:
        count = len(self._dense)
        yield from range(count * piece // PIECES, count * (piece + 1) // PIECES)

    def _decoder_layer(self, index: int, size: int) -> None:
        layer, shape, kv = self._dense[index], self._model.shape, self._kv[index]
        self._add_norm(layer.attention_gain, size, has_delta=index > 0)
        rows, q, mixed = self._rows[:size], self._q[:size], self._mixed[:size]
        torch.addmm(layer.dense_bias, self._y[:size], layer.qkv.T, out=rows)
        one = Size((size, 1, 1), 256, 1, 0)
        self._launch("place", one, self._state, rows, self._model.rotation, self._pages, q, kv)
        blocks = Size((-(-size // QUERY_ROWS), shape.heads, 1), 128, 1, ATTENTION_BYTES)
        scale = HEAD_DIM**-0.5 * 1.4426950408889634  # the softmax is taken to the base 2
        self._launch("chunk_attention", blocks, self._state, q, kv, self._pages, mixed, scale)
        torch.mm(mixed, layer.out.T, out=self._delta[:size])
        self._feed_forward(index, size)

    def _feed_forward(self, index: int, size: int) -> None:
        layer, shape = self._dense[index], self._model.shape
        self._add_norm(layer.ffn_gain, size, has_delta=True)
        torch.mm(self._y[:size], layer.gate_up.T, out=self._gate_up[:size])
        eights = Size((-(-size * shape.ffn // 8 // 256), 1, 1), 256, 1, 0)
        self._launch("silu_product", eights, self._gate_up[:size], self._h[:size], size)
        torch.mm(self._h[:size], layer.down.T, out=self._delta[:size])

    def _add_norm(self, gain: torch.Tensor, size: int, *, has_delta: bool) -> None:
        rows = Size((size, 1, 1), 256, 1, 32)
        epsilon = self._model.shape.norm_epsilon
        self._launch("add_norm", rows, self._x, self._delta, int(has_delta), gain, self._y, epsilon)


class Fp8Prefill(GraphPrefill):
    """As above, with 8-bit floats in the three large products: half their time, and a question of quality."""

    def __init__(
        self, model: Model, dense: list[Dense], kv: torch.Tensor, pages: torch.Tensor, machine: Machine
    ) -> None:
        super().__init__(model, dense, kv, pages, machine)
        shape, most = model.shape, self.chunk_tokens
        self._weights8 = [(_to_fp8(layer.gate_up), _to_fp8(layer.down)) for layer in dense]
        self._y8 = torch.zeros(most, shape.hidden, dtype=FP8, device=kv.device)
        self._h8 = torch.zeros(most, shape.ffn, dtype=FP8, device=kv.device)
        self._scale = torch.zeros(most, 1, device=kv.device)

    def _feed_forward(self, index: int, size: int) -> None:
        gain, epsilon = self._dense[index].ffn_gain, self._model.shape.norm_epsilon
        (gate_up, up_scale), (down, down_scale) = self._weights8[index]
        y8, h8, scale, rows = (
            self._y8[:size],
            self._h8[:size],
            self._scale[:size],
            Size((size, 1, 1), 256, 1, 64),
        )
        self._launch("add_norm_fp8", rows, self._x, self._delta, gain, y8, scale, epsilon)
        self._multiply(y8, gate_up, scale, up_scale, self._gate_up[:size])
        self._launch("silu_product_fp8", rows, self._gate_up[:size], h8, scale)
        self._multiply(h8, down, scale, down_scale, self._delta[:size])

    def _multiply(
        self,
        rows: torch.Tensor,
        weight: torch.Tensor,
        scale: torch.Tensor,
        weight_scale: torch.Tensor,
        out: torch.Tensor,
    ) -> None:
        if rows.is_cuda:
            torch._scaled_mm(
                rows, weight.T, scale, weight_scale, out_dtype=out.dtype, use_fast_accum=True, out=out
            )
        else:
            out.copy_((rows.float() * scale) @ (weight.float() * weight_scale.T).T)


def _to_fp8(weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows as 8-bit floats, and their scales as [1, rows]."""
    scale = weight.float().abs().amax(dim=1).clamp(min=1e-12) / 448.0
    return (weight.float() / scale[:, None]).to(FP8), scale[None].contiguous()


class TorchPrefill(_Common):
    def __init__(
        self, model: Model, dense: list[Dense], kv: torch.Tensor, pages: torch.Tensor, machine: Machine
    ) -> None:
        super().__init__(model, dense, kv, pages, machine, min(2048, model.rotation.shape[0]))

    def run(
        self,
        tokens: Sequence[int],
        start: int,
        want: int,
        should_stop: ShouldStop | None,
    ) -> torch.Tensor:
        model, shape = self._model, self._model.shape
        for at in range(0, len(tokens), self.chunk_tokens):
            if at:
                self._settle()
            chunk = tokens[at : at + self.chunk_tokens]
            self._write(chunk, start + at)
            x = model.embedding[self._tokens[: len(chunk)].long()].float()
            for index, layer in enumerate(self._dense):
                if index % LAYERS_BETWEEN_QUESTIONS == 0:
                    self._ask(should_stop)
                self._decoder_layer(layer, x, self._kv[index], start + at)
        if not want:
            return x.new_empty(0, shape.vocab)
        y = functional.rms_norm(x[-want:], (shape.hidden,), model.final_gain, shape.norm_epsilon)
        return self._logits(y.to(torch.bfloat16))

    def warm_up(self) -> None:
        """Nothing is captured here."""

    def _decoder_layer(self, layer: Dense, x: torch.Tensor, kv: torch.Tensor, start: int) -> None:
        """x [tokens, hidden] in fp32, changed in place; the rest in bf16."""
        shape, count = self._model.shape, len(x)
        y = functional.rms_norm(x, (shape.hidden,), layer.attention_gain, shape.norm_epsilon)
        rows = functional.linear(y.to(torch.bfloat16), layer.qkv, layer.dense_bias)
        q = torch.empty(count, shape.heads, HEAD_DIM, dtype=torch.bfloat16, device=x.device)
        one = Size((count, 1, 1), 256, 1, 0)
        self._launch("place", one, self._state, rows, self._model.rotation, self._pages, q, kv)
        held = kv.index_select(0, self._pages[: -(-(start + count) // 64)])
        x += functional.linear(_attend(shape, q, held, start + count), layer.out)
        y = functional.rms_norm(x, (shape.hidden,), layer.ffn_gain, shape.norm_epsilon)
        gate, up = functional.linear(y.to(torch.bfloat16), layer.gate_up).chunk(2, dim=1)
        x += functional.linear(functional.silu(gate).mul_(up), layer.down)


PREFILLS: dict[str, type[GraphPrefill] | type[TorchPrefill]] = {
    "graph": GraphPrefill,
    "fp8": Fp8Prefill,
    "torch": TorchPrefill,
}


def _attend(shape: Shape, q: torch.Tensor, held: torch.Tensor, length: int) -> torch.Tensor:
    """q [tokens, heads, 128]; held [pages, 2, kv_heads, 64, 128] → [tokens, heads * 128]"""
    count = len(q)
    k, v = held.permute(1, 2, 0, 3, 4).reshape(2, 1, shape.kv_heads, -1, HEAD_DIM)[..., :length, :]
    q = q.transpose(0, 1)[None]
    if q.is_cuda:  # the flash kernel itself: causal from the end of the context, key heads shared as they are
        flash = torch.ops.aten._scaled_dot_product_flash_attention
        mixed = flash(q, k, v, 0.0, True)[0]
    else:
        seen = torch.ones(count, length, dtype=torch.bool).tril(length - count)
        mixed = functional.scaled_dot_product_attention(q, k, v, attn_mask=seen, enable_gqa=True)
    out: torch.Tensor = mixed[0].transpose(0, 1).reshape(count, -1)
    return out
