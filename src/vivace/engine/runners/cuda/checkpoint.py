"""Weights from files: a GGUF, dequantised, or a folder of Hugging Face safetensors.

Owns the reading and the names. Gives bf16 matrices under Hugging Face's names without the `model.` in
front; how they lie on the GPU is `weights`'s concern. Says in one line what it cannot read.
"""

import json
import math
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import torch  # type: ignore[import-not-found,unused-ignore]

from vivace.engine.runners.cuda.gguf_file import GgufFile, Tensor
from vivace.engine.runners.cuda.reference import Plain
from vivace.engine.runners.cuda.shape import HEAD_DIM, Shape
from vivace.errors import StartError

READERS = 4  # threads: each holds one matrix in fp32
ARCHITECTURES = ("qwen2", "llama")
_GGUF_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_GGUF_TOP = {"token_embd": "embed_tokens", "output_norm": "norm", "output": "lm_head"}


def read_checkpoint(path: Path) -> tuple[Shape, Plain]:
    shape, weights = read_safetensors(path) if path.is_dir() else read_gguf(path)
    _check_shape(path, shape)
    return shape, weights


def describe(path: Path) -> Shape:
    """The model's shape from its header alone; `StartError` if the GPU engine cannot run this file."""
    if path.is_dir():
        config = _read_config(path)
        shape = _config_shape(config, config["vocab_size"])
    else:
        file = GgufFile(path)
        _check_architecture(path, _architecture(file))
        _check_kinds(file)
        shape = _gguf_shape(file)
        file.close()
    _check_shape(path, shape)
    return shape


def read_gguf(path: Path) -> tuple[Shape, Plain]:
    gguf = _gguf_package()
    file = GgufFile(path)
    architecture = _architecture(file)
    _check_architecture(path, architecture)
    _check_kinds(file)

    def read(tensor: Tensor) -> tuple[str, torch.Tensor]:
        kind = gguf.GGMLQuantizationType(tensor.kind)
        block, block_bytes = gguf.GGML_QUANT_SIZES[kind]
        row_bytes = tensor.shape[-1] // block * block_bytes
        raw = np.frombuffer(file.data(tensor, math.prod(tensor.shape[:-1]) * row_bytes), np.uint8)
        values = gguf.dequantize(raw.reshape(*tensor.shape[:-1], row_bytes), kind)
        rows = torch.from_numpy(np.array(values)).to(torch.bfloat16 if values.ndim > 1 else torch.float32)
        if architecture == "llama" and tensor.name.split(".")[-2] in ("attn_q", "attn_k"):
            rows = _halves_apart(rows)
        return hugging_face_name(tensor.name), rows

    with ThreadPoolExecutor(READERS) as threads:
        return _gguf_shape(file), Plain(threads.map(read, file.tensors))


def _halves_apart(rows: torch.Tensor) -> torch.Tensor:
    """Llama's GGUF has the two dimensions that turn together side by side; here they are 64 apart."""
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
        raise StartError("Reading GGUF needs the gguf package.", "pip install 'vivace[cuda]'") from error
    return gguf


def hugging_face_name(name: str) -> str:
    """blk.3.attn_q.weight → layers.3.self_attn.q_proj.weight"""
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
    return Shape(
        layers=of("block_count"),
        hidden=hidden,
        ffn=of("feed_forward_length"),
        heads=heads,
        kv_heads=fields.get(f"{architecture}.attention.head_count_kv", heads),
        vocab=next(each.shape[0] for each in file.tensors if each.name == "token_embd.weight"),
        trained_tokens=of("context_length"),
        rope_theta=fields.get(f"{architecture}.rope.freq_base", 10_000.0),
        norm_epsilon=of("attention.layer_norm_rms_epsilon"),
    )


def read_safetensors(folder: Path) -> tuple[Shape, Plain]:
    try:
        from safetensors.torch import load_file  # type: ignore[import-not-found,unused-ignore]
    except ImportError as error:
        raise StartError("Reading safetensors needs that package.", "pip install 'vivace[cuda]'") from error
    config = _read_config(folder)
    weights = Plain()
    for file in sorted(folder.glob("*.safetensors")):
        weights.update({name.removeprefix("model."): tensor for name, tensor in load_file(str(file)).items()})
    if (factors := rope_factors(config)) is not None:
        weights["rope_freqs.weight"] = factors
    return _config_shape(config, weights["embed_tokens.weight"].shape[0]), weights


def rope_factors(config: dict[str, Any]) -> torch.Tensor | None:
    """Llama 3's own stretch: low frequencies are slowed down by `factor`, high ones stay as they are."""
    rope = config.get("rope_scaling") or config.get("rope_parameters") or {}
    if rope.get("rope_type", rope.get("type")) != "llama3":
        return None
    theta = (config.get("rope_parameters") or config)["rope_theta"]
    exponent = torch.arange(0, HEAD_DIM, 2, dtype=torch.float64) / HEAD_DIM
    turns = rope["original_max_position_embeddings"] / (2 * math.pi * theta**exponent)
    low, high = rope["low_freq_factor"], rope["high_freq_factor"]
    kept = ((turns - low) / (high - low)).clamp(0.0, 1.0)
    return (1.0 / ((1.0 - kept) / rope["factor"] + kept)).float()


def _read_config(folder: Path) -> dict[str, Any]:
    try:
        config: dict[str, Any] = json.loads((folder / "config.json").read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise StartError(f"{folder.name} has no config.json that can be read: {error}.") from error
    _check_architecture(folder, config.get("model_type", "nameless"))
    _check_heads(folder, config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"])
    return config


def _config_shape(config: dict[str, Any], vocab: int) -> Shape:
    rope = config.get("rope_parameters") or config
    return Shape(
        layers=config["num_hidden_layers"],
        hidden=config["hidden_size"],
        ffn=config["intermediate_size"],
        heads=config["num_attention_heads"],
        kv_heads=config["num_key_value_heads"],
        vocab=vocab,
        trained_tokens=config["max_position_embeddings"],
        rope_theta=rope["rope_theta"],
        norm_epsilon=config["rms_norm_eps"],
    )


def _check_shape(path: Path, shape: Shape) -> None:
    if problem := shape.problem():
        raise StartError(f"{path.name} cannot run on the GPU: {problem}.", "Run it with the CPU engine.")


def _check_heads(path: Path, width: int) -> None:
    if width != HEAD_DIM:
        raise StartError(
            f"{path.name} cannot run on the GPU: its heads are {width} wide, and not {HEAD_DIM}.",
            "Run it with the CPU engine.",
        )


def _check_architecture(path: Path, architecture: str) -> None:
    if architecture not in ARCHITECTURES:
        raise StartError(
            f"{path.name} is a {architecture} model; the GPU engine knows {', '.join(ARCHITECTURES)}.",
            "Run it with the CPU engine.",
        )
