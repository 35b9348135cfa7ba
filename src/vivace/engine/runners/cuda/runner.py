"""Our own kernels behind the engine's seam: one NVIDIA GPU.

Owns the KV pool, the pages of each sequence and which path a span takes: up to 32 tokens in one captured
pass, more through the dense prefill. Spans of one call run one after the other: a pass over a few tokens
is bound by the weights it reads, and the engine batches only where candidates are scored. Does not own
who runs when.
"""

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import torch  # type: ignore[import-not-found,unused-ignore]

from vivace.engine.runners.base import Facts, Logits, ShouldStop, Span, Stopped
from vivace.engine.runners.cuda.chain import Model
from vivace.engine.runners.cuda.driver import Module
from vivace.engine.runners.cuda.graphs import MakeMachine, Passes
from vivace.engine.runners.cuda.kv import Pages
from vivace.engine.runners.cuda.plan import PASS_TOKENS
from vivace.engine.runners.cuda.prefill import Prefill
from vivace.engine.runners.cuda.shape import HEAD_DIM, PAGE_TOKENS
from vivace.engine.runners.cuda.stream import DecodeStream
from vivace.engine.runners.cuda.weights import Dense

SEQUENCES = 64
MOST_ROWS = 64  # rows of logits that stay in pinned memory; more are copied slower
FEW = PASS_TOKENS[-1]


class Vocabulary(Protocol):
    end_tokens: frozenset[int]

    def piece(self, token: int) -> bytes: ...


class CudaRunner:
    def __init__(
        self,
        name: str,
        model: Model,
        dense: list[Dense],
        vocabulary: Vocabulary,
        *,
        bits: int,
        context_tokens: int,
        make_machine: MakeMachine = Module,
        blocks: int = 132,
    ) -> None:
        shape, device = model.shape, model.embedding.device
        pages = -(-context_tokens // PAGE_TOKENS)
        most_pages = min(pages, model.rotation.shape[0] // PAGE_TOKENS)
        self._kv = torch.zeros(
            shape.layers, pages, 2, shape.kv_heads, PAGE_TOKENS, HEAD_DIM, dtype=torch.bfloat16, device=device
        )
        self._pages = Pages(pages, SEQUENCES, self._copy_page)
        self._passes = Passes(model, bits, self._kv, most_pages, blocks, make_machine)
        self._prefill = Prefill(model, dense, model.embedding, self._kv, self._passes.sized(1).machine)
        self._vocabulary = vocabulary
        rows = torch.empty(MOST_ROWS, shape.vocab, dtype=torch.float32)
        self._rows = rows.pin_memory() if device.type == "cuda" else rows
        self.facts = Facts(
            name=name,
            context_tokens=pages * PAGE_TOKENS,
            trained_tokens=shape.trained_tokens,
            sequences=SEQUENCES,
            vocab_size=shape.vocab,
            end_tokens=vocabulary.end_tokens,
            threads=1,
            can_stop=True,
            kv_format=f"vivace cuda 1 {name} {shape.layers}x{shape.kv_heads}x{HEAD_DIM} bf16",
        )

    def forward(self, spans: Sequence[Span], should_stop: ShouldStop | None = None) -> Logits:
        for span in spans:  # all or nothing: pages first
            self._pages.reserve(span.seq, span.start, span.start + len(span.tokens))
        found = [self._forward_one(span, should_stop) for span in spans]
        return np.concatenate(found) if len(found) > 1 else found[0]

    def _forward_one(self, span: Span, should_stop: ShouldStop | None) -> Logits:
        pages = self._passes.use_table(self._pages.table(span.seq))
        if len(span.tokens) > FEW:
            return self._to_host(self._prefill.run(span.tokens, span.start, pages, span.want, should_stop))
        if should_stop and should_stop():
            raise Stopped
        buffers = self._passes.run(span.tokens, span.start)
        return self._to_host(buffers.logits[len(span.tokens) - span.want : len(span.tokens)])

    def _to_host(self, rows: torch.Tensor) -> Logits:
        """Waits for the device. One row is 600 KB: 25 µs over the bus."""
        out = self._rows[: len(rows)] if len(rows) <= MOST_ROWS else torch.empty_like(rows, device="cpu")
        out.copy_(rows, non_blocking=True)
        self._wait()
        found: Logits = out.numpy()
        return found

    def decode(
        self,
        seq: int,
        start: int,
        token: int,
        *,
        most_tokens: int,
        stops: Sequence[int] = (),
        temperature: float = 0.0,
        seed: int = 0,
    ) -> DecodeStream:
        """Tokens after `token`, chosen on the device. Nothing else may run until it is done or stopped."""
        self._pages.reserve(seq, start, start + most_tokens + 1)
        self._passes.use_table(self._pages.table(seq))
        return DecodeStream(
            self._passes,
            token,
            start,
            most_tokens=most_tokens,
            stops=stops,
            temperature=temperature,
            seed=seed,
        )

    def trim(self, seq: int, length: int) -> None:
        self._pages.trim(seq, length)

    def share(self, source: int, target: int, length: int) -> None:
        self._pages.share(source, target, length)

    def save(self, seq: int) -> bytes:
        held = self._kv[:, self._pages.table(seq)].cpu()
        state: bytes = held.view(torch.uint8).numpy().tobytes()
        return state

    def load(self, seq: int, state: bytes) -> None:
        page_bytes = self._kv[:, :1].numel() * 2
        count = len(state) // page_bytes
        if not state or len(state) % page_bytes:
            raise ValueError("This is no KV of such a model.")
        self._pages.reserve(seq, 0, count * PAGE_TOKENS)
        held = torch.frombuffer(bytearray(state), dtype=torch.bfloat16)
        target = torch.tensor(self._pages.table(seq)[:count], device=self._kv.device)
        self._kv[:, target] = held.reshape(len(self._kv), count, *self._kv.shape[2:]).to(self._kv.device)

    def known_costs(self) -> dict[int, float]:
        return {}

    def piece(self, token: int) -> bytes:
        return self._vocabulary.piece(token)

    def close(self) -> None:
        self._wait()

    def _copy_page(self, source: int, target: int) -> None:
        self._kv[:, target] = self._kv[:, source]

    def _wait(self) -> None:
        if self._kv.is_cuda:
            torch.cuda.current_stream().synchronize()
