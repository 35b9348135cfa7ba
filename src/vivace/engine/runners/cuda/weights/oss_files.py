"""gpt-oss in files: what config.json and a GGUF's header say of it, and the names and sizes of its tensors.

Experts are pieces of raw bytes, which `oss` understands. Finding the other tensors is `checkpoint`'s and
`safetensors_folder`'s.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import msgspec
import torch  # type: ignore[import-not-found,unused-ignore]

from vivace.engine.runners.cuda.model.oss import GROUP
from vivace.engine.runners.cuda.model.shape import GptOss, Shape
from vivace.engine.runners.cuda.weights.blocks import Kind
from vivace.engine.runners.cuda.weights.oss import BLOCK_BYTES
from vivace.engine.runners.cuda.weights.pieces import Piece
from vivace.engine.runners.gpu_check import BY_LLAMA
from vivace.errors import StartError
from vivace.models.folder import ELSEWHERE, read_json

FOLDER_NAME, GGUF_NAME = "gpt_oss", "gpt-oss"
BYTES = Kind("U8", 1, 1, plain=torch.uint8)
Count = Annotated[int, msgspec.Meta(ge=1, le=1 << 24)]


class OssRope(msgspec.Struct):
    rope_type: str = "default"
    factor: Annotated[float, msgspec.Meta(ge=1, le=1e6)] = 1.0
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    truncate: bool = True
    original_max_position_embeddings: Count = 4096
    rope_theta: float | None = None


class OssConfig(msgspec.Struct):
    """What is read of config.json; the names are Hugging Face's."""

    num_hidden_layers: Annotated[int, msgspec.Meta(ge=1, le=1024)]
    hidden_size: Count
    intermediate_size: Count
    num_attention_heads: Count
    num_key_value_heads: Count
    head_dim: Count
    vocab_size: Count
    num_local_experts: Count
    num_experts_per_tok: Count
    max_position_embeddings: Count
    sliding_window: Count
    rms_norm_eps: Annotated[float, msgspec.Meta(gt=0, lt=1)]
    rope_theta: float = 150_000.0
    rope_scaling: OssRope | None = None
    rope_parameters: OssRope | None = None
    layer_types: list[str] | None = None
    swiglu_limit: float = 7.0
    tie_word_embeddings: bool = False
    quantization_config: dict[str, Any] | None = None

    @property
    def rope(self) -> OssRope:
        return self.rope_parameters or self.rope_scaling or OssRope()

    def problem(self) -> str:
        kinds = ["full_attention" if i % 2 else "sliding_attention" for i in range(self.num_hidden_layers)]
        rope = self.rope
        if (self.quantization_config or {}).get("quant_method") != "mxfp4":
            return "its experts are not in MXFP4"
        if (self.layer_types or kinds) != kinds:
            return "its windows are not those of every second layer"
        if rope.rope_type != "yarn" or rope.truncate or (rope.beta_fast, rope.beta_slow) != (32.0, 1.0):
            return "it stretches positions in a way of its own"
        return "its head is the embedding" if self.tie_word_embeddings else ""


def oss_shape(folder: Path) -> Shape:
    """Return the shape that config.json tells."""
    config = read_json(folder, "config.json", OssConfig)
    if problem := config.problem():
        raise StartError(f"{folder.name} cannot run on the GPU: {problem}.", ELSEWHERE)
    rope = config.rope
    return Shape(
        layers=config.num_hidden_layers,
        hidden=config.hidden_size,
        ffn=config.num_experts_per_tok * config.intermediate_size,
        heads=config.num_attention_heads,
        kv_heads=config.num_key_value_heads,
        vocab=config.vocab_size,
        trained_tokens=config.max_position_embeddings,
        rope_theta=rope.rope_theta or config.rope_theta,
        norm_epsilon=config.rms_norm_eps,
        tied_head=False,
        experts=config.num_local_experts,
        experts_per_token=config.num_experts_per_tok,
        expert_ffn=config.intermediate_size,
        head_width=config.head_dim,
        oss=GptOss(
            config.sliding_window, rope.factor, rope.original_max_position_embeddings, config.swiglu_limit
        ),
    )


def oss_sizes(shape: Shape) -> dict[str, tuple[int, ...]]:
    """Return the tensors of a layer as the hub has them."""
    hidden, ffn, experts = shape.hidden, shape.expert_ffn, shape.experts
    q, kv = shape.attention_width, shape.kv_heads * shape.head_width
    sizes: dict[str, tuple[int, ...]] = {"self_attn.sinks": (shape.heads,)}
    for name, rows, columns in (
        *(
            ("self_attn.q_proj", q, hidden),
            ("self_attn.k_proj", kv, hidden),
            ("self_attn.v_proj", kv, hidden),
        ),
        *(("self_attn.o_proj", hidden, q), ("mlp.router", experts, hidden)),
    ):
        sizes |= {f"{name}.weight": (rows, columns), f"{name}.bias": (rows,)}
    for name, rows, columns in (("gate_up_proj", 2 * ffn, hidden), ("down_proj", hidden, ffn)):
        groups = (experts, rows, columns // GROUP)
        sizes |= {f"mlp.experts.{name}_blocks": (*groups, GROUP // 2), f"mlp.experts.{name}_scales": groups}
        sizes[f"mlp.experts.{name}_bias"] = (experts, rows)
    return sizes | {"input_layernorm.weight": (hidden,), "post_attention_layernorm.weight": (hidden,)}


def gguf_oss(fields: Mapping[str, Any]) -> GptOss | None:
    """Return what a GGUF's header says of gpt-oss, None if it is of another family."""
    if fields.get("general.architecture") != GGUF_NAME:
        return None
    return GptOss(
        window=fields[f"{GGUF_NAME}.attention.sliding_window"],
        yarn_factor=fields[f"{GGUF_NAME}.rope.scaling.factor"],
        yarn_tokens=fields[f"{GGUF_NAME}.rope.scaling.original_context_length"],
    )


def hub_name(name: str) -> str:
    """Return the hub's name of a tensor that has the name of another family's."""
    return name.replace(".attn_sinks.weight", ".self_attn.sinks").replace(".mlp.gate.", ".mlp.router.")


def gguf_piece(piece: Piece, tensor: str) -> tuple[str, Piece]:
    """Return the name and the bytes of an experts' tensor as `oss` wants them; "" for other tensors."""
    if "_exps." not in tensor:
        return "", piece
    _, layer, own, last = tensor.split(".")
    stem = f"layers.{layer}.mlp.experts.{own.removeprefix('ffn_').removesuffix('_exps')}"
    if last == "bias":
        return f"{stem}_bias", piece
    if piece.kind.name != "MXFP4":
        raise StartError(
            f"{piece.file.name} cannot run on the GPU: its experts are not in MXFP4 ({tensor}).",
            BY_LLAMA,
        )
    experts, rows, columns = piece.shape
    shape = (experts, rows, columns // GROUP, BLOCK_BYTES)
    return f"{stem}_raw", piece._replace(shape=shape, kind=BYTES, dtype=torch.uint8)
