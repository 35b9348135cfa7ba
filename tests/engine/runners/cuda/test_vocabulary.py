"""Pieces and end tokens out of a GGUF's header are llama.cpp's."""

from pathlib import Path

import pytest

from vivace.engine.runners.cuda.model.vocabulary import GgufVocabulary
from vivace.engine.runners.cuda.weights.gguf_file import GgufFile
from vivace.errors import StartError
from vivace.models.tokenizer import GgufTokenizer


def test_words_are_llama_cpps(smol: Path) -> None:
    """Every token of SmolLM2 stands for the same bytes, and the same tokens end a turn."""
    file, theirs = GgufFile(smol), GgufTokenizer(smol)
    ours = GgufVocabulary(file.fields, smol.name)
    count = len(file.fields["tokenizer.ggml.tokens"])
    file.close()
    assert ours.end_tokens == theirs.end_tokens
    assert [ours.token_bytes(token) for token in range(count)] == [
        theirs.token_bytes(token) for token in range(count)
    ]


def test_other_vocabularies_are_refused() -> None:
    """A vocabulary that is not byte-level is named."""
    with pytest.raises(StartError, match="a vocabulary of the kind llama"):
        GgufVocabulary({"tokenizer.ggml.model": "llama"}, "old.gguf")
