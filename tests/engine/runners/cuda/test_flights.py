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
from vivace.engine.runners.base import DecodeRow, KVFull, Logits, SamplingSpec, Span  # noqa: E402
from vivace.engine.runners.cuda.rows.launches import FRESH, POSITION, RING_WORDS, ROW_WORDS  # noqa: E402
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
        make_late(runner)
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
                said[seq] += each if isinstance(each, list) else [sample(each, seq, row.start)]
            assert said[seq] == expected[seq][: len(said[seq])]


def make_late(runner: CudaRunner) -> None:
    runner._row_passes.__class__ = LatePasses
    runner._row_passes.queue = []  # type: ignore[attr-defined]


def draft_for(said: list[int], expected: list[int], chance: random.Random) -> tuple[int, ...]:
    """What follows, or something that goes wrong after a while."""
    draft = expected[len(said) : -1][: chance.randint(1, 9)]
    if draft and chance.random() < 0.4:
        at = chance.randrange(len(draft))
        draft[at:] = [(token + 1) % 250 for token in draft[at:]]
    return tuple(draft)


@pytest.mark.parametrize("is_late", [False, True], ids=["at once", "late"])
def test_drafts_disturb_nobody(is_late: bool, seed: int) -> None:
    """Random drafts, right and wrong, steps ahead, trims, forks, a full KV: each says what it says alone."""
    expected, chance = alone(), random.Random(seed)
    runner = cuda_fixture(8).runner
    assert isinstance(runner, CudaRunner)
    said, kinds = begin(runner), list(range(len(TEXTS)))  # a fork says what its source does
    if is_late:
        make_late(runner)
    verified = 0
    while waiting := [seq for seq, kind in enumerate(kinds) if len(said[seq]) <= TOKENS]:
        starts = [len(TEXTS[kind]) + len(said[seq]) - 2 for seq, kind in enumerate(kinds)]
        chosen = chance.choice(waiting)
        if chance.random() < 0.1:
            del said[chosen][chance.randint(1, len(said[chosen])) :]
            runner.trim(chosen, len(TEXTS[kinds[chosen]]) + len(said[chosen]) - 2)
            continue
        if len(kinds) < 8 and chance.random() < 0.2:
            runner.share(chosen, len(kinds), starts[chosen])
            kinds.append(kinds[chosen])
            said.append(list(said[chosen]))
            continue
        seqs = [seq for seq in waiting if chance.random() < 0.4] or waiting
        is_drafting, rows, room = chance.random() < 0.5, [], runner.max_rows - len(seqs)
        for seq in seqs:
            draft = draft_for(said[seq], expected[kinds[seq]], chance)[:room]
            sampling = sampling_of(kinds[seq])
            wants = is_drafting and sampling and chance.random() < 0.7
            rows.append(DecodeRow(seq, starts[seq], said[seq][-1], sampling, draft if wants else ()))
            room -= len(rows[-1].draft)
        free = dict(runner._pages._free)
        if chance.random() < 0.1:
            runner._pages._free.clear()
        try:
            found = runner.decode_rows(rows, chance.randrange(2))
        except KVFull:
            continue
        finally:
            runner._pages._free.update({page: None for page in free if not runner._pages._holders[page]})
        assert any(each is not None for each in found)
        for row, each in zip(rows, found, strict=True):
            if each is not None:
                each = each if isinstance(each, list) else [sample(each, kinds[row.seq], row.start)]
                said[row.seq] += each
                verified += len(each) - 1
                if len(each) <= len(row.draft):
                    runner.trim(row.seq, row.start + len(each))
            wanted = expected[kinds[row.seq]]
            assert said[row.seq] == wanted[: len(said[row.seq])]
    assert verified


def test_a_forks_page_is_copied_behind_what_is_in_flight() -> None:
    """A page that its source still writes to goes to a page of its own with that token."""
    expected = alone()[0]
    runner = cuda_fixture(8).runner
    assert isinstance(runner, CudaRunner)
    said, start = begin(runner)[0], len(TEXTS[0]) - 1
    make_late(runner)
    while len(said) < len(expected):
        at = start + len(said) - 1
        if len(said) == 3:  # its next token is in flight
            runner.share(0, len(TEXTS), at)
        [found] = runner.decode_rows([DecodeRow(0, at, said[-1], SamplingSpec())], steps_ahead=1)
        assert isinstance(found, list)
        said += found
    assert said == expected


def test_a_drafts_rows_know_what_their_pass_writes() -> None:
    """The attention reads positions before `fresh` ahead of the kernel that writes the rows of its pass."""
    runner = cuda_fixture(8).runner
    assert isinstance(runner, CudaRunner)
    begin(runner)
    starts = [len(text) - 1 for text in TEXTS]
    drafts: list[tuple[int, ...]] = [(), (1, 2, 3)]
    runner.decode_rows([DecodeRow(seq, starts[seq], 7, SamplingSpec(), drafts[seq]) for seq in range(2)])
    rows = runner._row_passes._buffers.inputs.view(-1, ROW_WORDS)[:5]
    assert rows[:, POSITION].tolist() == [starts[0], *range(starts[1], starts[1] + 4)]
    assert rows[:, FRESH].tolist() == [starts[0], *[starts[1]] * 4]


def test_rows_are_measured_at_each_size() -> None:
    runner = cuda_fixture(8).runner
    assert isinstance(runner, CudaRunner)
    assert list(runner.known_row_costs()) == [2, 4, 8, 16]
    assert not runner._pages.table(0)
