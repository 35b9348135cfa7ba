"""A runner whose next token is a hash of everything in the sequence's KV: one wrong cell changes the text.

Keeps its books as llama.cpp's unified KV does: a cell may belong to several sequences, and is free when it
belongs to none.
"""

import zlib
from collections.abc import Callable, Sequence

import msgspec
import numpy as np

from vivace.engine.runners.base import (
    Checkpoint,
    KVFull,
    KVState,
    Logits,
    MemoryKind,
    ModelInfo,
    ShouldStop,
    Span,
    Stopped,
)

VOCAB, END = 64, 63


def next_token(held: Sequence[int]) -> int:
    return zlib.crc32(bytes(held)) % VOCAB


class Cell:
    """One token's KV; the same object in every sequence that shares it."""

    def __init__(self, token: int) -> None:
        self.token = token


class HashRunner:
    def __init__(
        self,
        context_tokens: int = 512,
        sequences: int = 24,
        logits: Callable[[Sequence[int]], Logits] | None = None,
        memory: MemoryKind = "exact",
    ) -> None:
        self.kv: dict[int, list[Cell]] = {}
        self.info = ModelInfo(
            "hash",
            context_tokens,
            context_tokens,
            sequences,
            VOCAB,
            frozenset({END}),
            1,
            can_stop=True,
            kv_format="hash",
            memory=memory,
        )
        self.passes: list[int] = []  # tokens in each pass
        self.spans: list[list[Span]] = []
        self._logits = logits or (lambda held: np.eye(VOCAB, dtype=np.float32)[next_token(held)] * 9)

    def used_cells(self) -> int:
        return len({id(cell) for cells in self.kv.values() for cell in cells})

    def forward(self, spans: Sequence[Span], should_stop: ShouldStop | None = None) -> Logits:
        count = sum(len(span.tokens) for span in spans)
        if self.used_cells() + count > self.info.context_tokens:
            raise KVFull
        if should_stop and should_stop():
            for span in spans:
                if self.info.memory == "checkpoints":
                    self.kv[span.seq] = []
            raise Stopped
        self.passes.append(count)
        self.spans.append(list(spans))
        rows = []
        for span in spans:
            held = self.kv.setdefault(span.seq, [])
            assert span.start == len(held), f"a hole in the KV: {span.start} after {len(held)}"
            for offset, token in enumerate(span.tokens):
                held.append(Cell(token))
                if offset >= len(span.tokens) - span.want:
                    rows.append(self._logits([cell.token for cell in held]))
        return np.stack(rows) if rows else np.empty((0, VOCAB), np.float32)

    def trim(self, seq: int, length: int) -> int:
        held = self.kv.setdefault(seq, [])
        del held[length if self.can_cut(seq, length) else 0 :]
        return len(held)

    def share(self, source: int, target: int, length: int) -> int:
        held = self.kv.get(source, [])
        self.kv[target] = held[:length] if self.can_cut(source, length) else []
        return len(self.kv[target])

    def can_cut(self, seq: int, length: int) -> bool:
        return self.info.memory == "exact" or length == len(self.kv.get(seq, []))

    def checkpoint(self, seq: int, length: int) -> Checkpoint:
        assert length == len(self.kv[seq])
        return Checkpoint(length, self.save(seq))

    def restore(self, source: int, target: int, checkpoint: Checkpoint) -> int:
        held = self.kv.get(source, [])[: checkpoint.length]
        tokens = msgspec.msgpack.decode(checkpoint.state, type=list[int])
        assert [cell.token for cell in held] == tokens, "a state of another text"
        self.kv[target] = held
        return len(held)

    def save(self, seq: int) -> bytes:
        return msgspec.msgpack.encode([cell.token for cell in self.kv.get(seq, [])])

    def load(self, seq: int, state: KVState) -> None:
        assert isinstance(state, bytes)
        tokens = msgspec.msgpack.decode(state, type=list[int])
        if self.used_cells() + len(tokens) > self.info.context_tokens:
            raise KVFull
        self.kv[seq] = [Cell(token) for token in tokens]

    def known_costs(self) -> dict[int, float]:
        return {1: 1.0}

    def token_bytes(self, token: int) -> bytes:
        return bytes([token + 32])

    def close(self) -> None:
        self.kv.clear()
