"""GGUF files of a known shape with random weights, for who reads files: llama.cpp, and our own loading.

The tensors, their names and their formats are those of a downloaded file; there is no vocabulary. Numbers are
finite and so small that a whole pass stays finite: otherwise a router would choose among scores that are not
numbers. Owns the bytes of the file. Needs torch, and neither gguf nor llama.cpp.
"""

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import torch  # type: ignore[import-not-found,unused-ignore]

from vivace.engine.runners.cuda.model.shape import Shape
from vivace.engine.runners.cuda.weights.blocks import KINDS, Kind

ALIGNMENT = 32
NUMBERS = {kind.name: number for number, kind in KINDS.items()}
MIXES = {
    "Q4_K_M": ("Q4_K", "Q6_K"),
    "Q8_0": ("Q8_0", "Q8_0"),
    "MXFP4": ("MXFP4", "Q8_0"),
    "F16": ("F16", "F16"),
}
# Bytes of a block that are an fp16 number, and how large it is, so that weights deviate by some 0.02.
HALVES = {"Q4_K": ((0, 2), 1e-4), "Q6_K": ((208,), 1.5e-5), "Q8_0": ((0,), 3e-4)}
MXFP4_EXPONENT = 120  # of two, 127 stands for 0

Tensor = tuple[str, tuple[int, ...], str]


def tensors_of(shape: Shape, kinds: tuple[str, str]) -> Iterator[Tensor]:
    """Yield name, size and kind of a GGUF's tensors; half of the values and downs have the second kind.

    gpt-oss has the first kind for its experts, and the second for all else.
    """
    hidden = shape.hidden
    plain = kinds[1] if shape.oss else kinds[0]
    yield "token_embd.weight", (shape.vocab, hidden), plain
    for index in range(shape.layers):
        yield from _attention_of(shape, index, plain, kinds[1] if shape.oss else kinds[index % 2])
        yield from _feed_of(shape, index, kinds[0], kinds[0] if shape.oss else kinds[index % 2])
    yield "output_norm.weight", (hidden,), "F32"
    yield "output.weight", (shape.vocab, hidden), kinds[1]


def _attention_of(shape: Shape, index: int, kind: str, values_kind: str) -> Iterator[Tensor]:
    at, hidden, width = f"blk.{index}.", shape.hidden, shape.attention_width
    kv = shape.kv_heads * shape.head_width
    yield f"{at}attn_norm.weight", (hidden,), "F32"
    for name, rows, own in (("q", width, kind), ("k", kv, kind), ("v", kv, values_kind)):
        yield f"{at}attn_{name}.weight", (rows, hidden), own
        if shape.qkv_bias or shape.oss:
            yield f"{at}attn_{name}.bias", (rows,), "F32"
    for name in "qk" if shape.qk_norm else "":
        yield f"{at}attn_{name}_norm.weight", (shape.head_width,), "F32"
    yield f"{at}attn_output.weight", (hidden, width), kind
    if shape.oss:
        yield f"{at}attn_output.bias", (hidden,), "F32"
        yield f"{at}attn_sinks.weight", (shape.heads,), "F32"


def _feed_of(shape: Shape, index: int, kind: str, down_kind: str) -> Iterator[Tensor]:
    at, hidden = f"blk.{index}.", shape.hidden
    yield f"{at}{'post_attention_norm' if shape.oss else 'ffn_norm'}.weight", (hidden,), "F32"
    if shape.experts:
        yield f"{at}ffn_gate_inp.weight", (shape.experts, hidden), "F32"
        if shape.oss:
            yield f"{at}ffn_gate_inp.bias", (shape.experts,), "F32"
    many, ffn = ((shape.experts,), shape.expert_ffn) if shape.experts else ((), shape.ffn)
    end = "_exps" if shape.experts else ""
    sizes = {"gate": (ffn, hidden, kind), "up": (ffn, hidden, kind), "down": (hidden, ffn, down_kind)}
    for name, (rows, columns, own) in sizes.items():
        yield f"{at}ffn_{name}{end}.weight", (*many, rows, columns), own
        if shape.oss:
            yield f"{at}ffn_{name}{end}.bias", (*many, rows), "F32"


