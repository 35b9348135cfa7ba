"""Tokens that the runner chooses itself, several steps ahead and with drafts: the same as by its logits."""

import random
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: vivace extras add cuda")
pytest.importorskip("msgspec", reason="the engine's packages are not installed")

from tests.engine.desk import Desk  # noqa: E402
from tests.engine.fixtures import PAYING, cuda_fixture  # noqa: E402
from vivace.engine.output.sampler import Sampler  # noqa: E402
from vivace.engine.runners.base import KVFull, Logits, SamplingSpec, ShouldStop, Span, WhileRunning  # noqa: E402
from vivace.engine.runners.cuda.decode.graphs import Passes  # noqa: E402
from vivace.engine.runners.cuda.runner import CudaRunner  # noqa: E402
from vivace.engine.wire.frames import Generate, Interrupt, Open, Sampling  # noqa: E402

STOP = 120


def make_runner(bits: int = 8) -> CudaRunner:
    runner = cuda_fixture(bits).runner
    assert isinstance(runner, CudaRunner)
    return runner


class ByLogits:
    """The same runner for an engine that does not know that it can choose."""

    def __init__(self, runner: CudaRunner) -> None:
        self._runner, self.info = runner, runner.info
        self.save, self.load, self.trim, self.share = runner.save, runner.load, runner.trim, runner.share
        self.known_costs, self.token_bytes, self.close = runner.known_costs, runner.token_bytes, runner.close

    def forward(self, spans: Sequence[Span], should_stop: ShouldStop | None = None) -> Logits:
        return self._runner.forward(spans, should_stop)


class Counting(CudaRunner):
    """Counts what was asked of it."""

    asked: list[tuple[int, int]]

    def decode(
        self,
        span: Span,
        sampling: SamplingSpec,
        steps_ahead: int = 0,
        while_running: WhileRunning = lambda: None,
    ) -> list[int]:
        self.asked.append((len(span.tokens), steps_ahead))
        return super().decode(span, sampling, steps_ahead, while_running)


@pytest.mark.parametrize("sampling", [Sampling(), Sampling(temperature=0.8, seed=5)], ids=["greedy", "drawn"])
@pytest.mark.parametrize("use_drafts", [True, False])
def test_an_engine_says_the_same_either_way(sampling: Sampling, use_drafts: bool) -> None:
    """Through `decode` and through logits: the same tokens, to the last."""
    runner = make_runner()
    runner.__class__ = Counting
    runner.asked = []  # type: ignore[attr-defined]
    texts = []
    for each in (ByLogits(runner), runner):
        for seq in range(runner.info.sequences):
            runner.trim(seq, 0)
        desk = Desk(each, costs=PAYING)
        prediction = texts[0][:30] + texts[0][33:] if texts and use_drafts else []
        log = list(b"a text to go on from: ")
        desk.run(
            Open("s"),
            Generate(
                "s", "t", log, max_tokens=80, sampling=sampling, use_drafts=use_drafts, prediction=prediction
            ),
        )
        texts.append(desk.tokens("t"))
    assert len(texts[0]) == 80
    assert texts[0] == texts[1]
    asked = runner.asked  # type: ignore[attr-defined]
    if use_drafts:
        assert max(tokens for tokens, _ in asked) > 8
        assert len(asked) < 60
    else:
        assert {steps_ahead for _, steps_ahead in asked[:-2]} == {2}
        assert len(asked) == 79


class LatePasses(Passes):
    """A device that does nothing before it must: every mistake in what is in flight shows."""

    queue: list[Callable[[], object]]

    def enqueue(self, work: Callable[[], object]) -> None:
        self.queue.append(work)

    def wait_for(self, index: int, step: int) -> int:
        while int(self._ring_words[index]) >> 32 != step:
            self.queue.pop(0)()
        return super().wait_for(index, step)

    def synchronize(self) -> None:
        while self.queue:
            self.queue.pop(0)()


def make_late(runner: CudaRunner) -> CudaRunner:
    passes, prefill = runner._passes, runner._prefill
    passes.__class__ = LatePasses
    passes.queue = []  # type: ignore[attr-defined]
    run = prefill.run

    def run_in_turn(*asked: Any) -> Any:
        passes.synchronize()
        return run(*asked)

    prefill.run = run_in_turn  # type: ignore[assignment, method-assign]
    return runner


@cache
def oracle(text: bytes, count: int, sampling: SamplingSpec) -> list[int]:
    """What follows, one pass of one token after the other, chosen by the engine's own sampler."""
    runner, said = make_runner(), list(text)
    sampler = Sampler(Sampling(temperature=sampling.temperature, seed=sampling.seed), [])
    runner.forward([Span(0, 0, said[:-1])])
    while len(said) < len(text) + count:
        (row,) = runner.forward([Span(0, len(said) - 1, said[-1:], want=1)])
        said.append(sampler.sample(row, len(said)))
    return said[len(text) :]


