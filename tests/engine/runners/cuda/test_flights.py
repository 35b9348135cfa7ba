"""Rows on a device that does everything at once, or as late as it may: what is in flight is not disturbed."""

import random
from collections.abc import Callable

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: vivace extras add cuda")
pytest.importorskip("msgspec", reason="the engine's packages are not installed")
if torch.cuda.is_available():
    pytest.skip("a GPU has a queue of its own", allow_module_level=True)

from tests.engine.fixtures import cuda_fixture  # noqa: E402
from vivace.engine.runners.base import DecodeRow, Logits, SamplingSpec, Span  # noqa: E402
from vivace.engine.runners.cuda.rows.launches import RING_WORDS  # noqa: E402
from vivace.engine.runners.cuda.rows.passes import RowPasses  # noqa: E402
from vivace.engine.runners.cuda.runner import CudaRunner  # noqa: E402

TEXTS = [b"one text ", b"another, longer text to go on from ", b"a third ", b"and the last of them "]
TOKENS = 24


class LatePasses(RowPasses):
    queue: list[Callable[[], object]]

    def enqueue(self, work: Callable[[], object]) -> None:
        self.queue.append(work)

    def collect(self, number: int, rows: int) -> list[int]:
        begin = number % 2 * RING_WORDS
        while (self._ring_words[begin : begin + rows] >> 32 != number).any():
            self.queue.pop(0)()
        return super().collect(number, rows)

    def synchronize(self) -> None:
        while self.queue:
            self.queue.pop(0)()


def sampling_of(seq: int) -> SamplingSpec | None:
    """The third and the fourth are sampled by the host."""
    return (SamplingSpec(), SamplingSpec(0.9, 7), None, None)[seq]


def sample(logits: Logits, seq: int, at: int) -> int:
    """Sample in a way that only the host knows."""
    return int(np.argsort(logits[0], kind="stable")[-1 - (seq + at) % 3])


def begin(runner: CudaRunner) -> list[list[int]]:
    for seq, text in enumerate(TEXTS):
        runner.forward([Span(seq, 0, list(text[:-1]))])
    return [[text[-1]] for text in TEXTS]


def alone() -> list[list[int]]:
    runner = cuda_fixture(8).runner
    assert isinstance(runner, CudaRunner)
    said = begin(runner)
    for seq, text in enumerate(TEXTS):
        for at in range(TOKENS):
            span = Span(seq, len(text) - 1 + at, said[seq][-1:])
            if sampling := sampling_of(seq):
                said[seq] += runner.decode(span, sampling)
            else:
                logits = runner.forward([span._replace(want=1)])
                said[seq].append(sample(logits, seq, span.start))
    return said


@pytest.mark.parametrize("is_late", [False, True], ids=["at once", "late"])
def test_rows_that_come_and_go_are_not_disturbed(is_late: bool, seed: int) -> None:
    """Random subsets, steps ahead and trims: every sequence says what it says alone."""
    expected, chance = alone(), random.Random(seed)
    runner = cuda_fixture(8).runner
    assert isinstance(runner, CudaRunner)
    said = begin(runner)
    if is_late:
        runner._row_passes.__class__ = LatePasses
        runner._row_passes.queue = []  # type: ignore[attr-defined]
    while waiting := [seq for seq in range(len(TEXTS)) if len(said[seq]) <= TOKENS]:
        if chance.random() < 0.1:
            seq = chance.choice(waiting)
            del said[seq][chance.randint(1, len(said[seq])) :]
            runner.trim(seq, len(TEXTS[seq]) + len(said[seq]) - 2)
        seqs = [seq for seq in waiting if chance.random() < 0.4] or waiting
        rows = [
            DecodeRow(seq, len(TEXTS[seq]) + len(said[seq]) - 2, said[seq][-1], sampling_of(seq))
            for seq in seqs
        ]
        found = runner.decode_rows(rows, chance.randrange(2))
        assert any(each is not None for each in found)
        for row, each in zip(rows, found, strict=True):
            seq = row.seq
            if each is not None:
                said[seq].append(each if isinstance(each, int) else sample(each, seq, row.start))
            assert said[seq] == expected[seq][: len(said[seq])]
