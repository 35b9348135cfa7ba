"""The vocabulary of a Hugging Face folder: pieces and end tokens for the engine, tokens for the server.

Owns how tokenizer.json is read. Only byte-level BPE is (Qwen, Llama 3, SmolLM2), where tokens are bytes and
text comes back as it was. So nothing in the file may change the text: normalisation (Qwen's NFC), prefixes,
stripping and truncation are left out, as llama.cpp leaves them out. A control token's name in a text stays
text. The package `tokenizers` is loaded by `FolderTokenizer`, and nobody else.
"""

import json
import re
from pathlib import Path
from typing import Annotated, Any

import msgspec

from vivace.errors import StartError
from vivace.models.byte_level import END_NAMES, byte_letters, spelled_bytes
from vivace.models.encoded_texts import EncodedTexts
from vivace.models.folder import ELSEWHERE, WHOLE, end_ids, end_name, read_json, shown
from vivace.models.tokenizer import Marker, Vocabulary

FILE = "tokenizer.json"
MOST_TOKENS = 1 << 22
MOST_STEPS = 8  # inside of one another, before a text is cut
TokenId = Annotated[int, msgspec.Meta(ge=0, lt=MOST_TOKENS)]
_CUTS = {"Sequence", "Split", "Digits", "ByteLevel"}  # that leave nothing of a text out
_AFFIXES = ("continuing_subword_prefix", "end_of_word_suffix")  # of tokens that are no plain bytes
# Names that are control tokens even where the file does not call them special.
_CONTROL_NAME = re.compile(r"<[|｜].*[|｜]>", re.DOTALL)


class _Added(msgspec.Struct):
    id: TokenId
    content: str
    special: bool = False

    @property
    def is_control(self) -> bool:
        return self.special or self.content in END_NAMES or bool(_CONTROL_NAME.fullmatch(self.content))


class _Bpe(msgspec.Struct):
    vocab: dict[str, TokenId]


class _Vocabulary(msgspec.Struct):
    model: _Bpe
    added_tokens: list[_Added] = []


class FolderVocabulary:
    """The bytes of each token, and the tokens that end a turn."""

    def __init__(self, folder: Path) -> None:
        self._read(folder, read_json(folder, FILE, dict[str, Any]))

    def _read(self, folder: Path, tokenizer_json: dict[str, Any]) -> None:
        _check_kind(folder, tokenizer_json)
        try:
            found = msgspec.convert(tokenizer_json, _Vocabulary)
        except msgspec.ValidationError as error:
            raise StartError(
                f"{folder.name}/{FILE} is not as it should be: {shown(error)}.", WHOLE
            ) from error
        vocab, added = found.model.vocab, found.added_tokens
        letters = byte_letters()
        self.size = 1 + max([*vocab.values(), *(each.id for each in added)], default=-1)
        self._pieces = [b""] * self.size
        for text, token in vocab.items():
            self._pieces[token] = b"" if text in END_NAMES else spelled_bytes(text, letters)
        for each in added:
            self._pieces[each.id] = b"" if each.is_control else each.content.encode("utf-8", "surrogatepass")
        self._added = added
        self._bytes = {byte: vocab[letter] for letter, byte in letters.items() if letter in vocab}
        ends = (END_NAMES | {end_name(folder)}) - {""}
        named = {token for name, token in vocab.items() if name in ends}
        named |= {each.id for each in added if each.content in ends}
        self.end_tokens = frozenset(named | {token for token in end_ids(folder) if 0 <= token < self.size})

    def token_bytes(self, token: int) -> bytes:
        return self._pieces[token] if token < self.size else b""


