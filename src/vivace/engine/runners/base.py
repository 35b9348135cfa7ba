"""The seam between the engine and what computes: a runner holds the weights and the KV, and nothing else.

Owns the shapes that cross the seam. A runner knows sequences (small integers) and positions; it does not
know sessions, turns, sampling or text.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

Logits = NDArray[np.float32]  # [rows, vocab]


class Span(NamedTuple):
    """Tokens to put at `start` of a sequence; the last `want` of them give a row of logits each."""

    seq: int
    start: int
    tokens: Sequence[int]
    want: int = 0


class ModelInfo(NamedTuple):
    """What the engine must know of a loaded model."""

    name: str
    context_tokens: int  # KV cells, shared by all sequences
    trained_tokens: int  # the context it was trained for; beyond it, only what `stretch` allows
    sequences: int  # sequence ids 0 … sequences-1 may be used
    vocab_size: int
    end_tokens: frozenset[int]  # any of these ends a turn
    threads: int
    stretch: float = 1.0  # by how much positions are scaled (YaRN) to reach beyond the trained context
    can_stop: bool = False  # whether a pass can be given up in its middle
    kv_format: str = ""  # what saved KV depends on: runners that differ in it cannot read each other's
    device: str = "cpu"  # what computes
    pass_tokens: int = 512  # the most that one pass takes
    draft_tokens: int = 63  # the longest draft that one pass verifies
    stoppable_ms: float = 60.0  # a shorter pass is not worth asking in its middle whether to stop
    shares_passes: bool = True  # whether sequences in one pass are done sooner than one after the other

    @property
    def limit_tokens(self) -> int:
        """The longest that one sequence may be."""
        return min(self.context_tokens, round(self.trained_tokens * self.stretch))


class KVFull(Exception):
    """No room in the KV for these tokens; nothing was changed. The engine makes room and tries again."""


class Stopped(Exception):
    """The pass was given up in its middle because `should_stop` said so; nothing was changed."""


class OutOfMemory(Exception):
    """The device has no memory left for this pass; nothing was changed."""


class SamplingSpec(NamedTuple):
    """How a runner chooses tokens itself: the likeliest, or the one that `sampler` would draw."""

    temperature: float = 0.0
    seed: int = 0
    stops: frozenset[int] = frozenset()  # nothing that follows one of these is wanted


ShouldStop = Callable[[], bool]  # asked every few milliseconds while a pass runs


Meanwhile = Callable[[], None]  # what can be done while a pass runs


class Runner(Protocol):
    """What every runner can do."""

    info: ModelInfo

    def forward(self, spans: Sequence[Span], should_stop: ShouldStop | None = None) -> Logits:
        """One pass over all spans. Rows come in the order of the spans; valid until the next call."""
        ...

    def save(self, seq: int) -> bytes:
        """The KV of a sequence, for `load` by a runner with the same `info.kv_format`."""
        ...

    def load(self, seq: int, state: bytes) -> None:
        """Give an empty sequence the KV that was saved. Raises KVFull, or ValueError if it is not one."""
        ...

    def trim(self, seq: int, length: int) -> None:
        """Forget everything of `seq` from position `length` on."""
        ...

    def share(self, source: int, target: int, length: int) -> None:
        """Let `target` begin with the first `length` positions of `source`; a copy only if it must be."""
        ...

    def known_costs(self) -> dict[int, float]:
        """Milliseconds of a pass by its size, where they need not be measured; else nothing."""
        ...

    def piece(self, token: int) -> bytes:
        """The bytes a token stands for; empty for control tokens."""
        ...

    def close(self) -> None: ...


@runtime_checkable
class DecodingRunner(Runner, Protocol):
    """A runner that can choose tokens itself. It is asked to where a turn needs nothing but its tokens."""

    def decode(self, span: Span, draw: SamplingSpec, ahead: int, meanwhile: Meanwhile) -> list[int]:
        """Run one pass over a log's last token and a draft of what follows it; return the tokens chosen.

        Those are the draft as far as the model says the same, and one token more. Up to `ahead` passes of one
        token each may be begun beyond this one, on what the runner chose itself; whatever is asked next ends
        them. `meanwhile` is called when the pass is under way, before the runner waits for it.
        """
        ...
