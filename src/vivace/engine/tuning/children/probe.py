"""The child process of the tuner: requests on stdin, answers on stdout (`wire`), one after the other.

    python -m vivace.engine.tuning.children.probe

Ends when stdin ends, so it never outlives the tuner by more than one request. Owns the process: what
llama.cpp prints goes to stderr, and whatever goes wrong becomes an answer. Does not measure (`timed_runner`).
"""

import os
import sys
from typing import TYPE_CHECKING

import msgspec

from vivace.engine.tuning.children.wire import (
    Answer,
    Describe,
    Done,
    Failure,
    Load,
    Passes,
    Prefill,
    Requantise,
    Request,
    ScoreSample,
)
from vivace.engine.tuning.cpu import SPIN_COUNT
from vivace.errors import VivaceError

if TYPE_CHECKING:
    from vivace.engine.tuning.children.timed_runner import TimedRunner


class Probe:
    """Holds at most one loaded variant."""

    def __init__(self) -> None:
        self._held: TimedRunner | None = None

    def answer(self, request: Request) -> Answer:
        from vivace.engine.tuning.children import timed_runner

        match request:
            case Describe(path):
                return timed_runner.describe(path)
            case Requantise():
                timed_runner.requantise(request)
                return Done()
            case Load(path, use_extra_bufts, threads):
                self._held = timed_runner.TimedRunner(path, threads, use_extra_bufts=use_extra_bufts)
                return Done()
        assert self._held is not None, "Load comes first"
        match request:
            case Prefill(tokens, chunk_tokens):
                return self._held.prefill(tokens, chunk_tokens)
            case Passes(sizes):
                return self._held.passes(sizes)
            case ScoreSample():
                return self._held.read()


def main() -> int:
    os.environ.setdefault("GOMP_SPINCOUNT", SPIN_COUNT)  # as in the engine
    answers = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)  # C code that prints must not write into the answers
    probe = Probe()
    for line in sys.stdin.buffer:
        try:
            answer = probe.answer(msgspec.json.decode(line, type=Request))
        except VivaceError as error:
            answer = Failure(error.message)
        except Exception as error:  # noqa: BLE001 - the boundary of this process: answered, not swallowed
            answer = Failure(f"{type(error).__name__}: {error}")
        answers.write(msgspec.json.encode(answer) + b"\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
