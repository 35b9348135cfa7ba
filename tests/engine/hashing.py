"""A runner whose next token is a hash of everything in the sequence's KV: one wrong cell changes the text."""

import zlib
from collections.abc import Sequence

import numpy as np

from vivace.engine.runners.base import Facts, KVFull, Logits, Span

VOCAB, END = 64, 63


def next_token(held: Sequence[int]) -> int:
    return zlib.crc32(bytes(held)) % VOCAB


class HashRunner:
    def __init__(self, context_tokens: int = 512, sequences: int = 24) -> None:
        self.kv: dict[int, list[int]] = {}
        self.facts = Facts("hash", context_tokens, context_tokens, sequences, VOCAB, frozenset({END}), 1)
        self.passes: list[int] = []  # tokens in each pass

    def forward(self, spans: Sequence[Span]) -> Logits:
        count = sum(len(span.tokens) for span in spans)
        if sum(map(len, self.kv.values())) + count > self.facts.context_tokens:
            raise KVFull
        self.passes.append(count)
        rows = []
        for span in spans:
            held = self.kv.setdefault(span.seq, [])
            assert span.start == len(held), f"a hole in the KV: {span.start} after {len(held)}"
            for offset, token in enumerate(span.tokens):
                held.append(token)
                if offset >= len(span.tokens) - span.want:
                    rows.append(np.eye(VOCAB, dtype=np.float32)[next_token(held)] * 9)
        return np.stack(rows) if rows else np.empty((0, VOCAB), np.float32)

    def trim(self, seq: int, length: int) -> None:
        del self.kv.setdefault(seq, [])[length:]

    def share(self, source: int, target: int, length: int) -> None:
        self.kv[target] = self.kv.get(source, [])[:length]

    def piece(self, token: int) -> bytes:
        return bytes([token + 32])

    def close(self) -> None:
        self.kv.clear()
