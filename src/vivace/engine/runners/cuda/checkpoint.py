"""Weights from files: a GGUF, dequantised, or a folder of Hugging Face safetensors.

Owns the reading and the names. Gives bf16 matrices under Hugging Face's names without the `model.` in
front; how they lie on the GPU is `weights`'s concern. Says in one line what it cannot read.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch  # type: ignore[import-not-found,unused-ignore]

from vivace.engine.runners.cuda.reference import Plain
from vivace.engine.runners.cuda.shape import HEAD_DIM, Shape
from vivace.errors import StartError

ARCHITECTURES = ("qwen2",)
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
    if problem := shape.problem():
        raise StartError(f"{path.name} cannot run on the GPU: {problem}.", "Run it with the CPU engine.")
    return shape, weights


def read_gguf(path: Path) -> tuple[Shape, Plain]:
    try:
        import gguf  # type: ignore[import-not-found,import-untyped,unused-ignore]
    except ImportError as error:
        raise StartError("Reading GGUF needs the gguf package.", "pip install 'vivace[cuda]'") from error
    reader: Any = gguf.GGUFReader(str(path))
    fields = {name: field.contents() for name, field in reader.fields.items() if "tokenizer" not in name}
    architecture = fields["general.architecture"]
    _check_architecture(path, architecture)
    weights = Plain()
    for tensor in reader.tensors:
        try:
            values = gguf.dequantize(tensor.data, tensor.tensor_type)
        except NotImplementedError as error:
            raise StartError(
                f"{path.name} has weights in {tensor.tensor_type.name}, which is not read."
            ) from error
        weights[hugging_face_name(tensor.name)] = torch.from_numpy(np.array(values)).to(torch.bfloat16)
    return _gguf_shape(fields, architecture, weights), weights


def hugging_face_name(name: str) -> str:
    """blk.3.attn_q.weight → layers.3.self_attn.q_proj.weight"""
    parts = name.split(".")
    if parts[0] == "blk":
        return f"layers.{parts[1]}.{_GGUF_NAMES.get(parts[2], parts[2])}.{parts[3]}"
    return f"{_GGUF_TOP.get(parts[0], parts[0])}.{parts[1]}"


def _gguf_shape(fields: dict[str, Any], architecture: str, weights: Plain) -> Shape:
    def of(name: str) -> Any:
        return fields[f"{architecture}.{name}"]

    return Shape(
        layers=of("block_count"),
        hidden=of("embedding_length"),
        ffn=of("feed_forward_length"),
        heads=of("attention.head_count"),
        kv_heads=of("attention.head_count_kv"),
        vocab=weights["embed_tokens.weight"].shape[0],
        trained_tokens=of("context_length"),
        rope_theta=of("rope.freq_base"),
        norm_epsilon=of("attention.layer_norm_rms_epsilon"),
    )


def read_safetensors(folder: Path) -> tuple[Shape, Plain]:
    try:
        from safetensors.torch import load_file  # type: ignore[import-not-found,unused-ignore]
    except ImportError as error:
        raise StartError("Reading safetensors needs that package.", "pip install 'vivace[cuda]'") from error
    config = json.loads((folder / "config.json").read_text())
    _check_architecture(folder, config["model_type"])
    weights = Plain()
    for file in sorted(folder.glob("*.safetensors")):
        weights.update({name.removeprefix("model."): tensor for name, tensor in load_file(str(file)).items()})
    if config["hidden_size"] != config["num_attention_heads"] * HEAD_DIM:
        raise StartError(f"{folder.name} cannot run on the GPU: its heads are not {HEAD_DIM} wide.")
    rope = config.get("rope_parameters") or config
    return Shape(
        layers=config["num_hidden_layers"],
        hidden=config["hidden_size"],
        ffn=config["intermediate_size"],
        heads=config["num_attention_heads"],
        kv_heads=config["num_key_value_heads"],
        vocab=weights["embed_tokens.weight"].shape[0],
        trained_tokens=config["max_position_embeddings"],
        rope_theta=rope["rope_theta"],
        norm_epsilon=config["rms_norm_eps"],
    ), weights


def _check_architecture(path: Path, architecture: str) -> None:
    if architecture not in ARCHITECTURES:
        raise StartError(
            f"{path.name} is a {architecture} model; the GPU engine knows {', '.join(ARCHITECTURES)}.",
            "Run it with the CPU engine.",
        )
