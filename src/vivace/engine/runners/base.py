"""The seam between the engine and what computes: a runner holds the weights and the KV, and nothing else.

Owns the shapes that cross the seam. A runner knows sequences (small integers) and positions; it does not
know sessions, turns, sampling or text.
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

Logits = NDArray[np.float32]  # [rows, vocab]


class Span(NamedTuple):
    """Tokens to put at `start` of a sequence; the last `want` of them give a row of logits each."""

    seq: int
    start: int
    tokens: Sequence[int]
    want: int = 0


class Facts(NamedTuple):
    """What the engine must know of a loaded model."""

    name: str
    context_tokens: int  # KV cells, shared by all sequences
    trained_tokens: int
    sequences: int  # sequence ids 0 … sequences-1 may be used
    vocab_size: int
    end_tokens: frozenset[int]  # any of these ends a turn
    threads: int


class KVFull(Exception):
    """No room in the KV for these tokens; nothing was changed. The engine makes room and tries again."""


class Runner(Protocol):
    facts: Facts

    def forward(self, spans: Sequence[Span]) -> Logits:
        """One pass over all spans. Rows come in the order of the spans; valid until the next call."""
        ...

    def trim(self, seq: int, length: int) -> None:
        """Forget everything of `seq` from position `length` on."""
        ...

    def share(self, source: int, target: int, length: int) -> None:
        """Let `target` begin with the first `length` positions of `source`; a copy only if it must be."""
        ...

    def piece(self, token: int) -> bytes:
        """The bytes a token stands for; empty for control tokens."""
        ...

    def close(self) -> None: ...