def gguf_fields(shape: Shape) -> dict[str, int | float | str]:
    """Return the file's facts, with a vocabulary that has numbers and no words."""
    family = (
        "gpt-oss" if shape.oss else "qwen3moe" if shape.experts else "qwen3" if shape.qk_norm else "qwen2"
    )
    own: dict[str, int | float | str] = {
        "block_count": shape.layers, "embedding_length": shape.hidden, "feed_forward_length": shape.ffn,
        "attention.head_count": shape.heads, "attention.head_count_kv": shape.kv_heads,
        "attention.key_length": shape.head_width, "attention.value_length": shape.head_width,
        "context_length": shape.trained_tokens, "rope.freq_base": shape.rope_theta,
        "attention.layer_norm_rms_epsilon": shape.norm_epsilon, "vocab_size": shape.vocab,
        "expert_count": shape.experts, "expert_used_count": shape.experts_per_token,
        "expert_feed_forward_length": shape.expert_ffn,
    }  # fmt: skip
    if shape.oss:
        own |= {
            "attention.sliding_window": shape.oss.window, "rope.scaling.type": "yarn",
            "rope.scaling.factor": shape.oss.yarn_factor,
            "rope.scaling.original_context_length": shape.oss.yarn_tokens,
        }  # fmt: skip
    facts = {"general.architecture": family, "tokenizer.ggml.model": "no_vocab"}
    return facts | {f"{family}.{name}": value for name, value in own.items()}


def random_bytes(kind: Kind, count: int) -> bytes:
    """Return that many bytes of blocks: a few of them again and again."""
    some = torch.randint(0, 256, (16_384, kind.block_bytes), dtype=torch.uint8)
    if kind.plain is not None:
        some = (torch.randn(1 << 20) * 0.02).to(kind.plain).view(torch.uint8)
    places, most = HALVES.get(kind.name, ((), 0.0))
    for at in places:
        scales = ((0.5 + torch.rand(len(some)) / 2) * most).half()
        some[:, at : at + 2] = scales[:, None].view(torch.uint8)
    if kind.name == "MXFP4":
        some[:, 0] = MXFP4_EXPONENT
    flat = some.flatten().numpy().tobytes()
    return bytes((flat * (count // len(flat) + 1))[:count])


def write_gguf(path: Path, shape: Shape, kinds: tuple[str, str]) -> None:
    """Write a GGUF of that shape with random blocks."""
    tensors, fields = list(tensors_of(shape, kinds)), gguf_fields(shape)
    head = struct.pack("<4sIQQ", b"GGUF", 3, len(tensors), len(fields))
    for name, value in fields.items():
        head += _text(name)
        if isinstance(value, str):
            head += struct.pack("<I", 8) + _text(value)
        else:
            head += struct.pack("<If", 6, value) if isinstance(value, float) else struct.pack("<II", 4, value)
    offset, sizes = 0, []
    for name, size, kind in tensors:
        head += _text(name) + struct.pack(f"<I{len(size)}Q", len(size), *size[::-1])
        head += struct.pack("<IQ", NUMBERS[kind], offset)
        count = KINDS[NUMBERS[kind]].bytes_of(int(torch.Size(size).numel()))
        sizes.append((kind, count))
        offset += count + -count % ALIGNMENT
    with path.open("wb") as file:
        file.write(head + bytes(-len(head) % ALIGNMENT))
        write_tensors(file, sizes)


def write_tensors(file: BinaryIO, sizes: list[tuple[str, int]]) -> None:
    """Write tensors of these kinds and byte counts one behind the other; those of the same size are alike."""
    made: dict[tuple[str, int], bytes] = {}
    for kind, count in sizes:
        if (kind, count) not in made:
            made[kind, count] = random_bytes(KINDS[NUMBERS[kind]], count) + bytes(-count % ALIGNMENT)
        file.write(made[kind, count])


def _text(text: str) -> bytes:
    return struct.pack("<Q", len(text)) + text.encode()
