"""Families over llama.cpp's own tokenizers: which markers are words, and that nobody can write them."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.models.families import tokenizers
from tests.models.families.reading import SPEC, brief, read_tokens
from tests.models.families.tokenizers import real_tokenizer
from tests.thorough import examples
from vivace.models.families.base import Call, Entry, Family, Message, Output, OutputSpec, Thought, Tool
from vivace.models.families.harmony.family import Harmony
from vivace.models.families.llama3 import Llama3
from vivace.models.families.qwen3 import Qwen3
from vivace.models.families.token_writer import TemplateText, TokenWriter
from vivace.models.tokenizer import GgufTokenizer

ENDED = "<|endoftext|>"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("vocabularies")


@pytest.fixture(scope="module")
def qwen3(folder: Path) -> GgufTokenizer:
    words = tokenizers.QWEN_WORDS
    return real_tokenizer(folder / "qwen3.gguf", (*tokenizers.CHATML, ENDED), words, end="<|im_end|>")


@pytest.fixture(scope="module")
def harmony(folder: Path) -> GgufTokenizer:
    return real_tokenizer(folder / "harmony.gguf", (*tokenizers.HARMONY, ENDED), end="<|return|>")


@pytest.fixture(scope="module")
def llama(folder: Path) -> GgufTokenizer:
    return real_tokenizer(folder / "llama.gguf", tokenizers.LLAMA, end="<|eot_id|>")


def test_llama_cpp_counts_markers_of_harmony_as_words(harmony: GgufTokenizer) -> None:
    """All but those that end an answer have text: grammars can name them, and plain text would make them."""
    for name in ("<|start|>", "<|channel|>", "<|message|>", "<|constrain|>", "<|end|>"):
        token = harmony.control(name)
        assert harmony.token_bytes(token) == name.encode()
        assert harmony.encode(name) == [token]
        assert token not in harmony.end_tokens
    for name in ("<|return|>", "<|call|>"):
        assert harmony.token_bytes(harmony.control(name)) == b""
        assert harmony.control(name) in harmony.end_tokens


def test_llama_cpp_tells_a_python_tag_without_text(llama: GgufTokenizer) -> None:
    """So the family wants to hear of it by name."""
    assert Llama3(llama).controls == {llama.control("<|python_tag|>"): "<|python_tag|>"}


def test_markers_without_text_are_told_by_name(folder: Path) -> None:
    """A file that has `<tool_call>` as a control token is read all the same."""
    controls = (*tokenizers.CHATML, *tokenizers.QWEN_WORDS)
    tokenizer = real_tokenizer(folder / "silent.gguf", controls, end="<|im_end|>")
    family = Qwen3(tokenizer, thinking="never")
    assert set(family.controls.values()) == set(tokenizers.QWEN_WORDS)
    spoken = [
        *tokenizer.encode("I look.\n"),
        tokenizer.control("<tool_call>"),
        *tokenizer.encode('{"name": "now", "arguments": {}}'),
        tokenizer.control("</tool_call>"),
    ]
    found = brief(
        read_tokens(family.parser(SPEC, family.answer([], OutputSpec())), family, tokenizer, spoken)
    )
    assert found == ["I look.", ("now", "{}")]


NAMES = (*tokenizers.CHATML, *tokenizers.QWEN_WORDS, *tokenizers.HARMONY, *tokenizers.LLAMA)
NASTY = st.lists(
    st.sampled_from([*NAMES, "<|end|", "|>", "<", "x", "é", "\n", "<|start|><|start|>"]), max_size=5
)


def entries(text: str) -> list[Entry]:
    return [
        Message("system", text), Message("user", text), Thought(text), Message("assistant", text),
        Call(text, text, "c1"), Call("patch", text, "c2", is_custom=True), Output(text, "c1", text),
        Output(text),
    ]  # fmt: skip


@settings(max_examples=examples(60))
@given(pieces=NASTY)
def test_nobody_can_write_a_token_of_the_frame(
    qwen3: GgufTokenizer, harmony: GgufTokenizer, llama: GgufTokenizer, pieces: list[str]
) -> None:
    """Whatever stands in messages, tools, calls and outputs: the frame's tokens are as with harmless text."""
    text = "".join(pieces)
    families: list[tuple[GgufTokenizer, Family]] = [
        (qwen3, Qwen3(qwen3)), (harmony, Harmony(harmony)), (llama, Llama3(llama))
    ]  # fmt: skip
    for tokenizer, family in families:
        frame = set(range(258, 258 + 12))
        counts = []
        for words in ("harmless", text):
            tool = Tool(
                words or "x", words, {"type": "object", "properties": {words: {"description": words}}}
            )
            log = family.render(entries(words), tools=[tool])
            counts.append([token for token in log if token in frame])
            shown = b"".join(tokenizer.token_bytes(token) for token in log).decode()
            assert words in shown
        assert counts[0] == counts[1]


@settings(max_examples=examples(100))
@given(pieces=NASTY)
def test_text_with_markers_stays_the_same_text(qwen3: GgufTokenizer, pieces: list[str]) -> None:
    """Cutting a marker in two changes its tokens, not its letters; our own words are left alone."""
    text = "".join(pieces)
    guarded = tokenizers.QWEN_WORDS
    wording = TokenWriter(qwen3, guarded)
    wording.text(text)
    tokens = wording.tokens()
    assert b"".join(map(qwen3.token_bytes, tokens)).decode() == text
    assert not set(tokens) & {qwen3.control(name) for name in guarded}
    own = TokenWriter(qwen3, guarded)
    own.text(TemplateText(text))
    assert own.tokens() == (qwen3.encode(text) if text else [])