@pytest.mark.parametrize("is_late", [False, True], ids=["at once", "late"])
@pytest.mark.parametrize("sampling", [SamplingSpec(), SamplingSpec(0.7, 99)], ids=["greedy", "drawn"])
def test_whatever_is_asked_in_between(sampling: SamplingSpec, is_late: bool, seed: int) -> None:
    """Right and wrong drafts, steps ahead, trims, forks and other sequences: always the oracle's tokens."""
    chance = random.Random(seed)
    text = list(b"the beginning of everything ")
    wanted = text + oracle(bytes(text), 150, sampling)
    runner, length = make_runner(), len(text)
    if is_late and not torch.cuda.is_available():  # a GPU is late by itself
        make_late(runner)
    runner.forward([Span(0, 0, text[:-1])])
    while length < len(wanted) - 40:
        match chance.choice(["step", "step", "step", "right", "wrong", "half", "trim", "other", "fork"]):
            case "step":
                draft = []
            case "right":
                draft = wanted[length : length + chance.randint(1, 31)]
            case "wrong":
                draft = [(wanted[length] + 1) % 128, 5]
            case "half":
                draft = [*wanted[length : length + 3], (wanted[length + 3] + 1) % 128, 7]
            case "trim":
                length = chance.randint(max(len(text), length - 20), length)
                runner.trim(0, length - 1)
                draft = []
            case "other":
                runner.forward([Span(1, 0, text, want=1)])
                runner.decode(Span(1, len(text), [65]), sampling, 2)
                continue
            case _:
                runner.share(0, 2, length - 1)
                runner.decode(Span(2, length - 1, [66, 67]), sampling, chance.randint(0, 2))
                continue
        said = runner.decode(
            Span(0, length - 1, [wanted[length - 1], *draft]), sampling, chance.randint(0, 2)
        )
        expected = wanted[length : length + len(said)]
        assert said == expected
        right = next((n for n, (a, b) in enumerate(zip(draft, said, strict=False)) if a != b), len(draft))
        assert len(said) == right + 1
        length += len(said)
        runner.trim(0, length - 1)


def test_what_an_earlier_pass_writes_late_is_not_taken() -> None:
    """A draft that fails early leaves choices that nobody waited for: they may come at any time."""
    runner, text = make_runner(), list(b"the beginning of everything ")
    runner.forward([Span(0, 0, text)])
    runner.share(0, 1, len(text))
    (wanted,) = runner.decode(Span(1, len(text), [65]), SamplingSpec())
    runner.decode(Span(0, len(text), [66, 67]), SamplingSpec())
    runner.trim(0, len(text))
    if not torch.cuda.is_available():
        make_late(runner)
    passes, late = runner._passes, runner._passes.ring.clone()
    late[0] += 1 if late[0] & 0xFFFFFFFF != wanted - 1 else 2  # surely another token

    def clear_too_early(_words: int) -> None:
        passes.ring.copy_(late)

    passes.clear_ring = clear_too_early  # type: ignore[assignment, method-assign]
    assert runner.decode(Span(0, len(text), [65, 67]), SamplingSpec())[0] == wanted


def test_nothing_is_begun_where_there_is_no_room() -> None:
    """A runner whose last page is full raises KVFull for the step itself only, never for steps ahead."""
    runner = make_runner()
    runner.forward([Span(1, 0, [65] * (2048 - 64))])
    runner.forward([Span(0, 0, [65] * 60)])
    length = 61
    for _ in range(4):
        assert len(runner.decode(Span(0, length - 1, [65]), SamplingSpec(), 2)) == 1
        length += 1
    with pytest.raises(KVFull):
        runner.decode(Span(0, length - 1, [65]), SamplingSpec(), 2)
    runner.trim(1, 1024)
    assert len(runner.decode(Span(0, length - 1, [65]), SamplingSpec(), 2)) == 1


def test_a_stop_token_ends_what_follows() -> None:
    """A draft behind a stop token is not said, right as it may be."""
    text = list(b"and so on ")
    wanted = oracle(bytes(text), 6, SamplingSpec())
    runner = make_runner()
    runner.forward([Span(0, 0, text[:-1])])
    sampling = SamplingSpec(stops=frozenset({wanted[2]}))
    first = wanted.index(wanted[2]) + 1
    said = runner.decode(Span(0, len(text) - 1, [text[-1], *wanted[:5]]), sampling, 0)
    assert said == wanted[:first]


def test_a_second_turn_shares_passes() -> None:
    """While two turns decode nothing is asked for one alone; both say what they say alone."""
    runner = make_runner()
    runner.__class__ = Counting
    runner.asked = []  # type: ignore[attr-defined]
    desk = Desk(runner)
    desk.give(Open("a"), Open("b"), Generate("a", "x", list(b"one "), max_tokens=30, use_drafts=False))
    for _ in range(8):
        desk.engine.step()
    asked = runner.asked  # type: ignore[attr-defined]
    assert asked[-1] == (1, 2)
    desk.give(Generate("b", "y", list(b"two "), max_tokens=6, use_drafts=False))
    while not desk.tokens("y"):
        desk.engine.step()
    before = len(asked)
    while len(desk.tokens("y")) < 5:
        desk.engine.step()
    assert len(asked) == before
    desk.run(Interrupt("x"))
    for turn, text in (("x", b"one "), ("y", b"two ")):
        said = desk.tokens(turn)
        assert said == oracle(text, len(said), SamplingSpec())
