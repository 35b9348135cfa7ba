"""The header of a GGUF file over a network: what is read, and that no header can do harm."""

import contextlib
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.models.hub.fake_hub import CHATML, gguf
from vivace.models.catalog import SMOLLM2
from vivace.models.hub.header import Header, NotGguf, read_header

EXPERTS = {"qwen3moe.expert_count": 8, "qwen3moe.expert_used_count": 2}


def read(data: bytes) -> Header:
    return read_header(lambda begin, end: data[begin:end], len(data))


def test_the_facts_of_a_file() -> None:
    """Architecture, context and template are found behind a vocabulary of several pieces."""
    header = read(gguf(vocabulary=300_000, padding=0))
    assert (header.architecture, header.context_tokens, header.template) == ("qwen2", 4096, CHATML)
    assert header.active_share == 1.0


def test_only_the_header_is_asked_for() -> None:
    """Weights are not read."""
    data = gguf(padding=5_000_000)
    asked = []

    def piece(begin: int, end: int) -> bytes:
        asked.append(end)
        return data[begin:end]

    read_header(piece, len(data))
    assert asked == [65536]


def test_how_much_of_a_mixture_is_read_for_a_token() -> None:
    """Two of eight experts: a quarter of their bytes, and all of the rest."""
    tensors = {"token_embd.weight": 1000, "blk.0.ffn_up_exps.weight": 8000, "output.weight": 1000}
    header = read(gguf(EXPERTS, tensors, architecture="qwen3moe", padding=0))
    assert header.tensor_bytes == 10_000
    assert header.active_share == pytest.approx(0.4)


ATTENTION = {"block_count": 48, "embedding_length": 2048, "attention.head_count": 16}


@pytest.mark.parametrize(
    ("fields", "kv_bytes"),
    [
        ({"attention.head_count_kv": 2}, 48 * 2 * (128 + 128) * 2),
        ({"attention.head_count_kv": 2, "attention.key_length": 256}, 48 * 2 * (256 + 128) * 2),
        ({"attention.head_count_kv": 2, "full_attention_interval": 4}, 12 * 2 * (128 + 128) * 2),
        ({"attention.kv_lora_rank": 512, "rope.dimension_count": 64}, 48 * 576 * 2),
        ({"attention.head_count_kv": [0, 2, 0]}, 0),  # another number for each layer
        ({}, 0),
    ],
)
def test_how_much_kv_a_token_takes(fields: dict[str, object], kv_bytes: int) -> None:
    """Grouped heads, layers without attention and latents are counted; what is not simple is left open."""
    named = {f"qwen2.{name}": value for name, value in (ATTENTION | fields).items()}
    assert read(gguf(named, padding=0)).kv_token_bytes == kv_bytes


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"GGUF",
        gguf()[:300],
        struct.pack("<4sIQQ", b"GGUF", 3, 0, 1 << 60),
        struct.pack("<4sIQQ", b"GGUF", 3, 0, 1) + struct.pack("<Q", 1 << 62),
        struct.pack("<4sIQQQ", b"GGUF", 3, 0, 1, 1) + b"a" + struct.pack("<IIQ", 9, 8, 1 << 61),
        struct.pack("<4sIQQQ", b"GGUF", 3, 0, 1, 1) + b"a" + struct.pack("<IIQ", 9, 9, 5),
    ],
)
def test_headers_that_are_none(data: bytes) -> None:
    """Torn, endless and nested ones are refused, at once and in little memory."""
    with pytest.raises(NotGguf):
        read(data)


@given(st.binary(max_size=400), st.integers(0, 400))
def test_no_bytes_are_a_surprise(noise: bytes, at: int) -> None:
    """Any damage is a header or a `NotGguf`, nothing else."""
    data = gguf(EXPERTS, {"a": 8}, architecture="qwen3moe", vocabulary=3, padding=0)
    damaged = data[:at] + noise + data[at + len(noise) :]
    with contextlib.suppress(NotGguf):
        read(damaged)


def test_a_real_file(smol: Path) -> None:
    """A model that llama.cpp loads has its facts where we look for them."""
    path = smol
    with path.open("rb") as file:
        header = read_header(
            lambda begin, end: (file.seek(begin), file.read(end - begin))[1], path.stat().st_size
        )
    assert header.context_tokens == SMOLLM2.context_tokens
    assert header.architecture == "llama"
    assert header.kv_token_bytes == 30 * 3 * (64 + 64) * 2
    assert "<|im_start|>" in header.template
