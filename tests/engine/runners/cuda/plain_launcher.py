"""Runs the launches of a pass in plain torch: what the kernels compute, quick enough for whole conversations.

One token after the other, so that a token does not depend on its pass, as on the GPU. Stands where
`driver.Module` and the emulator stand; the kernels themselves are tested with those.
"""

from collections.abc import Callable, Iterator
from typing import Any

import torch

from tests.engine.runners.cuda.bed import write_row
from tests.engine.runners.cuda.plain_experts import PlainExperts
from vivace.engine.output.sampler import _key, _noise
from vivace.engine.runners.cuda.decode import launches
from vivace.engine.runners.cuda.decode.launch import Launch
from vivace.engine.runners.cuda.decode.plan import Plan
from vivace.engine.runners.cuda.kv.pool import read_pages
from vivace.engine.runners.cuda.model import reference
from vivace.engine.runners.cuda.rows import launches as row_launches
from vivace.engine.runners.cuda.weights.layout import Matrix, gate_up_pairs, rotation_pairs, untile

Tensor = torch.Tensor
NONE = -1e30


class PlainLauncher(PlainExperts):
    def __init__(self, plan: Plan) -> None:
        self._plan, self._shape = plan, plan.shape
        self._rows: dict[int, Tensor] = {}  # matrices in the model's own order, by where their tiles are

    def run(self, launch: Launch) -> None:
        kernel: Callable[..., None] = getattr(self, f"_{launch.kernel}")
        kernel(*launch.arguments)

    def _matrix(self, tiles: Tensor, scales: Tensor, columns: int, order: Tensor | None = None) -> Tensor:
        if tiles.data_ptr() not in self._rows:
            rows = untile(Matrix(tiles, scales), columns)
            if order is not None:
                rows = torch.empty_like(rows).index_copy_(0, order, rows)
            self._rows[tiles.data_ptr()] = rows
        return self._rows[tiles.data_ptr()]

    def _places(self, state: Tensor, pages: Tensor) -> Iterator[tuple[int, int, Tensor]]:
        """Yield each real token of the pass, its position and its sequence's pages."""
        if not self._plan.is_batch:
            start, count = int(state[launches.POSITION]), int(state[launches.COUNT])
            yield from ((token, start + token, pages) for token in range(count))
            return
        for token, row in enumerate(self._rows_of(state)):
            if row[row_launches.PAGES] >= 0:
                yield token, int(row[row_launches.POSITION]), pages.view(-1)[int(row[row_launches.PAGES]) :]

    def _rows_of(self, inputs: Tensor) -> Tensor:
        return inputs.view(-1, row_launches.ROW_WORDS)[: self._plan.tokens]

    def _embed(self, tokens: Tensor, *rest: Tensor) -> None:
        table, x = rest[-2:]
        if not self._plan.is_batch:
            x.copy_(table[tokens.long()].float())
            return
        for index, row in enumerate(self._rows_of(tokens)):
            token = int(row[row_launches.TOKEN])
            x[index] = table[token if token >= 0 else int(rest[0][-1 - token])].float()

    def _qkv(
        self, state: Tensor, x: Tensor, gain: Tensor, tiles: Tensor, scales: Tensor, bias: Tensor,
        rotation: Tensor, pages: Tensor, q: Tensor, kv: Tensor, epsilon: float, *head_gain: Tensor,
    ) -> None:  # fmt: skip
        shape = self._shape
        order = rotation_pairs(shape.qkv_rows // 128)
        weight = self._matrix(tiles, scales, shape.hidden, order)
        plain_bias = torch.empty_like(bias).index_copy_(0, order, bias)
        for token, at, table in self._places(state, pages):
            y = reference.norm(x[token], gain, epsilon)
            rows = (weight @ y + plain_bias).reshape(1, -1, 128)
            heads = rows[:, : shape.heads + shape.kv_heads]
            if head_gain:
                gains = torch.empty_like(bias).index_copy_(0, order, head_gain[0]).reshape(-1, 128)
                heads = reference.norm(heads, gains[: heads.shape[1]], epsilon)
            turned = reference.rotate(heads, rotation[at : at + 1])[0]
            q[token] = turned[: shape.heads].to(torch.bfloat16)
            kept = torch.stack([turned[shape.heads :], rows[0, shape.heads + shape.kv_heads :]])
            write_row(kv[table[at // 64]], at % 64, kept)

    def _attention(
        self, state: Tensor, q: Tensor, kv: Tensor, pages: Tensor, parts: int, part: Tensor, stats: Tensor,
        _scale: float,
    ) -> None:  # fmt: skip
        if not self._plan.is_batch:
            stats[:parts, ..., 0], stats[:parts, ..., 1], part[:parts] = NONE, 0.0, 0.0
            stats[0, ..., 0], stats[0, ..., 1] = 0.0, 1.0
            part = part[0]
        self._attend(state, q, kv, pages, part)

    def _attend(self, state: Tensor, q: Tensor, kv: Tensor, pages: Tensor, into: Tensor) -> None:
        for token, at, table in self._places(state, pages):
            length = at + 1
            held = read_pages(kv[table[: -(-length // 64)].long()]).float()  # [pages, 2, kv_heads, 64, 128]
            k, v = held.permute(1, 0, 3, 2, 4).reshape(2, -1, self._shape.kv_heads, 128)[:, :length]
            into[token] = reference.attend(q[token : token + 1].float(), k, v, length - 1)[0]

    def _draft_attention(
        self, state: Tensor, q: Tensor, kv: Tensor, pages: Tensor, _parts: int, rank: Tensor, _stats: Tensor,
        _scale: float,
    ) -> None:  # fmt: skip
        """The first rank finds all of it."""
        self._attend(state, q, kv, pages, rank if self._plan.is_batch else rank[0])

    def _merge_ranks(
        self, _state: Tensor, rank: Tensor, _rank_stats: Tensor, part: Tensor, stats: Tensor
    ) -> None:
        if self._plan.is_batch:
            part[: self._plan.tokens] = rank[: self._plan.tokens]
        else:
            stats[..., 0], stats[..., 1] = NONE, 0.0
            stats[0, ..., 0], stats[0, ..., 1] = 0.0, 1.0
            part[0], part[1:] = rank[0], 0.0

    def _out_projection(
        self, part: Tensor, _stats: Tensor, _parts: int, tiles: Tensor, scales: Tensor, x: Tensor
    ) -> None:
        weight = self._matrix(tiles, scales, self._shape.heads * 128)
        mixed = part if self._plan.is_batch else part[0]
        for token in range(self._plan.tokens):
            x[token] += weight @ mixed[token].reshape(-1)

    def _cluster_attention(
        self, state: Tensor, x: Tensor, gain: Tensor, tiles: Tensor, scales: Tensor, bias: Tensor,
        rotation: Tensor, pages: Tensor, kv: Tensor, _parts: int, epsilon: float, out_tiles: Tensor,
        shares: Tensor, _arrived: Tensor, _scale: float,
    ) -> None:  # fmt: skip
        """The first key head has all of it."""
        q = torch.zeros(1, self._shape.heads, 128, dtype=torch.bfloat16)
        self._qkv(state, x, gain, tiles, scales, bias, rotation, pages, q, kv, epsilon)
        mixed = torch.zeros(1, self._shape.heads, 128)
        self._attend(state, q, kv, pages, mixed)
        weight = self._matrix(out_tiles, torch.ones(self._shape.hidden), self._shape.heads * 128)
        shares.zero_()
        shares.view(-1)[: self._shape.hidden] = weight @ mixed.reshape(-1)

    def _gate_up(
        self, x: Tensor, gain: Tensor, tiles: Tensor, scales: Tensor, h: Tensor, epsilon: float
    ) -> None:
        weight = self._matrix(tiles, scales, self._shape.hidden, gate_up_pairs(self._shape.ffn))
        for token in range(self._plan.tokens):
            gate, up = (weight @ reference.norm(x[token], gain, epsilon)).chunk(2)
            h[token, : self._shape.ffn] = torch.nn.functional.silu(gate) * up

    def _down_projection(self, h: Tensor, tiles: Tensor, scales: Tensor, x: Tensor) -> None:
        weight = self._matrix(tiles, scales, self._plan.down_columns)
        for token in range(self._plan.tokens):
            x[token] += weight @ h[token]

    def _feed(
        self, x: Tensor, gain: Tensor, tiles: Tensor, scales: Tensor, _marked: Tensor, epsilon: float,
        down_tiles: Tensor, down_scales: Tensor, _arrived: Tensor, shares: Tensor, share_scales: Tensor,
    ) -> None:  # fmt: skip
        x[0] += shares.view(-1)[: self._shape.hidden] * share_scales
        h = torch.zeros(1, self._plan.down_columns)
        self._gate_up(x, gain, tiles, scales, h, epsilon)
        self._down_projection(h, down_tiles, down_scales, x)

    def _head(
        self, state: Tensor, x: Tensor, gain: Tensor, tiles: Tensor, scales: Tensor, logits: Tensor,
        best_score: Tensor, best_token: Tensor, epsilon: float,
    ) -> None:  # fmt: skip
        weight = self._matrix(tiles, scales, self._shape.hidden)[: self._shape.vocab]
        best_score[:] = -torch.inf
        for token in range(self._plan.tokens):
            score = weight @ reference.norm(x[token], gain, epsilon)
            if not self._plan.is_batch:
                logits[token] = score
            elif row := int(self._rows_of(state)[token][row_launches.LOGITS]):
                logits[row - 1] = score
            best_token[token, 0] = self._sample(state, token, score.double())
            best_score[token, 0] = 0.0

    def _sample(self, state: Tensor, token: int, score: Tensor) -> int:
        if self._plan.is_batch:
            row = self._rows_of(state)[token]
            words, at = row[row_launches.SEED : row_launches.TEMPERATURE + 1], int(row[0])
        else:
            words = state[launches.SEED : launches.TEMPERATURE + 1]
            at = int(state[launches.POSITION]) + token
        temperature = float(words[2].view(torch.float32))
        if temperature > 0.0:
            seed = int(words[0]) & 0xFFFFFFFF | (int(words[1]) & 0xFFFFFFFF) << 32
            noise = torch.from_numpy(_noise(torch.arange(len(score)).numpy(), _key(seed, at + 1)))
            score = (score - score.max()) / temperature + noise
        return int(score.argmax())

    def _choose(self, state: Tensor, _best: Tensor, best_token: Tensor, _blocks: int, *rest: Any) -> None:
        if self._plan.is_batch:
            self._choose_rows(state, best_token, *rest)
        else:
            self._choose_tokens(state, best_token, *rest)

    def _choose_rows(
        self, inputs: Tensor, best_token: Tensor, chosen: Tensor, ring: Tensor, ring_size: int
    ) -> None:
        for index, row in enumerate(self._rows_of(inputs)):
            chosen[index], number = best_token[index, 0], int(row[row_launches.NUMBER])
            ring[number % 2 * ring_size + index] = number << 32 | int(chosen[index])

    def _choose_tokens(
        self, state: Tensor, best_token: Tensor, table: Tensor, x: Tensor, ring: Tensor, ring_size: int,
        streams: int,
    ) -> None:  # fmt: skip
        if not streams:
            for token in range(len(x)):
                ring[token] = int(state[launches.STEP] + 1) << 32 | int(best_token[token, 0])
        elif state[launches.ACTIVE]:
            token, step = int(best_token[0, 0]), int(state[launches.STEP])
            x[0] = table[token].float()
            ring[step % ring_size] = (step + 1) << 32 | token
            state[launches.STEP] += 1
            state[launches.POSITION] += 1
            stops = state[launches.STOP : launches.STOP + int(state[launches.STOPS])]
            state[launches.ACTIVE] = int(token not in stops.tolist())

    def _place(
        self, state: Tensor, rows: Tensor, rotation: Tensor, pages: Tensor, kv: Tensor, *norm: Any
    ) -> None:
        shape, start, count = self._shape, int(state[launches.POSITION]), int(state[launches.COUNT])
        lying = rows[:count].view(count, -1, shape.head_width)
        split = reference.in_rows(lying.float())
        heads = shape.heads + shape.kv_heads
        if norm:
            counts = torch.tensor([shape.heads, shape.kv_heads])
            split[:, :heads] = reference.norm(split[:, :heads], norm[0].repeat_interleave(counts, 0), norm[1])
        turned = reference.rotate(split[:, :heads], rotation[start : start + count])
        lying[:, :heads] = reference.out_of_rows(turned, shape.head_width).to(rows.dtype)
        for token in range(count):
            kept = torch.stack([turned[token, shape.heads :], split[token, heads:]])
            write_row(kv[pages[(start + token) // 64]], (start + token) % 64, kept)

    def _unpack_pages(self, state: Tensor, kv: Tensor, pages: Tensor, out: Tensor) -> None:
        count = -(-(int(state[launches.POSITION]) + int(state[launches.COUNT])) // 64)
        out[:count] = read_pages(kv[pages[:count].long()])

    def _keep_tail(self, state: Tensor, tail_state: Tensor, x: Tensor, rows: Tensor, tail: int) -> None:
        skipped = max(0, int(state[launches.COUNT]) - tail)
        tail_state.copy_(state)
        tail_state[launches.POSITION] += skipped
        tail_state[launches.COUNT] -= skipped
        for each in (x, rows):
            each[:tail] = each[skipped : skipped + tail].clone()

    def _read_tokens(self, tokens: Tensor, table: Tensor, x: Tensor) -> None:
        x.copy_(table[tokens[: len(x)].long()].float())

    def _add_norm(
        self,
        x: Tensor,
        delta: Tensor,
        has_delta: int,
        row_scale: Tensor,
        unit: float,
        gain: Tensor,
        y: Tensor,
        epsilon: float,
    ) -> None:
        if has_delta:
            x += delta.float() * (row_scale[: len(x)].view(-1, 1) * unit)
        y.copy_(reference.norm(x, gain, epsilon).to(torch.bfloat16))

    def _silu_product(self, rows: Tensor, h: Tensor, tokens: int) -> None:
        gate, up = rows[:tokens].float().chunk(2, dim=1)
        h[:tokens] = (torch.nn.functional.silu(gate) * up).to(torch.bfloat16)
