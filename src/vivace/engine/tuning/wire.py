"""What the tuner and its children say to each other: one JSON object a line, a request and then its answer.

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
        """Bits a weight, as they are: a file's type is only what most of its tensors are."""
        return 8 * self.weight_bytes / max(1, self.parameters)


class Load(msgspec.Struct, tag=True, frozen=True):
    """Load this file and hold it. Answered with `Done`."""

    path: str
    use_extra_bufts: bool  # weights repacked for the special kernels of this CPU
    threads: int


class Prefill(msgspec.Struct, tag=True, frozen=True):
    """Forget everything, then feed `tokens` in chunks without asking for logits. Answered with one time."""

    tokens: int
    chunk_tokens: int


class Passes(msgspec.Struct, tag=True, frozen=True):
    """One pass for each size, logits wanted at every place, all behind what was fed last. One time each."""

    sizes: list[int]


class Times(msgspec.Struct, tag=True, frozen=True):
    ms: list[float]


class Read(msgspec.Struct, tag=True, frozen=True):
    """Read the sample text. Answered with `Scores`."""


class Scores(msgspec.Struct, tag=True, frozen=True):
    """For each place of the sample: what the model gave the token that is there, and what it would say."""

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


class Trouble(msgspec.Struct, tag=True, frozen=True):
    """It could not be done; the child lives on."""

    message: str


Request = Describe | Load | Prefill | Passes | Read | Requantise
Answer = Description | Done | Times | Scores | Trouble
