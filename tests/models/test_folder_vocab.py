"""A folder's vocabulary: text comes back as it was, names stay text, and llama.cpp reads the same tokens."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("tokenizers", reason="tokenizers is not installed: vivace extras add cuda")

from tests import REPOSITORY
from tests.folders import (
    BYTES,
    CONTROLS,
    SPLIT,
    WORDS,
    write_config,
    write_gguf_vocabulary,
    write_vocabulary,
)
from vivace.config import load_settings
from vivace.errors import StartError
from vivace.models.catalog import QWEN
from vivace.models.families.choose import family_for, template_of
from vivace.models.families.template.family import TemplateFamily
from vivace.models.folder_vocab import FolderTokenizer, FolderVocabulary
from vivace.models.store import card_path, is_complete
from vivace.models.tokenizer import GgufTokenizer, load_tokenizer

SOURCES = REPOSITORY / "src" / "vivace"
MARKS = ("e\u0301", "<tool_call> ", *WORDS, *CONTROLS)
REMOVED = {"behavior": "Removed"}
DIGITS = {"type": "Digits", "individual_digits": True}
# Characters that every version of Unicode in question knows by the same kind.
known = st.text(
    st.characters(max_codepoint=0xFFFF, exclude_categories=["Cs", "Cn", "Co"]) | st.sampled_from("😀𝕏𐍈 \n\t'")
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tiny")
    write_config(path)
    write_vocabulary(path)
    return path


@pytest.fixture(scope="module")
def tokenizer(folder: Path) -> FolderTokenizer:
    return FolderTokenizer(folder)


def spell(words: FolderVocabulary, tokens: list[int]) -> bytes:
    return b"".join(map(words.token_bytes, tokens))


@given(text=st.lists(st.text(st.characters(exclude_categories=[])) | st.sampled_from(MARKS)).map("".join))
def test_pieces_give_the_text_back(tokenizer: FolderTokenizer, text: str) -> None:
    """Byte for byte: nothing is normalised, stripped or cut off, and half characters stay as they are."""
    assert spell(tokenizer, tokenizer.encode(text)) == text.encode("utf-8", "surrogatepass")


def test_a_control_tokens_name_is_text(tokenizer: FolderTokenizer) -> None:
    """Only `control` gives the token; added words are tokens wherever they are."""
    for name in CONTROLS:
        token = tokenizer.control(name)
        assert tokenizer.token_bytes(token) == b""
        assert token not in tokenizer.encode(f"a {name} b")
    for word in WORDS:
        assert tokenizer.control(word) in tokenizer.encode(f"a {word} b")
    with pytest.raises(StartError, match="no control token <nothing>"):
        tokenizer.control("<nothing>")


def test_the_engine_reads_the_same_words(folder: Path, tokenizer: FolderTokenizer) -> None:
    """Pieces and end tokens, without the package; beyond the vocabulary nothing is said."""
    words = FolderVocabulary(folder)
    assert words.size == tokenizer.size
    assert [words.token_bytes(token) for token in range(words.size)] == [
        tokenizer.token_bytes(token) for token in range(words.size)
    ]
    assert words.token_bytes(words.size) == b""
    assert words.end_tokens == tokenizer.end_tokens


def test_all_that_end_a_turn(tmp_path: Path) -> None:
    """The list of generation_config, the one of config, the tokenizer's name for it, and the known names."""
    write_vocabulary(tmp_path)
    write_config(tmp_path, eos_token_id=7)
    (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": [8, 9, -1, 10**9]}))
    words = FolderTokenizer(tmp_path)
    named = {words.control("<|im_end|>"), words.control("<|endoftext|>")}
    assert words.end_tokens == {7, 8, 9} | named


def test_the_family_is_told_by_the_folder(tmp_path: Path, tokenizer: FolderTokenizer, folder: Path) -> None:
    """By the template in either place where folders have one, or else by the architecture."""
    assert isinstance(family_for(tokenizer, str(folder)), TemplateFamily)
    write_config(tmp_path, model_type="llama")
    assert template_of(tmp_path) == "llama"
    templates = [{"name": "tool_use", "template": "one"}, {"name": "default", "template": "two"}]
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"chat_template": templates}))
    assert template_of(tmp_path) == "two"
    (tmp_path / "chat_template.jinja").write_text("three")
    assert template_of(tmp_path) == "three"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"model": {"type": "Unigram", "vocab": []}}, "no byte-level BPE"),
        ({"pre_tokenizer": {"type": "Whitespace"}}, "no byte-level BPE"),
        ({"pre_tokenizer": ["ByteLevel"]}, "no byte-level BPE"),
        ({"normalizer": {"type": "Lowercase"}}, "no byte-level BPE"),
        (
            {"pre_tokenizer": {"type": "Sequence", "pretokenizers": [SPLIT | REMOVED, BYTES]}},
            "no byte-level BPE",
        ),
        ({"model": {"type": "BPE", "continuing_subword_prefix": "##"}}, "no byte-level BPE"),
        ({"model": {"type": "BPE", "vocab": {"a": 10**9}, "merges": []}}, "not as it should be"),
        ({"model": {"type": "BPE", "vocab": {"a": "b"}, "merges": []}}, "not as it should be"),
        ({"model": {"type": "BPE", "vocab": {"a": 0}, "merges": [["a", "b"]]}}, "cannot be used"),
        ({"model": None}, "no byte-level BPE"),
        ({"added_tokens": [{"id": -1, "content": "x"}]}, "not as it should be"),
        ({"added_tokens": [{"id": 3}]}, "not as it should be"),
    ],
)
def test_what_is_no_vocabulary(folder: Path, tmp_path: Path, change: dict[str, Any], words: str) -> None:
    """Said in one line, with what to do."""
    write_config(tmp_path)
    told = json.loads((folder / "tokenizer.json").read_text())
    (tmp_path / "tokenizer.json").write_text(json.dumps(told | change))
    with pytest.raises(StartError, match=words) as raised:
        load_tokenizer("", tmp_path)
    assert "\n" not in raised.value.message
    assert raised.value.hint


