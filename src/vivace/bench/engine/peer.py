"""The other side of the comparison: plain llama.cpp, as llama-cpp-python's own `Llama` class drives it.

Owns the peer's process and the two messages that go over its pipe. It runs in a process of its own
(`peer_process`), so that neither its threads nor its memory mix with ours, and it times itself: the pipe is
not counted against it. Its threads wait as ours do: with its own default a machine that is also busy with
something else slows it down several times (benchmarks/engine/threads.py), which would flatter us.
"""

import contextlib
import os
import subprocess
from types import TracebackType
from typing import Self

import msgspec

from vivace.bench.child import Child
from vivace.engine.tuning.cpu import SPIN_COUNT
from vivace.errors import StartError


class PeerJob(msgspec.Struct, frozen=True):
    """What a peer process is started for."""

    path: str
    context_tokens: int
    threads: int
    has_lookup: bool = False  # prompt-lookup decoding, which must keep the logits of every position


class PeerRequest(msgspec.Struct, frozen=True):
    """Generate greedily from `tokens`; `ready_tokens` of them are evaluated before the clock starts."""

    tokens: list[int]
    max_tokens: int
    ready_tokens: int = 0
    stop: list[str] = []
    end_tokens: list[int] = []
    lookup_tokens: int = 0  # how many tokens prompt lookup drafts; 0: off


class PeerReply(msgspec.Struct, frozen=True):
    """The tokens, and when each one was there, in milliseconds from the start of the clock."""

    tokens: list[int] = []
    arrived_ms: list[float] = []
    error: str = ""

    @property
    def first_token_ms(self) -> float:
        return self.arrived_ms[0]

    @property
    def whole_s(self) -> float:
        return self.arrived_ms[-1] / 1e3

    @property
    def token_ms(self) -> float:
        """Time for each token after the first."""
        return (self.arrived_ms[-1] - self.arrived_ms[0]) / max(1, len(self.tokens) - 1)


class Peer:
    def __init__(self, job: PeerJob) -> None:
        self._child = Child(
            "vivace.bench.engine.peer_process",
            msgspec.json.encode(job).decode(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={"GOMP_SPINCOUNT": SPIN_COUNT, **os.environ},
        )
        self._process = self._child.process
        self.pid = self._process.pid

    def __enter__(self) -> Self:
        try:
            self._read()  # it says once that the model is loaded
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def generate(self, ask: PeerRequest) -> PeerReply:
        assert self._process.stdin
        try:
            self._process.stdin.write(msgspec.json.encode(ask) + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise self._child.why_it_ended("Plain llama.cpp") from None
        return self._read()

    def close(self) -> None:
        """Kill the process: during a generation it would not notice a closed pipe."""
        self._child.end()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe
            with contextlib.suppress(BrokenPipeError):  # something not flushed, and nobody there to want it
                pipe.close()

    def _read(self) -> PeerReply:
        assert self._process.stdout
        line = self._process.stdout.readline()
        if not line:
            raise self._child.why_it_ended("Plain llama.cpp")
        reply = msgspec.json.decode(line, type=PeerReply)
        if reply.error:
            raise StartError(f"Plain llama.cpp cannot do this here: {reply.error}", "Nothing was measured.")
        return reply
