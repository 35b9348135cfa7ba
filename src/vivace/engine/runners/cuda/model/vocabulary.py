"""A model's vocabulary for the engine: the bytes of each token, and which tokens end a turn.

Out of a GGUF file's header the same answers as llama.cpp's for byte-level vocabularies (Qwen, Llama 3,
SmolLM2; a test compares them), without loading it. Out of a folder, `models.folder_vocab` has them. Owns no
encoding: the server tokenizes.
"""

from pathlib import Path
from typing import Any

from vivace.engine.runners.cuda.weights.gguf_file import GgufFile
from vivace.engine.runners.gpu_check import BY_LLAMA
from vivace.errors import StartError
from vivace.models.byte_level import END_NAMES, byte_letters, spelled_bytes
from vivace.models.folder_vocab import FolderVocabulary

_NORMAL, _USER_DEFINED = 1, 4  # token types; all others (control, unknown, unused) stand for no bytes
_END_FIELDS = ("eos_token_id", "eot_token_id", "eom_token_id")


class GgufVocabulary:
    """Pieces and end tokens, as the runner's seam wants them."""

    def __init__(self, fields: dict[str, Any], name: str) -> None:
        model = fields.get("tokenizer.ggml.model", "none")
        if model != "gpt2":
            raise StartError(
                f"{name} has a vocabulary of the kind {model}; the GPU engine reads byte-level ones.",
                BY_LLAMA,
            )
        texts: list[str] = fields["tokenizer.ggml.tokens"]
        kinds: list[int] = fields.get("tokenizer.ggml.token_type") or [_NORMAL] * len(texts)
        letters = byte_letters()
        self._pieces = [_piece(text, kind, letters) for text, kind in zip(texts, kinds, strict=True)]
        named = {i for i, text in enumerate(texts) if text in END_NAMES}
        ids = (fields.get(f"tokenizer.ggml.{field}") for field in _END_FIELDS)
        self.end_tokens = frozenset(named | {i for i in ids if i is not None})

    def token_bytes(self, token: int) -> bytes:
        return self._pieces[token] if token < len(self._pieces) else b""


def read_vocabulary(path: Path, vocab_size: int) -> GgufVocabulary | FolderVocabulary:
    """Read the vocabulary of a GGUF file or a folder; `vocab_size` is that of its weights."""
    if not path.is_dir():
        file = GgufFile(path)
        vocabulary = GgufVocabulary(file.fields, path.name)
        file.close()
        return vocabulary
    found = FolderVocabulary(path)
    if found.size > vocab_size:
        raise StartError(
            f"The tokenizer of {path.name} has {found.size} tokens, but its weights know {vocab_size}.",
            "Get tokenizer.json and the safetensors of the same model.",
        )
    return found


def _piece(text: str, kind: int, letters: dict[str, int]) -> bytes:
    if text in END_NAMES or kind not in (_NORMAL, _USER_DEFINED):
        return b""
    if kind == _USER_DEFINED:
        return text.encode()
    return spelled_bytes(text, letters)
