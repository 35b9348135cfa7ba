"""Tokenizers for tests of model families: bytes with named control tokens, and a real one of llama.cpp's.

The real ones are GGUF files without weights: llama.cpp itself decides what their control tokens and markers
are.
"""

from collections.abc import Sequence
from pathlib import Path

import gguf

from vivace.models.tokenizer import GgufTokenizer, Marker, Vocabulary

CHATML = ("<|im_start|>", "<|im_end|>")
QWEN_WORDS = ("<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<think>", "</think>")
LLAMA = (
    "<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eom_id|>",
    "<|eot_id|>", "<|python_tag|>",
)  # fmt: skip
HARMONY = (
    "<|return|>", "<|constrain|>", "<|channel|>", "<|start|>", "<|end|>", "<|message|>", "<|call|>",
)  # fmt: skip
MISTRAL = (
    "<s>", "</s>", "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]", "[INST]",
    "[/INST]", "[TOOL_RESULTS]", "[/TOOL_RESULTS]", "[TOOL_CALLS]", "[ARGS]",
)  # fmt: skip


class NamedTokenizer:
    """A token is a byte; then come control tokens, and then markers that are words of the vocabulary."""

    def __init__(
        self,
        controls: Sequence[str],
        words: Sequence[str] = (),
        *,
        ends: Sequence[str] = (),
        bos: str = "",
        eos: str = "",
    ) -> None:
        self._bos, self._eos = bos, eos
        self.names = [*controls, *words]
        self._silent = set(controls)
        self._words = list(words)
        self.end_tokens = frozenset(map(self.control, ends))

    def encode(self, text: str) -> list[int]:
        """As llama.cpp does it: a word is one token wherever it stands, a control token's name is text."""
        for word in self._words:
            if word in text:
                before, _, after = text.partition(word)
                return [*self.encode(before), self.control(word), *self.encode(after)]
        return list(text.encode("utf-8", "surrogatepass"))

    def control(self, name: str) -> int:
        return 256 + self.names.index(name)

    def token_bytes(self, token: int) -> bytes:
        if token < 256:
            return bytes([token])
        name = self.names[token - 256]
        return b"" if name in self._silent else name.encode()

    def encode_inside(self, text: str) -> list[int]:
        return self.encode(text)

    def vocabulary(self) -> Vocabulary:
        names = {name: Marker(self.control(name), is_control=name in self._silent) for name in self.names}
        return Vocabulary(names, bos=self._bos, eos=self._eos)

    def shown(self, tokens: Sequence[int]) -> str:
        """Tokens as text, control tokens by name."""
        pieces = (bytes([t]) if t < 256 else self.names[t - 256].encode() for t in tokens)
        return b"".join(pieces).decode()


def chatml() -> NamedTokenizer:
    return NamedTokenizer(CHATML, QWEN_WORDS, ends=["<|im_end|>"])


def llama() -> NamedTokenizer:
    return NamedTokenizer(LLAMA, ends=["<|eot_id|>", "<|eom_id|>"])


def harmony() -> NamedTokenizer:
    return NamedTokenizer(HARMONY, ends=["<|return|>", "<|call|>"])


def mistral() -> NamedTokenizer:
    return NamedTokenizer(MISTRAL, ends=["</s>"])


def real_tokenizer(
    path: Path, controls: Sequence[str], words: Sequence[str] = (), *, end: str, template: str = ""
) -> GgufTokenizer:
    """llama.cpp's tokenizer over bytes, these control tokens and these words."""
    writer = gguf.GGUFWriter(str(path), "llama")
    writer.add_context_length(128)
    writer.add_embedding_length(8)
    writer.add_block_count(1)
    writer.add_head_count(1)
    writer.add_feed_forward_length(8)
    writer.add_layer_norm_rms_eps(1e-5)
    tokens = [*_byte_names(), "Ġt", "th", *controls, *words]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list(tokens)
    kinds = [gguf.TokenType.NORMAL] * 258 + [gguf.TokenType.CONTROL] * len(controls)
    writer.add_token_types(kinds + [gguf.TokenType.USER_DEFINED] * len(words))
    writer.add_token_merges(["Ġ t", "t h"])
    writer.add_eos_token_id(tokens.index(end))
    if template:
        writer.add_chat_template(template)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return GgufTokenizer(path)


def _byte_names() -> list[str]:
    """GPT-2's letters for the 256 bytes."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = iter(range(256, 512))
    return [chr(byte if byte in plain else next(others)) for byte in range(256)]
