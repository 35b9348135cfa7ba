"""Read weights from files: a GGUF, dequantised here, or a Hugging Face folder (`safetensors_folder`).

Owns reading a GGUF. Returns matrices under Hugging Face's names without the prefix `model.`. Does not own
their layout on the GPU (`layout`, `build`).
"""

import functools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import torch  # type: ignore[import-not-found,unused-ignore]

from vivace.engine.runners.cuda.model.reference import StateDict
from vivace.engine.runners.cuda.model.shape import HEAD_DIM, Shape
from vivace.engine.runners.cuda.weights.gguf_file import GgufFile, Tensor
from vivace.engine.runners.cuda.weights.safetensors_folder import (
    ARCHITECTURES,
    describe_folder,
    read_safetensors,
)
from vivace.errors import StartError
from vivace.models.folder import ELSEWHERE

READERS = 4  # threads: each holds one matrix in fp32
_GGUF_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "ffn_gate_inp": "mlp.gate",
}
_GGUF_ARCHITECTURES = tuple(name.replace("_", "") for name in ARCHITECTURES)  # qwen3_moe is qwen3moe
_GGUF_EXPERTS = {"ffn_gate_exps": "gate_proj", "ffn_up_exps": "up_proj", "ffn_down_exps": "down_proj"}
_GGUF_TOP = {"token_embd": "embed_tokens", "output_norm": "norm", "output": "lm_head"}


def read_checkpoint(path: Path) -> tuple[Shape, StateDict]:
    shape, weights = read_safetensors(path) if path.is_dir() else read_gguf(path)
    _check_shape(path, shape)
    return shape, weights


def describe(path: Path) -> Shape:
    """Return the shape from the header alone. Raise `StartError` if the GPU engine cannot run the file."""
    if path.is_dir():
        shape = describe_folder(path)
    else:
        file = GgufFile(path)
        _check_architecture(path, _architecture(file))
        _check_kinds(file)
        shape = _gguf_shape(file)
        file.close()
    _check_shape(path, shape)
    return shape


