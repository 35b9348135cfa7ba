"""Byte-level vocabularies (Qwen, Llama 3, SmolLM2): the bytes that a token's name stands for.

Owns GPT-2's letters for bytes, and the names that end a turn wherever they are found. Knows no files: those
who read vocabularies (`folder_vocab`, and the GPU engine for GGUF) come here.
"""

# Names that llama.cpp takes for the end of a turn, and so for control tokens, whatever the file says of them.
END_NAMES = frozenset(
    {
        *("<|eot_id|>", "<|im_end|>", "<|end|>", "<|return|>", "<|call|>", "<end_of_turn>", "<|endoftext|>"),
        *("<|end_of_text|>", "<|eom_id|>", "<EOT>", "_<EOT>", "<|end_of_sentence|>", "<|fim_pad|>"),
        *("<|repo_name|>", "<|file_sep|>", "</s>", "<reponame>"),
    }
)


def byte_letters() -> dict[str, int]:
    """Return the byte of each letter in GPT-2's vocabularies: printable ones as themselves."""
    printing = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = [byte for byte in range(256) if byte not in printing]
    return {chr(byte): byte for byte in printing} | {chr(256 + i): byte for i, byte in enumerate(hidden)}


def spelled_bytes(text: str, letters: dict[str, int]) -> bytes:
    """Return the bytes of a token's name, by `byte_letters`."""
    try:
        return bytes(letters[letter] for letter in text)
    except KeyError:  # not written in byte letters: it stands for itself
        return text.encode("utf-8", "surrogatepass")
