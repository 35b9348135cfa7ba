"""A Hugging Face folder as a model for the GPU: its shape from config.json, its weights from safetensors.

Owns what config.json may say, and that the tensors are those of that shape: all of it is checked by the
headers, before anything large is read or reserved. Does not read weights (`stream`). Which files belong to
the folder is `models.folder`'s.
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import msgspec
import torch  # type: ignore[import-not-found,unused-ignore]

from vivace.engine.runners.cuda.model.reference import StateDict
from vivace.engine.runners.cuda.model.shape import HEAD_DIM, Shape
from vivace.engine.runners.cuda.weights import oss_files
from vivace.engine.runners.cuda.weights.blocks import KINDS
from vivace.engine.runners.cuda.weights.pieces import Checkpoint, Piece
from vivace.errors import StartError
from vivace.models.folder import ELSEWHERE, WHOLE, read_json, shown, weight_files

ARCHITECTURES = ("qwen2", "llama", "qwen3", "qwen3_moe")
QK_NORM = ("qwen3", "qwen3_moe")  # those that normalise each head of q and k
_KINDS = {kind.name: kind for kind in KINDS.values() if kind.plain}
NUMBERS = tuple(_KINDS)
_KINDS["U8"] = oss_files.BYTES
Count = Annotated[int, msgspec.Meta(ge=1, le=1 << 24)]
Layers = Annotated[int, msgspec.Meta(ge=1, le=1024)]
Positive = Annotated[float, msgspec.Meta(gt=0, le=1e15)]
_PROJECTIONS = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")
_HEAD_NORMS = ("self_attn.q_norm", "self_attn.k_norm")
_IGNORED = "rotary_emb.inv_freq"  # old checkpoints keep a table that is computed here


class Rope(msgspec.Struct):
    """How positions turn: `rope_scaling` of old folders, `rope_parameters` of new ones."""

    rope_type: str | None = None
    type: str | None = None
    rope_theta: Positive | None = None
    factor: Positive = 1.0
    low_freq_factor: Positive = 1.0
    high_freq_factor: Positive = 4.0
    original_max_position_embeddings: Count | None = None

    @property
    def kind(self) -> str:
        return self.rope_type or self.type or "default"


class Config(msgspec.Struct):
    """What is read of config.json; the names are Hugging Face's."""

    num_hidden_layers: Layers
    hidden_size: Count
    intermediate_size: Count
    num_attention_heads: Count
    max_position_embeddings: Count
    rms_norm_eps: Annotated[float, msgspec.Meta(gt=0, lt=1)]
    num_key_value_heads: Count | None = None
    head_dim: Count | None = None
    rope_theta: Positive | None = None
    rope_scaling: Rope | None = None
    rope_parameters: Rope | None = None
    hidden_act: str = "silu"
    tie_word_embeddings: bool | None = None
    use_sliding_window: bool | None = None
    quantization_config: dict[str, Any] | None = None
    num_experts: Annotated[int, msgspec.Meta(ge=0, le=4096)] | None = None
    num_experts_per_tok: Annotated[int, msgspec.Meta(ge=0, le=4096)] | None = None
    norm_topk_prob: bool = False
    decoder_sparse_step: int = 1
    mlp_only_layers: list[int] | None = None
    moe_intermediate_size: Annotated[int, msgspec.Meta(ge=0, le=1 << 24)] | None = None

    @property
    def rope(self) -> Rope:
        return self.rope_parameters or self.rope_scaling or Rope()

    @property
    def ffn(self) -> int:
        if not self.num_experts:
            return self.intermediate_size
        return (self.num_experts_per_tok or 0) * (self.moe_intermediate_size or 0)

    @property
    def theta(self) -> float:
        return self.rope.rope_theta or self.rope_theta or 10_000.0


class _Named(msgspec.Struct):
    model_type: str = "nameless"


def describe_folder(folder: Path) -> Shape:
    """Return the shape, checked against all tensors. Raise `StartError` if the GPU cannot run it."""
    architecture = read_json(folder, "config.json", _Named).model_type
    if architecture == oss_files.FOLDER_NAME:
        shape = oss_files.oss_shape(folder)
        _check_tensors(folder, shape, _tensor_sizes(folder, (*NUMBERS, "U8")))
        return shape
    if architecture not in ARCHITECTURES:
        known = ", ".join((*ARCHITECTURES, oss_files.FOLDER_NAME))
        raise StartError(
            f"{folder.name} is a {shown(architecture)} model; the GPU engine knows {known}.", ELSEWHERE
        )
    config = read_json(folder, "config.json", Config)
    if problem := _problem(config):
        raise StartError(f"{folder.name} cannot run on the GPU: {problem}.", ELSEWHERE)
    sizes = _tensor_sizes(folder)
    shape = _shape(config, architecture, sizes)
    _check_tensors(folder, shape, sizes)
    return shape


