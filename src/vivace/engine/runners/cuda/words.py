"""A vocabulary out of a GGUF file's header: the bytes of each token, and which tokens end a turn.

The same answers as llama.cpp's for byte-level vocabularies (Qwen, Llama 3, SmolLM2; a test compares them),
without loading it. Owns no encoding: the server tokenizes.
"""

from typing import Any

from vivace.errors import StartError

_NORMAL, _USER_DEFINED = 1, 4  # token types; all others (control, unknown, unused) stand for no bytes
_END_FIELDS = ("eos_token_id", "eot_token_id", "eom_token_id")
# Names that llama.cpp takes for the end of a turn, and so for control tokens, whatever the file says of them.
_END_NAMES = frozenset(
    {
        *("<|eot_id|>", "<|im_end|>", "<|end|>", "<|return|>", "<|call|>", "<end_of_turn>", "<|endoftext|>"),
        *("<|end_of_text|>", "<|eom_id|>", "<EOT>", "_<EOT>", "<|end_of_sentence|>", "<|fim_pad|>"),
        *("<|repo_name|>", "<|file_sep|>", "</s>", "<reponame>"),
    }
)


class Words:
    """Pieces and end tokens, as the runner's seam wants them."""

    def __init__(self, fields: dict[str, Any], name: str) -> None:
        model = fields.get("tokenizer.ggml.model", "none")
        if model != "gpt2":
            raise StartError(
                f"{name} has a vocabulary of the kind {model}; the GPU engine reads byte-level ones.",
                'Set device to "cpu" in config.toml.',
            )
        texts: list[str] = fields["tokenizer.ggml.tokens"]
        kinds: list[int] = fields.get("tokenizer.ggml.token_type") or [_NORMAL] * len(texts)
        letters = _byte_letters()
        self._pieces = [_piece(text, kind, letters) for text, kind in zip(texts, kinds, strict=True)]
        named = {i for i, text in enumerate(texts) if text in _END_NAMES}
        ids = (fields.get(f"tokenizer.ggml.{field}") for field in _END_FIELDS)
        self.end_tokens = frozenset(named | {i for i in ids if i is not None})

    def piece(self, token: int) -> bytes:
        return self._pieces[token] if token < len(self._pieces) else b""


def _piece(text: str, kind: int, letters: dict[str, int]) -> bytes:
    if text in _END_NAMES or kind not in (_NORMAL, _USER_DEFINED):
        return b""
    if kind == _USER_DEFINED:
        return text.encode()
    try:
        return bytes(letters[letter] for letter in text)
    except KeyError:  # not written in byte letters: it stands for itself
        return text.encode()


def _byte_letters() -> dict[str, int]:
    """The letter that GPT-2's vocabularies write each byte as: itself where it prints, else from 256 on."""
    printing = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = [byte for byte in range(256) if byte not in printing]
    return {chr(byte): byte for byte in printing} | {chr(256 + i): byte for i, byte in enumerate(hidden)}
