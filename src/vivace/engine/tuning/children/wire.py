"""Messages between the tuner and its child processes: one JSON object a line, a request and its answer.

Owns the shapes. Does not own the pipes (`child`) or the work (`probe`).
"""

import msgspec


class Describe(msgspec.Struct, tag=True, frozen=True):
    """Look at this file without keeping it. Answered with `Description`."""

    path: str


class Description(msgspec.Struct, tag=True, frozen=True):
    format: str  # llama.cpp's name of the file's type, such as Q4_K_M; empty if it has none
    weight_bytes: int
    parameters: int

    @property
    def bits(self) -> float:
        """Return actual bits per weight: a file's type only says what most of its tensors are."""
        return 8 * self.weight_bytes / max(1, self.parameters)


class Load(msgspec.Struct, tag=True, frozen=True):
    """Load this file and hold it. Answered with `Done`."""

    path: str
    use_extra_bufts: bool  # weights repacked for the special kernels of this CPU
    threads: int


class Prefill(msgspec.Struct, tag=True, frozen=True):
    """Clear the KV, then prefill `tokens` in chunks without logits. Answered with one time."""

    tokens: int
    chunk_tokens: int


class Passes(msgspec.Struct, tag=True, frozen=True):
    """Run one pass for each size behind the last prefill, with logits of every token. One time each."""

    sizes: list[int]


class Times(msgspec.Struct, tag=True, frozen=True):
    ms: list[float]


class ScoreSample(msgspec.Struct, tag=True, frozen=True):
    """Score the sample text. Answered with `Scores`."""


class Scores(msgspec.Struct, tag=True, frozen=True):
    """For each token of the sample: its log-probability, and the model's greedy choice at its position."""

    logprobs: list[float]
    choices: list[int]


class Requantise(msgspec.Struct, tag=True, frozen=True):
    """Write `source` to `target` in another format. Answered with `Done`."""

    source: str
    target: str
    file_type: int
    threads: int


class Done(msgspec.Struct, tag=True, frozen=True):
    pass


class Failure(msgspec.Struct, tag=True, frozen=True):
    """The request failed; the child continues."""

    message: str


Request = Describe | Load | Prefill | Passes | ScoreSample | Requantise
Answer = Description | Done | Times | Scores | Failure