def read_gguf(path: Path) -> tuple[Shape, StateDict]:
    gguf = _gguf_package()
    file = GgufFile(path)
    architecture = _architecture(file)
    _check_architecture(path, architecture)
    _check_kinds(file)

    def row_bytes(tensor: Tensor) -> int:
        block, block_bytes = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType(tensor.kind)]
        return int(tensor.shape[-1] // block * block_bytes)

    def read(tensor: Tensor) -> tuple[str, torch.Tensor]:
        kind, bytes_ = gguf.GGMLQuantizationType(tensor.kind), row_bytes(tensor)
        raw = np.frombuffer(file.data(tensor, math.prod(tensor.shape[:-1]) * bytes_), np.uint8)
        values = gguf.dequantize(raw.reshape(*tensor.shape[:-1], bytes_), kind)
        rows = torch.from_numpy(np.array(values)).to(torch.bfloat16 if values.ndim > 1 else torch.float32)
        if architecture == "llama" and tensor.name.split(".")[-2] in ("attn_q", "attn_k"):
            rows = _split_rotary_pairs(rows)
        return hugging_face_name(tensor.name), rows

    experts = {
        name: functools.partial(read, part)
        for tensor in file.tensors
        if len(tensor.shape) == 3
        for name, part in _expert_parts(tensor, row_bytes(tensor))
    }
    with ThreadPoolExecutor(READERS) as threads:
        whole = threads.map(read, (tensor for tensor in file.tensors if len(tensor.shape) < 3))
        return _gguf_shape(file), _GgufWeights(whole, experts)


class _GgufWeights(StateDict):
    """Weights whose experts are read when they are asked for, and not kept: they are most of a model."""

    def __init__(
        self,
        whole: Iterable[tuple[str, torch.Tensor]],
        experts: Mapping[str, Callable[[], tuple[str, torch.Tensor]]],
    ) -> None:
        super().__init__(whole)
        self._experts = experts

    def __missing__(self, name: str) -> torch.Tensor:
        return self._experts[name]()[1]


def _expert_parts(tensor: Tensor, row_bytes: int) -> Iterator[tuple[str, Tensor]]:
    """Yield each expert's part of a tensor, under the name that it has in a folder."""
    _, layer, kind, _ = tensor.name.split(".")
    experts, rows, columns = tensor.shape
    for expert in range(experts):
        name = f"layers.{layer}.mlp.experts.{expert}.{_GGUF_EXPERTS[kind]}.weight"
        offset = tensor.offset + expert * rows * row_bytes
        yield name, Tensor(tensor.name, (rows, columns), tensor.kind, offset)


def _split_rotary_pairs(rows: torch.Tensor) -> torch.Tensor:
    """Move rotary pairs 64 apart: Llama's GGUF has them side by side."""
    pairs = rows.reshape(-1, HEAD_DIM // 2, 2, rows.shape[-1])
    return pairs.transpose(1, 2).reshape(rows.shape).contiguous()


def _check_kinds(file: GgufFile) -> None:
    """Refuse numbers that gguf cannot turn back, before anything large is read."""
    gguf = _gguf_package()
    for number in {tensor.kind for tensor in file.tensors}:
        try:
            kind = gguf.GGMLQuantizationType(number)
            _, block_bytes = gguf.GGML_QUANT_SIZES[kind]
            gguf.dequantize(np.zeros((1, block_bytes), np.uint8), kind)
        except (ValueError, KeyError, NotImplementedError) as error:
            raise StartError(
                f"{file.path.name} has weights of the kind {_kind_name(gguf, number)}, "
                "which the GPU engine cannot read.",
                "Take another quantisation of the model, or run it with the CPU engine.",
            ) from error


def _kind_name(gguf: Any, number: int) -> str:
    try:
        return str(gguf.GGMLQuantizationType(number).name)
    except ValueError:
        return f"number {number}"


def _gguf_package() -> Any:
    try:
        import gguf  # type: ignore[import-not-found,import-untyped,unused-ignore]
    except ImportError as error:
        raise StartError(
            "Reading GGUF needs the gguf package.", "Add it with `vivace extras add cuda`."
        ) from error
    return gguf


def hugging_face_name(name: str) -> str:
    """Return the Hugging Face name: blk.3.attn_q.weight → layers.3.self_attn.q_proj.weight."""
    parts = name.split(".")
    if parts[0] == "blk":
        return f"layers.{parts[1]}.{_GGUF_NAMES.get(parts[2], parts[2])}.{parts[3]}"
    return f"{_GGUF_TOP.get(parts[0], parts[0])}.{parts[1]}"


def _architecture(file: GgufFile) -> str:
    return str(file.fields.get("general.architecture", "nameless"))


def _gguf_shape(file: GgufFile) -> Shape:
    fields, architecture = file.fields, _architecture(file)

    def of(name: str) -> Any:
        try:
            return fields[f"{architecture}.{name}"]
        except KeyError:
            raise StartError(f"{file.path.name} does not say its {name}.", "Pull it again.") from None

    heads, hidden = of("attention.head_count"), of("embedding_length")
    width = fields.get(f"{architecture}.attention.key_length", hidden // heads)
    _check_heads(file.path, width)
    names = {tensor.name for tensor in file.tensors}
    chosen = fields.get(f"{architecture}.expert_used_count", 0)
    expert_ffn = fields.get(f"{architecture}.expert_feed_forward_length", 0)
    return Shape(
        layers=of("block_count"),
        hidden=hidden,
        ffn=chosen * expert_ffn or of("feed_forward_length"),
        heads=heads,
        kv_heads=fields.get(f"{architecture}.attention.head_count_kv", heads),
        vocab=next(each.shape[0] for each in file.tensors if each.name == "token_embd.weight"),
        trained_tokens=of("context_length"),
        rope_theta=fields.get(f"{architecture}.rope.freq_base", 10_000.0),
        norm_epsilon=of("attention.layer_norm_rms_epsilon"),
        qkv_bias="blk.0.attn_q.bias" in names,
        qk_norm="blk.0.attn_q_norm.weight" in names,
        tied_head="output.weight" not in names,
        experts=fields.get(f"{architecture}.expert_count", 0),
        experts_per_token=chosen,
        expert_ffn=expert_ffn,
    )


def _check_shape(path: Path, shape: Shape) -> None:
    if problem := shape.problem():
        hint = ELSEWHERE if path.is_dir() else "Run it with the CPU engine."
        raise StartError(f"{path.name} cannot run on the GPU: {problem}.", hint)


def _check_heads(path: Path, width: int) -> None:
    if width != HEAD_DIM:
        raise StartError(
            f"{path.name} cannot run on the GPU: its heads are {width} wide, and not {HEAD_DIM}.",
            "Run it with the CPU engine.",
        )


def _check_architecture(path: Path, architecture: str) -> None:
    if architecture not in _GGUF_ARCHITECTURES:
        known = ", ".join(_GGUF_ARCHITECTURES)
        raise StartError(
            f"{path.name} is a {architecture} model; the GPU engine knows {known}.",
            "Run it with the CPU engine.",
        )
