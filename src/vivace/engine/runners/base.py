"""The interface between the engine and what computes: a runner holds the weights and the KV, nothing else.

Owns the types that cross this interface. A runner knows sequences (small integers) and positions. It does not
know sessions, turns or text.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Literal, NamedTuple, Protocol, TypeAlias, runtime_checkable

import numpy as np
from numpy.typing import NDArray

Logits = NDArray[np.float32]  # [rows, vocab]

# How far back a sequence can be cut. exact: to any length. bounded: to a length whose window is still there.
# checkpoints: to none, since part of it is a recurrent state. The last two go back to states that were saved.
MemoryKind = Literal["exact", "bounded", "checkpoints"]


class Span(NamedTuple):
    """Tokens to put at position `start` of a sequence. The last `want` of them give a row of logits each."""

    seq: int
    start: int
    tokens: Sequence[int]
    want: int = 0


class ModelInfo(NamedTuple):
    """What the engine must know of a loaded model."""

    name: str
    context_tokens: int  # KV cells, shared by all sequences
    trained_tokens: int  # the context that it was trained for
    sequences: int  # sequence ids 0 … sequences-1 may be used
    vocab_size: int
    end_tokens: frozenset[int]  # any of these ends a turn
    threads: int
    yarn_factor: float = 1.0  # scales positions to reach beyond the trained context; 1: not scaled
    can_stop: bool = False  # whether a pass can be aborted while it runs
    kv_format: str = ""  # runners that differ in it cannot load each other's saved KV
    device: str = "cpu"  # what computes: cpu, cuda, vulkan or metal
    place: str = ""  # the same for people: which runner on which device, and how much of the model is there
    pass_tokens: int = 512  # the most that one pass takes
    draft_tokens: int = 63  # the longest draft that one pass verifies
    stoppable_ms: float = 60.0  # a shorter pass runs to its end without asking `should_stop`
    page_tokens: int = 1  # a sequence takes whole pages of this many cells
    shares_passes: bool = True  # whether one pass over several sequences is faster than one pass each
    memory: MemoryKind = "exact"

    @property
    def limit_tokens(self) -> int:
        """Return the most tokens that one sequence may have."""
        return min(self.context_tokens, round(self.trained_tokens * self.yarn_factor))


class Checkpoint(NamedTuple):
    """What of a sequence cannot be cut, as it was at a length: a recurrent state, or a window's cells."""

    length: int
    state: bytes | bytearray


class KVFull(Exception):
    """The KV has no room for these tokens. Nothing was changed: the engine makes room and tries again."""


class Stopped(Exception):
    """The pass was aborted because `should_stop` returned True. Nothing was changed.

    Except with a memory of checkpoints: the sequences of the pass are empty.
    """


class OutOfMemory(Exception):
    """The device has no memory left for this pass. Nothing was changed."""


class HostMemoryFull(Exception):
    """The host memory for saved KV is full. Nothing was changed: free some saved KV and try again."""


@runtime_checkable
class HeldKV(Protocol):
    """Saved KV in memory that its runner owns, until it is freed. `pieces` are its bytes, in order."""

    size_bytes: int

    def pieces(self) -> Iterable[memoryview]:
        """Yield the bytes, each piece when it is there. Any thread may ask, and may write to them."""
        ...

    def free(self) -> None: ...


KVState: TypeAlias = bytes | HeldKV  # saved KV


class SavedKV(NamedTuple):
    """Saved KV of a sequence, and its checkpoints at earlier lengths."""

    state: KVState
    checkpoints: tuple[Checkpoint, ...] = ()


class SamplingSpec(NamedTuple):
    """How a runner samples tokens itself: greedily, or with temperature as `output.sampler` does."""

    temperature: float = 0.0
    seed: int = 0
    stops: frozenset[int] = frozenset()  # tokens behind one of these are not needed


TellRead = Callable[[int, int], None]  # while a model is loaded: bytes of its files that are read, and of all
ShouldStop = Callable[[], bool]  # called every few milliseconds while a pass runs
WhileRunning = Callable[[], None]  # work for the host while a pass runs on the device