def open_folder(folder: Path) -> Checkpoint:
    """Return where all weights are in the folder's files."""
    shape, pieces, computed = describe_folder(folder), dict[str, Piece](), StateDict()
    for file in weight_files(folder):
        with _readable(file), file.open("rb") as opened:
            header_bytes = int.from_bytes(opened.read(8), "little")
            header = msgspec.json.decode(opened.read(header_bytes), type=dict[str, Any])
        header.pop("__metadata__", None)
        for name, told in header.items():
            kind, size = _KINDS[told["dtype"]], tuple(told["shape"])
            assert kind.plain is not None
            begin = 8 + header_bytes + told["data_offsets"][0]
            pieces[name.removeprefix("model.")] = Piece(file, begin, size, kind, kind.plain)
    config = read_json(folder, "config.json", Config)
    if config.tie_word_embeddings:
        pieces.pop("lm_head.weight", None)  # some keep a copy that nobody uses
    if (factors := rope_factors(config.rope, config.theta)) is not None:
        computed["rope_freqs.weight"] = factors
    return Checkpoint(shape, pieces, computed)


def rope_factors(rope: Rope, theta: float) -> torch.Tensor | None:
    """Return Llama 3's frequency factors: low frequencies are slowed by `factor`, high ones are kept."""
    if rope.kind != "llama3" or rope.original_max_position_embeddings is None:
        return None
    exponent = torch.arange(0, HEAD_DIM, 2, dtype=torch.float64) / HEAD_DIM
    turns = rope.original_max_position_embeddings / (2 * math.pi * theta**exponent)
    low, high = rope.low_freq_factor, rope.high_freq_factor
    kept = ((turns - low) / (high - low)).clamp(0.0, 1.0)
    slower: torch.Tensor = (1.0 / ((1.0 - kept) / rope.factor + kept)).float()
    return slower


def _problem(config: Config) -> str:
    """Return why our kernels cannot run this config, or an empty string. `Shape.problem` checks the rest."""
    width = config.head_dim or config.hidden_size // config.num_attention_heads
    rope = config.rope
    if width != HEAD_DIM:
        return f"its heads are {width} wide, and not {HEAD_DIM}"
    if config.quantization_config:
        return f"its weights are quantised ({shown(config.quantization_config.get('quant_method'))})"
    if config.num_experts and not config.norm_topk_prob:
        return "its experts' shares do not add up to 1"
    if config.num_experts and (config.mlp_only_layers or config.decoder_sparse_step != 1):
        return "some of its layers have experts, and some have none"
    if config.hidden_act != "silu":
        return f"its activation is {shown(config.hidden_act)}, and not silu"
    if config.use_sliding_window:
        return "it looks back through a sliding window"
    if rope.kind not in ("default", "llama3", "yarn"):  # yarn: `session_tokens` does it, where it is wished
        return f"it stretches positions by {shown(rope.kind)}"
    if rope.kind == "llama3" and rope.original_max_position_embeddings is None:
        return "it does not say its original_max_position_embeddings"
    if rope.kind == "llama3" and rope.high_freq_factor <= rope.low_freq_factor:
        return "its high_freq_factor is not above its low_freq_factor"
    return ""


def _shape(config: Config, architecture: str, sizes: dict[str, tuple[int, ...]]) -> Shape:
    """Return the shape that config.json tells; what it leaves out, the tensors' names say."""
    rope = config.rope
    yarn_tokens = rope.original_max_position_embeddings if rope.kind == "yarn" else None
    return Shape(
        layers=config.num_hidden_layers,
        hidden=config.hidden_size,
        ffn=config.ffn,
        heads=config.num_attention_heads,
        kv_heads=config.num_key_value_heads or config.num_attention_heads,
        vocab=(sizes.get("embed_tokens.weight") or (0,))[0],
        trained_tokens=yarn_tokens or config.max_position_embeddings,
        rope_theta=config.theta,
        norm_epsilon=config.rms_norm_eps,
        qkv_bias=any(name.endswith("_proj.bias") for name in sizes),
        qk_norm=architecture in QK_NORM,
        tied_head=config.tie_word_embeddings is True
        or (config.tie_word_embeddings is None and "lm_head.weight" not in sizes),
        experts=config.num_experts or 0,
        experts_per_token=config.num_experts_per_tok or 0 if config.num_experts else 0,
        expert_ffn=config.moe_intermediate_size or 0 if config.num_experts else 0,
    )


