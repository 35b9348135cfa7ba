"""The llama.cpp runner with real tokens of SmolLM2."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.engine.desk import Desk
from vivace.engine.frames import Append, Fork, Generate, Interrupt, Open, Rewind, Score
from vivace.engine.runners.base import KVFull, Span
from vivace.engine.runners.llamacpp import LlamaRunner
from vivace.models.template import ChatML, Message
from vivace.models.tokenizer import GgufTokenizer


@pytest.fixture(scope="module")
def runner(smol: Path) -> Iterator[LlamaRunner]:
    runner = LlamaRunner(smol, context_tokens=2048, threads=1)
    yield runner
    runner.close()


@pytest.fixture(scope="module")
def tokenizer(smol: Path) -> GgufTokenizer:
    return GgufTokenizer(smol)


@pytest.fixture
def desk(runner: LlamaRunner) -> Desk:
    for seq in range(runner.facts.sequences):
        runner.trim(seq, 0)
    return Desk(runner)


def prompt(tokenizer: GgufTokenizer, text: str) -> list[int]:
    chat = ChatML(tokenizer)
    log = chat.render([Message("user", text)])
    return log + chat.answer(log)


def test_text_survives_the_tokenizer(tokenizer: GgufTokenizer) -> None:
    """Pieces of encoded text join to the same bytes, also for text with control names and odd characters."""
    for text in ("def f(x):\n\treturn x\n", "naïve ☃ 🎼", "<|im_end|>", "\x00\x01", "  spaces  "):
        assert b"".join(map(tokenizer.piece, tokenizer.encode(text))) == text.encode()


def test_a_model_answers(desk: Desk, tokenizer: GgufTokenizer) -> None:
    """Greedy decoding gives a sensible sentence and ends by itself."""
    tokens = prompt(tokenizer, "What is the capital of France? Answer in one sentence.")
    desk.run(Open("s"), Generate("s", "t", tokens, max_tokens=60))
    text = b"".join(map(tokenizer.piece, desk.tokens("t"))).decode()
    assert "Paris" in text
    assert desk.finished("t").reason == "stop"


def assert_same(runner: LlamaRunner, log: list[int], said: list[int], expected: list[int]) -> None:
    """The same tokens, up to the first near-tie: kernels for one row and for many round differently."""
    for index, (one, other) in enumerate(zip(said, expected, strict=False)):
        if one != other:
            (row,) = runner.forward([Span(61, 0, log + expected[:index], want=1)])
            runner.trim(61, 0)
            gap = abs(float(row[one]) - float(row[other]))
            assert gap < 0.3, f"{one} instead of {other} at {index}: {gap:.2f} apart"
            assert max(row[one], row[other]) == row.max()
            return
    assert len(said) == len(expected)


def test_incremental_turns_say_what_a_replay_says(
    desk: Desk, runner: LlamaRunner, tokenizer: GgufTokenizer
) -> None:
    """Interrupts, rewinds and forks leave a KV from which the model says the same as from scratch."""
    log = prompt(tokenizer, "Write a python function that adds two numbers.")
    desk.give(Open("s"), Generate("s", "t", list(log), max_tokens=40))
    for _ in range(12):
        desk.engine.step()
    desk.run(Interrupt("t"))
    log += desk.tokens("t")
    more = tokenizer.encode(" Now in Rust:\n")
    desk.run(Generate("s", "u", more, max_tokens=16))
    log += more
    desk.run(Fork("f", "s", len(log)), Generate("f", "v", [], max_tokens=16))
    desk.run(Rewind("s", len(log)), Generate("s", "w", [], max_tokens=16))
    fresh = Desk(desk.runner)
    for seq in range(desk.runner.facts.sequences):
        desk.runner.trim(seq, 0)
    fresh.run(Open("r"), Generate("r", "x", log, max_tokens=16))
    assert fresh.finished("x").waterfall.cached_tokens == 0
    for turn in "uvw":
        assert_same(runner, log, desk.tokens(turn), fresh.tokens("x"))


def test_a_second_turn_prefills_only_what_is_new(desk: Desk, tokenizer: GgufTokenizer) -> None:
    """Cached and new tokens add up, and new is what was appended and the one token never fed."""
    log = prompt(tokenizer, "Say hello.")
    desk.run(Open("s"), Generate("s", "t", log, max_tokens=8))
    said = len(desk.tokens("t"))
    more = tokenizer.encode(" And again")
    desk.run(Generate("s", "u", more, max_tokens=4))
    waterfall = desk.finished("u").waterfall
    assert waterfall.cached_tokens == len(log) + said - 1
    assert waterfall.new_tokens == len(more) + 1


def test_scores_are_the_models_probabilities(desk: Desk, tokenizer: GgufTokenizer) -> None:
    """The greedy continuation scores best, and a score is the sum of its tokens' log-probabilities."""
    log = prompt(tokenizer, "What is 2 + 2?")
    desk.run(Open("s"), Append("s", "w", log))
    desk.run(Generate("s", "t", [], max_tokens=3))
    best = desk.tokens("t")
    desk.run(Rewind("s", len(log)), Score("s", "c", [], [best, tokenizer.encode("purple elephants")]))
    scores = desk.finished("c").scores
    assert scores[0] > scores[1]
    rows = desk.runner.forward([Span(60, 0, log + best[:-1], want=len(best))])
    expected = 0.0
    for row, token in zip(rows.astype(np.float64), best, strict=True):
        expected += row[token] - row.max() - np.log(np.exp(row - row.max()).sum())
    desk.runner.trim(60, 0)
    assert scores[0] == pytest.approx(expected, abs=0.05)


def test_a_full_kv_raises_and_changes_nothing(runner: LlamaRunner, tokenizer: GgufTokenizer) -> None:
    """Tokens that find no room raise KVFull; after a trim the runner goes on."""
    for seq in range(runner.facts.sequences):
        runner.trim(seq, 0)
    token = tokenizer.encode("a")[0]
    for start in range(0, 2048, 512):
        runner.forward([Span(0, start, [token] * 512, 0)])
    with pytest.raises(KVFull):
        runner.forward([Span(1, 0, [token] * 8, 1)])
    runner.trim(0, 1024)
    assert runner.forward([Span(1, 0, [token] * 8, 1)]).shape == (1, runner.facts.vocab_size)
