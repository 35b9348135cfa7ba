"""Text to tokens and back, in the server, which owns every session's log.

Owns the `Tokenizer` seam, the one read from a GGUF file, and bytes-as-tokens for scripted models; that of a
folder is in `folder_vocab`. Does not own chat templates (see `families`).
"""

import functools
import json
from pathlib import Path
from typing import NamedTuple, Protocol

from vivace.errors import StartError
from vivace.models.encoded_texts import EncodedTexts

SCRIPTED = "scripted:"  # a model name with this prefix plays a script instead of computing


class Marker(NamedTuple):
    """A token that stands for itself wherever its name is in a template's text."""

    token: int
    is_control: bool  # in plain text its name stays text
    strips_left: bool = False  # white space next to it
    strips_right: bool = False


class Vocabulary(NamedTuple):
    """What a chat template's text needs of a vocabulary to become tokens."""

    markers: dict[str, Marker]  # by name
    begin: int | None = None  # the token that every log begins with; None: no such token
    bos: str = ""  # names, as templates are told them
    eos: str = ""


class Tokenizer(Protocol):
    end_tokens: frozenset[int]

    def encode(self, text: str) -> list[int]:
        """Encode plain text. A control token's name in it stays text."""
        ...

    def control(self, name: str) -> int:
        """Return the token of a control name such as `<|im_end|>`."""
        ...

    def token_bytes(self, token: int) -> bytes: ...

    def encode_inside(self, text: str) -> list[int]:
        """Encode text that goes on behind other text: no space is put in front of it."""
        ...

    def vocabulary(self) -> Vocabulary: ...


class GgufTokenizer:
    """The tokenizer inside a GGUF file, loaded without its weights."""

    def __init__(self, path: Path) -> None:
        import llama_cpp as lc  # only the processes that tokenize pay for the library

        from vivace.models import gguf_vocab

        self._calls = gguf_vocab
        self._model = gguf_vocab.load_model(path, vocab_only=True)
        self._vocab = lc.llama_model_get_vocab(self._model)
        self.end_tokens = gguf_vocab.end_tokens(self._vocab)
        self.size: int = lc.llama_vocab_n_tokens(self._vocab)
        self.encode = EncodedTexts(self._tokens_of)
        self.token_bytes = functools.cache(self._piece)
        self.control = functools.cache(self._control)
        self.vocabulary = functools.cache(self._read_vocabulary)

    def _tokens_of(self, text: str) -> list[int]:
        return self._calls.tokenize(self._vocab, text.encode("utf-8", "surrogatepass"), special=False)

    def encode_inside(self, text: str) -> list[int]:
        if not self._has_space_prefix:
            return self.encode(text)
        tokens, left = self.encode(f"\n{text}"), len(b" \n")
        while tokens and left > 0:
            left -= len(self.token_bytes(tokens.pop(0)))
        return tokens if left == 0 else self.encode(text)

    @functools.cached_property
    def _has_space_prefix(self) -> bool:
        return b"".join(map(self.token_bytes, self.encode("a"))) == b" a"

    def _read_vocabulary(self) -> Vocabulary:
        return self._calls.vocabulary(self._vocab)

    def _control(self, name: str) -> int:
        tokens = self._calls.tokenize(self._vocab, name.encode(), special=True)
        if len(tokens) != 1 or not self._calls.is_marker(self._vocab, tokens[0]):
            raise StartError(
                f"This model has no control token {name}.",
                "Its chat format is not supported; choose a model from `vivace models`.",
            )
        return tokens[0]

    def _piece(self, token: int) -> bytes:
        return self._calls.piece_of(self._vocab, token)


class ByteTokenizer:
    """A tokenizer for scripted models: a token is a byte, and control tokens come after the bytes."""

    CONTROLS = ("<|im_start|>", "<|im_end|>", "<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>")
    size = 256 + len(CONTROLS)

    def __init__(self) -> None:
        self.end_tokens = frozenset({self.control("<|im_end|>")})

    def encode(self, text: str) -> list[int]:
        return list(text.encode("utf-8", "surrogatepass"))

    def control(self, name: str) -> int:
        return 256 + self.CONTROLS.index(name)

    def token_bytes(self, token: int) -> bytes:
        return bytes([token]) if token < 256 else b""

    def encode_inside(self, text: str) -> list[int]:
        return self.encode(text)

    def vocabulary(self) -> Vocabulary:
        return Vocabulary({name: Marker(self.control(name), is_control=True) for name in self.CONTROLS})


def load_tokenizer(model: str, path: Path | None) -> Tokenizer:
    if model.startswith(SCRIPTED):
        return scripted_tokenizer(str(script_of(model).get("vocabulary", "")))
    assert path is not None
    if path.is_dir():
        from vivace.models.folder_vocab import FolderTokenizer

        return FolderTokenizer(path)
    return GgufTokenizer(path)


def scripted_tokenizer(vocabulary: str) -> GgufTokenizer | ByteTokenizer:
    """Return the tokenizer of the GGUF file that a script names; without one, bytes."""
    return GgufTokenizer(Path(vocabulary)) if vocabulary else ByteTokenizer()


def script_of(model: str) -> dict[str, object]:
    """Return the script of a `scripted:FILE` model name."""
    script: dict[str, object] = json.loads(Path(model.removeprefix(SCRIPTED)).read_text("utf-8"))
    return script