def test_steps_inside_of_steps_without_end(folder: Path, tmp_path: Path) -> None:
    """However deep: one line."""
    write_config(tmp_path)
    told = json.loads((folder / "tokenizer.json").read_text())
    for depth in (20, 400):
        steps: Any = BYTES
        for _ in range(depth):
            steps = {"type": "Sequence", "pretokenizers": [steps]}
        (tmp_path / "tokenizer.json").write_text(json.dumps(told | {"pre_tokenizer": steps}))
        with pytest.raises(StartError, match="no byte-level BPE"):
            FolderTokenizer(tmp_path)
    (tmp_path / "tokenizer.json").write_text("[" * 200_000)
    with pytest.raises(StartError, match="not as it should be"):
        FolderTokenizer(tmp_path)


def test_only_folders_load_the_package(folder: Path) -> None:
    """Neither the server's modules nor the engine's words do; what fetches from the hub is never loaded."""
    code = (
        "import sys, pathlib, vivace.server.backends.native.loaded_model\n"
        "from vivace.models.folder_vocab import FolderVocabulary\n"
        "from vivace.models.folder_vocab import FolderTokenizer\n"
        f"folder = pathlib.Path({str(folder)!r})\n"
        "FolderVocabulary(folder)\n"
        "assert 'tokenizers' not in sys.modules\n"
        "FolderTokenizer(folder).encode('hello')\n"
        "assert 'huggingface_hub' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


# Against llama.cpp -----------------------------------------------------------------------------------------


class Twins:
    """One vocabulary, read from a GGUF file by llama.cpp and from a folder by us."""

    def __init__(self, source: Path, folder: Path, cuts: list[dict[str, Any]]) -> None:
        write_gguf_vocabulary(source, folder, cuts)
        self.theirs, self.ours = GgufTokenizer(source), FolderTokenizer(folder)

    def assert_same(self, text: str) -> None:
        assert self.ours.encode(text) == self.theirs.encode(text)


@pytest.fixture(scope="module", params=["qwen2.5-coder", "smollm2"])
def twins(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Twins:
    pytest.importorskip("llama_cpp", reason="llama.cpp is not installed")
    folder = tmp_path_factory.mktemp("twins")
    if request.param == "smollm2":
        cuts = [DIGITS, BYTES | {"use_regex": True}]
        return Twins(request.getfixturevalue("smol"), folder, cuts)
    where = load_settings()
    if not is_complete(where, QWEN):
        pytest.skip(f"{QWEN.name} is not on this machine: vivace models pull {QWEN.name}")
    return Twins(card_path(where, QWEN), folder, [SPLIT, BYTES])


def test_the_same_vocabulary_twice(twins: Twins) -> None:
    """Every piece, all end tokens and the control tokens are llama.cpp's."""
    theirs, ours = twins.theirs, twins.ours
    assert [ours.token_bytes(t) for t in range(theirs.size)] == [
        theirs.token_bytes(t) for t in range(theirs.size)
    ]
    assert ours.end_tokens == theirs.end_tokens
    assert [ours.control(name) for name in CONTROLS] == [theirs.control(name) for name in CONTROLS]


def test_code_is_the_same_tokens(twins: Twins) -> None:
    """All of our own sources."""
    for file in sorted(SOURCES.rglob("*.py"))[::4]:
        twins.assert_same(file.read_text())


@pytest.mark.parametrize(
    "text",
    ["", " ", "\n\n  x\n", "I'll WE'RE 12345 ½", "<|im_start|>user<tool_call>\n{}</tool_call><|im_end|>",
     "Grüße, мир! 你好 🇩🇪👩‍👩‍👧‍👦", "e\u0301 a\u030a \u1e9b\u0323", "\u00a0\u2028\u3000x",
     "a" * 5000, " " * 5000 + "x"],
)  # fmt: skip
def test_odd_texts_are_the_same_tokens(twins: Twins, text: str) -> None:
    """Spaces of all kinds, names of control tokens, joined emoji, characters in two pieces."""
    twins.assert_same(text)


@given(text=known)
def test_any_text_is_the_same_tokens(twins: Twins, text: str) -> None:
    """Whatever Hypothesis thinks of."""
    if all(byte in twins.ours._bytes for byte in text.encode()):  # SmolLM2 has no tokens for some
        twins.assert_same(text)