class FolderTokenizer(FolderVocabulary):
    """`models.tokenizer.Tokenizer` of a Hugging Face folder."""

    def __init__(self, folder: Path) -> None:
        tokenizer_json = read_json(folder, FILE, dict[str, Any])
        self._read(folder, tokenizer_json)
        self._eos = end_name(folder)
        self._encode = _make_encoder(folder, tokenizer_json)
        self.encode = EncodedTexts(self._tokens_of)
        self._marks = {each.content: each.id for each in self._added if each.content and not each.is_control}
        # What the encoder is not to see: added words, which are tokens wherever they are; half characters.
        longest_first = map(re.escape, sorted(self._marks, key=len, reverse=True))
        self._apart = re.compile("|".join(["([\ud800-\udfff]", *longest_first]) + ")")

    def _tokens_of(self, text: str) -> list[int]:
        tokens: list[int] = []
        for index, part in enumerate(self._apart.split(text)):
            if index % 2 == 0:
                tokens += self._encode(part) if part else []
            elif part in self._marks:
                tokens.append(self._marks[part])
            else:
                half = part.encode("utf-8", "surrogatepass")
                tokens += [self._bytes[byte] for byte in half if byte in self._bytes]
        return tokens

    def encode_inside(self, text: str) -> list[int]:
        return self.encode(text)

    def vocabulary(self) -> Vocabulary:
        markers = {each.content: Marker(each.id, is_control=each.is_control) for each in self._added}
        eos = next((each.content for each in self._added if each.id in self.end_tokens), "")
        return Vocabulary(markers, eos=self._eos or eos)

    def control(self, name: str) -> int:
        for each in self._added:
            if each.content == name:
                return each.id
        tokens = self.encode(name)
        if len(tokens) != 1:
            raise StartError(
                f"This model has no control token {name}.",
                "Its chat format is not supported; choose a model from `vivace models`.",
            )
        return tokens[0]


def _check_kind(folder: Path, tokenizer_json: dict[str, Any]) -> None:
    """Refuse vocabularies that are not byte-level BPE, or that change a text before it is split."""
    model: Any = tokenizer_json.get("model")
    cuts = _types(tokenizer_json.get("pre_tokenizer"))
    is_bpe = isinstance(model, dict) and model.get("type", "BPE") == "BPE"  # old files do not say it
    is_bpe = is_bpe and not any(map(model.get, _AFFIXES))
    is_byte_level = "ByteLevel" in cuts and set(cuts) <= _CUTS
    is_lossless = set(_types(tokenizer_json.get("normalizer"))) <= {"NFC", "Sequence"}
    if not (is_bpe and is_byte_level and is_lossless):
        raise StartError(
            f"{folder.name}/{FILE} is no byte-level BPE, as Qwen's and Llama 3's are; others are not read.",
            ELSEWHERE,
        )


def _types(step: Any, depth: int = 0) -> list[str]:
    """Return the types of a normaliser or pre-tokenizer and of all steps inside it."""
    if step is None:
        return []
    if not isinstance(step, dict) or depth > MOST_STEPS or step.get("behavior") == "Removed":
        return ["another"]
    inner: Any = step.get("pretokenizers") or step.get("normalizers") or []
    parts = inner if isinstance(inner, list) else [inner]
    return [str(step.get("type")), *(kind for part in parts for kind in _types(part, depth + 1))]


def _make_encoder(folder: Path, tokenizer_json: dict[str, Any]) -> Any:
    """Return an encoder of plain text that knows no added tokens."""
    try:
        from tokenizers import Tokenizer
    except ImportError as error:
        raise StartError(
            f"{folder.name} is a folder of safetensors: it needs the GPU engine and the package tokenizers.",
            f"With an NVIDIA GPU, add both with `vivace extras add cuda`. {ELSEWHERE}",
        ) from error
    plain = tokenizer_json | dict.fromkeys(("normalizer", "post_processor", "truncation", "padding"))
    plain |= {"added_tokens": [], "pre_tokenizer": _without_prefix(tokenizer_json["pre_tokenizer"])}
    plain["model"] = tokenizer_json["model"] | {"dropout": None}  # the same text, the same tokens
    try:
        tokenizer = Tokenizer.from_str(json.dumps(plain))
    except Exception as error:  # it raises nothing narrower
        raise StartError(f"{folder.name}/{FILE} cannot be used: {shown(error)}.", WHOLE) from error
    return lambda text: tokenizer.encode(text, add_special_tokens=False).ids


def _without_prefix(step: Any) -> Any:
    """Return the pre-tokenizer step without a prefix space: a text may be the middle of one."""
    if not isinstance(step, dict):
        return step
    steps = {key: [*map(_without_prefix, value)] for key, value in step.items() if key == "pretokenizers"}
    return {**step, **steps, **({"add_prefix_space": False} if "add_prefix_space" in step else {})}
