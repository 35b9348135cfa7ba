"""What a model's files hold: a GGUF, or a Hugging Face folder (`safetensors_folder`).

Owns what a GGUF says of itself: its shape, and its weights under Hugging Face's names without `model.` in
front. Does not own their way to the GPU (`stream`) nor their layout there (`layout`, `build`).
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch  # type: ignore[import-not-found,unused-ignore]

from vivace.engine.runners.cuda.model.reference import StateDict
from vivace.engine.runners.cuda.model.shape import HEAD_DIM, Shape
from vivace.engine.runners.cuda.weights import oss_files
from vivace.engine.runners.cuda.weights.blocks import Kind, kind_of
from vivace.engine.runners.cuda.weights.gguf_file import GgufFile, Tensor
from vivace.engine.runners.cuda.weights.pieces import Checkpoint, Piece, read_piece
from vivace.engine.runners.cuda.weights.safetensors_folder import (
    ARCHITECTURES,
    open_folder,
)
from vivace.engine.runners.gpu_check import BY_LLAMA
from vivace.errors import StartError
from vivace.models import folder
from vivace.models.folder import ELSEWHERE

READERS = 4  # threads
_GGUF_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "post_attention_norm": "post_attention_layernorm",  # gpt-oss's
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "ffn_gate_inp": "mlp.gate",
}
_GGUF_ARCHITECTURES = (*(name.replace("_", "") for name in ARCHITECTURES), oss_files.GGUF_NAME)
_GGUF_EXPERTS = {"ffn_gate_exps": "gate_proj", "ffn_up_exps": "up_proj", "ffn_down_exps": "down_proj"}
_GGUF_TOP = {"token_embd": "embed_tokens", "output_norm": "norm", "output": "lm_head"}


def open_checkpoint(path: Path) -> Checkpoint:
    """Return where all weights are. Raise `StartError` if the GPU engine cannot run the model."""
    found = open_folder(path) if path.is_dir() else _open_gguf(path)
    _check_shape(path, found.shape)
    return found


def describe(path: Path) -> Shape:
    """Return the shape from the header alone. Raise `StartError` if the GPU engine cannot run the file."""
    return open_checkpoint(path).shape


def read_checkpoint(path: Path) -> tuple[Shape, StateDict]:
    """Read all weights to the host, but for a GGUF's experts: those are read when they are asked for."""
    shape, pieces, computed = open_checkpoint(path)
    wanted = {name: each for name, each in pieces.items() if path.is_dir() or ".experts." not in name}
    with ThreadPoolExecutor(READERS) as threads:
        read = dict(zip(wanted, threads.map(read_piece, wanted.values()), strict=True))
    return shape, _FileWeights(read | computed, pieces)


class _FileWeights(StateDict):
    """Weights whose experts are read when they are asked for, and not kept: they are most of a model."""

    def __init__(self, whole: dict[str, torch.Tensor], pieces: dict[str, Piece]) -> None:
        super().__init__(whole)
        self._pieces = pieces

    def __missing__(self, name: str) -> torch.Tensor:
        return read_piece(self._pieces[name])


def identity_of(path: Path) -> str:
    """Return a string that changes with the model's weights. Saved KV belongs to it."""
    if path.is_dir():
        return folder.identity(path)
    stat = path.stat()
    return f"{stat.st_size} {stat.st_mtime_ns}"


def _open_gguf(path: Path) -> Checkpoint:
    file = GgufFile(path)
    architecture = _architecture(file)
    _check_architecture(path, architecture)
    pieces: dict[str, Piece] = {}
    for tensor in file.tensors:
        kind, begin = _kind(file, tensor), file.begin_of(tensor)
        dtype = torch.bfloat16 if len(tensor.shape) > 1 else torch.float32
        if architecture == oss_files.GGUF_NAME:
            name, piece = oss_files.gguf_piece(Piece(path, begin, tensor.shape, kind, dtype), tensor.name)
            pieces[name or oss_files.hub_name(hugging_face_name(tensor.name))] = piece
            continue
        if len(tensor.shape) == 3:
            whole = Piece(path, begin, tensor.shape, kind, dtype)
            pieces |= _expert_pieces(tensor.name, whole)
            continue
        pairs = architecture == "llama" and tensor.name.split(".")[-2] in ("attn_q", "attn_k")
        pieces[hugging_face_name(tensor.name)] = Piece(path, begin, tensor.shape, kind, dtype, pairs)
    shape = _gguf_shape(file)
    file.close()
    return Checkpoint(shape, pieces, StateDict())


def _expert_pieces(tensor: str, whole: Piece) -> Iterator[tuple[str, Piece]]:
    """Yield each expert's part of a tensor, under the name that it has in a folder."""
    _, layer, kind, _ = tensor.split(".")
    experts, *size = whole.shape
    for expert in range(experts):
        name = f"layers.{layer}.mlp.experts.{expert}.{_GGUF_EXPERTS[kind]}.weight"
        offset = whole.offset + expert * (whole.size // experts)
        yield name, whole._replace(offset=offset, shape=tuple(size))


def _kind(file: GgufFile, tensor: Tensor) -> Kind:
    try:
        return kind_of(tensor.kind)
    except ValueError as error:
        raise StartError(
            f"{file.path.name} has weights of the kind {error}, which the GPU engine cannot read.",
            f"Take another quantisation of the model. {BY_LLAMA}",
        ) from error


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
    oss = oss_files.gguf_oss(fields)
    if not oss:
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
        head_width=width,
        oss=oss,
        qk_norm="blk.0.attn_q_norm.weight" in names,
        tied_head="output.weight" not in names,
        experts=fields.get(f"{architecture}.expert_count", 0),
        experts_per_token=chosen,
        expert_ffn=expert_ffn,
    )


def _check_shape(path: Path, shape: Shape) -> None:
    if problem := shape.problem():
        hint = ELSEWHERE if path.is_dir() else BY_LLAMA
        raise StartError(f"{path.name} cannot run on the GPU: {problem}.", hint)


def _check_heads(path: Path, width: int) -> None:
    if width != HEAD_DIM:
        raise StartError(
            f"{path.name} cannot run on the GPU: its heads are {width} wide, and not {HEAD_DIM}.",
            BY_LLAMA,
        )


def _check_architecture(path: Path, architecture: str) -> None:
    if architecture not in _GGUF_ARCHITECTURES:
        known = ", ".join(_GGUF_ARCHITECTURES)
        raise StartError(
            f"{path.name} is a {architecture} model; the GPU engine knows {known}.",
            BY_LLAMA,
        )