def _tensor_sizes(folder: Path, numbers: tuple[str, ...] = NUMBERS) -> dict[str, tuple[int, ...]]:
    """Return the size of each tensor, from the files' headers."""
    try:
        from safetensors import safe_open  # type: ignore[import-not-found,unused-ignore]
    except ImportError as error:
        raise StartError(
            "Reading safetensors needs that package.", "Add it with `vivace extras add cuda`."
        ) from error
    sizes: dict[str, tuple[int, ...]] = {}
    for file in weight_files(folder):
        with _readable(file), safe_open(str(file), "pt") as opened:
            for name in opened.keys():  # noqa: SIM118 - it is no dictionary
                part = opened.get_slice(name)
                if part.get_dtype() not in numbers:
                    raise StartError(
                        f"{folder.name} has weights of the kind {part.get_dtype()}, "
                        "which the GPU engine cannot read.",
                        f"Get the folder with the weights in bf16. {ELSEWHERE}",
                    )
                sizes[name.removeprefix("model.")] = tuple(part.get_shape())
    return sizes


@contextmanager
def _readable(file: Path) -> Iterator[None]:
    from safetensors import SafetensorError

    try:
        yield
    except (SafetensorError, OSError) as error:
        raise StartError(
            f"{file.name} is damaged or was cut off: {shown(error)}.",
            "Get that file again.",
        ) from error


def _check_tensors(folder: Path, shape: Shape, sizes: dict[str, tuple[int, ...]]) -> None:
    wanted = _wanted_sizes(shape)
    for name, size in wanted.items():
        is_needed = name != "lm_head.weight" or not shape.tied_head  # some keep a copy of the embedding
        if sizes.get(name, size if not is_needed else None) != size:
            found = "is not there" if name not in sizes else f"is {_by(sizes[name])}"
            raise StartError(
                f"The weights of {folder.name} are not what its config.json says: "
                f"{name} {found}, and should be {_by(size)}.",
                WHOLE,
            )
    for name in sizes:
        if name not in wanted and not name.endswith(_IGNORED):
            raise StartError(
                f"{folder.name} has weights that the GPU engine does not know: {shown(name)}.", ELSEWHERE
            )


def _wanted_sizes(shape: Shape) -> dict[str, tuple[int, ...]]:
    wanted: dict[str, tuple[int, ...]] = {
        "embed_tokens.weight": (shape.vocab, shape.hidden),
        "norm.weight": (shape.hidden,),
        "lm_head.weight": (shape.vocab, shape.hidden),
    }
    layer = oss_files.oss_sizes(shape) if shape.oss else _attention_sizes(shape) | _inner_sizes(shape)
    for index in range(shape.layers):
        wanted |= {f"layers.{index}.{name}": size for name, size in layer.items()}
    return wanted


def _attention_sizes(shape: Shape) -> dict[str, tuple[int, ...]]:
    """Return the tensors of a layer up to its feed-forward network."""
    q, kv = shape.attention_width, shape.kv_heads * HEAD_DIM
    wanted: dict[str, tuple[int, ...]] = {}
    for name, rows in zip(_PROJECTIONS, (q, kv, kv), strict=True):
        wanted[f"{name}.weight"] = (rows, shape.hidden)
        if shape.qkv_bias:
            wanted[f"{name}.bias"] = (rows,)
    if shape.qk_norm:
        wanted |= {f"{name}.weight": (HEAD_DIM,) for name in _HEAD_NORMS}
    wanted["self_attn.o_proj.weight"] = (shape.hidden, q)
    wanted["input_layernorm.weight"] = wanted["post_attention_layernorm.weight"] = (shape.hidden,)
    return wanted


def _inner_sizes(shape: Shape) -> dict[str, tuple[int, ...]]:
    """Return the tensors of a layer's feed-forward network, or of its experts."""
    ffn = shape.expert_ffn or shape.ffn
    up, down = (ffn, shape.hidden), (shape.hidden, ffn)
    one: dict[str, tuple[int, ...]] = {"gate_proj.weight": up, "up_proj.weight": up, "down_proj.weight": down}
    if not shape.experts:
        return {f"mlp.{name}": size for name, size in one.items()}
    router: dict[str, tuple[int, ...]] = {"mlp.gate.weight": (shape.experts, shape.hidden)}
    return router | {
        f"mlp.experts.{expert}.{name}": size for expert in range(shape.experts) for name, size in one.items()
    }


def _by(size: tuple[int, ...]) -> str:
    return " by ".join(map(str, size))
