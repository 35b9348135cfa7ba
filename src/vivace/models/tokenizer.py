"""Text to tokens and back, in the server, which owns every session's log.

Owns the `Tokenizer` seam, the one read from a GGUF file, and bytes-as-tokens for scripted models; that of a
folder is in `folder_vocab`. Does not own chat templates (see `families`).
"""

import functools
import json
from pathlib import Path
from typing import Protocol

from vivace.errors import StartError

SCRIPTED = "scripted:"  # a model name with this prefix plays a script instead of computing


class Tokenizer(Protocol):
    end_tokens: frozenset[int]

    def encode(self, text: str) -> list[int]:
        """Encode plain text. A control token's name in it stays text."""
        ...

    def control(self, name: str) -> int:
        """Return the token of a control name such as `<|im_end|>`."""
        ...

    def token_bytes(self, token: int) -> bytes: ...


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
        self.token_bytes = functools.cache(self._piece)
        self.control = functools.cache(self._control)

    def encode(self, text: str) -> list[int]:
        return self._calls.tokenize(self._vocab, text.encode("utf-8", "surrogatepass"), special=False)

    def _control(self, name: str) -> int:
        tokens = self._calls.tokenize(self._vocab, name.encode(), special=True)
        if len(tokens) != 1:
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