class Runner(Protocol):
    """What every runner can do."""

    info: ModelInfo

    def forward(self, spans: Sequence[Span], should_stop: ShouldStop | None = None) -> Logits:
        """Run one pass over all spans. Return rows in the order of the spans, valid until the next call."""
        ...

    def save(self, seq: int) -> KVState:
        """Return the KV of a sequence, for `load` by a runner with the same `info.kv_format`.

        Raise HostMemoryFull if the runner owns the memory and it is full.
        """
        ...

    def load(self, seq: int, state: KVState) -> None:
        """Load saved KV into an empty sequence. Raise KVFull, or ValueError if `state` is not saved KV."""
        ...

    def trim(self, seq: int, length: int) -> int:
        """Remove the KV of `seq` from position `length` on. Return how many positions it holds now.

        Return 0 if the model's memory cannot be cut there: the sequence is empty then.
        """
        ...

    def share(self, source: int, target: int, length: int) -> int:
        """Make the first `length` positions of `source` the KV of `target`, without a copy if possible.

        Return how many positions `target` holds now: 0 if the memory of `source` cannot be cut there.
        """
        ...

    def known_costs(self) -> dict[int, float]:
        """Return milliseconds of a pass by its tokens, or an empty dict if the engine must measure them."""
        ...

    def token_bytes(self, token: int) -> bytes:
        """Return the bytes of a token, empty for control tokens."""
        ...

    def close(self) -> None: ...


@runtime_checkable
class CheckpointRunner(Runner, Protocol):
    """A runner whose models may have a memory that cannot be cut, but goes back to states that were saved."""

    def can_cut(self, seq: int, length: int) -> bool:
        """Return whether `trim` and `share` can cut a sequence at a length."""
        ...

    def checkpoint(self, seq: int, length: int) -> Checkpoint:
        """Return what of a sequence of this length cannot be cut, in host memory."""
        ...

    def restore(self, source: int, target: int, checkpoint: Checkpoint) -> int:
        """Make `source` as it was at a checkpoint the KV of `target`, which may be the same.

        Return how many positions `target` holds now: 0 if `source` lacks what is not in the checkpoint.
        """
        ...


@runtime_checkable
class DecodingRunner(Runner, Protocol):
    """A runner that can sample tokens itself. The engine uses this for turns that need no logits."""

    def prefill(self, span: Span, sampling: SamplingSpec, should_stop: ShouldStop | None) -> int:
        """Compute a log's last tokens, as `forward` does. Return the token sampled behind them."""
        ...

    def decode(
        self, span: Span, sampling: SamplingSpec, steps_ahead: int, while_running: WhileRunning
    ) -> list[int]:
        """Run one pass over a log's last token and a draft. Return the accepted draft and one token more.

        The runner may start up to `steps_ahead` further passes of one token each with the tokens that it
        sampled; a call that does not continue them discards them. It calls `while_running` after the pass
        was launched and before it waits for the result.
        """
        ...


class DecodeRow(NamedTuple):
    """The next tokens of one sequence: `token` at `start` is the last of its log, `draft` may follow.

    Without `sampling` the caller samples: it gets the logits, and there is no draft.
    """

    seq: int
    start: int
    token: int
    sampling: SamplingSpec | None
    draft: tuple[int, ...] = ()


RowResult: TypeAlias = list[int] | Logits | None  # its tokens, its logits [1, vocab], or not yet


@runtime_checkable
class BatchDecodingRunner(DecodingRunner, Protocol):
    """A runner that samples the next tokens of several sequences in one pass."""

    max_rows: int  # that one pass takes: tokens of all sequences, drafts too
    max_logits_rows: int  # of these, those without sampling

    def decode_rows(
        self, rows: Sequence[DecodeRow], steps_ahead: int, while_running: WhileRunning
    ) -> Sequence[RowResult]:
        """Run one pass over sequences that are all different. Return the tokens that follow each.

        A row gets the accepted draft and one token more, or the logits, as it would alone; logits are valid
        until the next call. It gets None if it has joined while a pass was in flight: then it is in the next
        one. With `steps_ahead` the runner may start a pass on the tokens that it sampled; later calls use it
        for the rows that continue there. A call with a draft discards what is in flight and starts nothing
        ahead.
        """
        ...

    def known_row_costs(self) -> dict[int, float]:
        """Return milliseconds of `decode_rows` by rows: any other number costs as the next larger one."""
        ...


@runtime_checkable
class HostMemoryRunner(Runner, Protocol):
    """A runner that saves KV into host memory of its own, and copies beside its passes."""

    host_bytes_used: int  # by saved KV

    def allocate(self, size_bytes: int) -> HeldKV:
        """Return memory for saved KV of this size, to be read into. Raise HostMemoryFull or ValueError."""
        ...

    def is_loading(self, seq: int) -> bool:
        """Return whether the KV of a sequence is still on its way. A pass over it would wait for that."""
        ...

    def finish_loading(self, seq: int) -> None:
        """Wait until the KV of a sequence is there."""
        ...
