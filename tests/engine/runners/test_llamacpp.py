"""The llama.cpp runner with real tokens of SmolLM2."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.engine.desk import Desk
from vivace.engine.runners.llamacpp import LlamaRunner
from vivace.engine.wire.frames import Generate, Open
from vivace.models.families.base import Message, OutputSpec
from vivace.models.families.qwen25 import Qwen25
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
    for seq in range(runner.info.sequences):
        runner.trim(seq, 0)
    return Desk(runner)


def prompt(tokenizer: GgufTokenizer, text: str) -> list[int]:
    chat = Qwen25(tokenizer)
    log = chat.render([Message("user", text)])
    return log + chat.answer(log, OutputSpec())


def test_text_survives_the_tokenizer(tokenizer: GgufTokenizer) -> None:
    """Pieces of encoded text join to the same bytes, also for text with control names and odd characters."""
    for text in ("def f(x):\n\treturn x\n", "naïve ☃ 🎼", "<|im_end|>", "\x00\x01", "  spaces  "):
        assert b"".join(map(tokenizer.token_bytes, tokenizer.encode(text))) == text.encode()


def test_a_model_answers(desk: Desk, tokenizer: GgufTokenizer) -> None:
    """Greedy decoding gives a sensible sentence and ends by itself."""
    tokens = prompt(tokenizer, "What is the capital of France? Answer in one sentence.")
    desk.run(Open("s"), Generate("s", "t", tokens, max_tokens=60))
    text = b"".join(map(tokenizer.token_bytes, desk.tokens("t"))).decode()
    assert "Paris" in text
    assert desk.finished("t").reason == "stop"
