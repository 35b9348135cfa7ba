"""Tiny random models of every architecture that llama.cpp knows, as GGUF files: one for each memory kind.

llama.cpp itself makes the tensors from a few lines of metadata, as its own tests do, so a new architecture
is a line here. The same architecture has the same weights each time. There is no vocabulary.
"""

import ctypes
import hashlib
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

VOCAB = 128
LAYERS, EMBEDDING, HEADS, FEED = 4, 256, 2, 384
WINDOW = 16  # small, so that random mixes leave it
CONTEXT_TOKENS = 2048
_U32, _F16, _F32 = 4, 1, 0  # types of GGUF's and of ggml's

_EXPERTS = {
    **{"expert_feed_forward_length": FEED, "expert_shared_feed_forward_length": FEED},
    # All are used: which ones a router chooses can turn at a rounding, and then every logit is another.
    **{"expert_count": 4, "expert_used_count": 4, "expert_shared_count": 1},
    **{"expert_gating_func": 2, "expert_weights_scale": 1.0},
}
_GATED = {"ssm.inner_size": 256, **_EXPERTS}  # gated delta nets
_ALTERNATING = {"attention.head_count": [HEADS, 0] * 2, "attention.head_count_kv": [HEADS, 0] * 2}
_LATENT = {  # attention over a compressed KV
    **{"attention.q_lora_rank": 64, "attention.kv_lora_rank": 64, "attention.head_count_kv": 1},
    **{"attention.key_length": 96, "attention.value_length": 64, "rope.dimension_count": 32},
    **{"attention.key_length_mla": 64, "attention.value_length_mla": 32},
}
ARCHITECTURES: dict[str, dict[str, Any]] = {
    "llama": {},
    "qwen3": {},
    "glm4moe": _EXPERTS,
    "deepseek2": {**_EXPERTS, **_LATENT, "rope.scaling.yarn_log_multiplier": 0.1},
    "gemma3": {"attention.sliding_window": WINDOW},
    "gpt-oss": {"attention.sliding_window": WINDOW, **_EXPERTS},
    "qwen35": _GATED,
    "qwen35moe": _GATED,
    "qwen3next": _GATED,
    "nemotron_h": {**_ALTERNATING, "feed_forward_length": [0, 0, FEED, 0]},
    "granitehybrid": _ALTERNATING,
    "falcon-h1": {},
    "jamba": _ALTERNATING,
    "lfm2": _ALTERNATING,
    "lfm2 with a window": {**_ALTERNATING, "attention.sliding_window": WINDOW},
    "mamba2": {"ssm.time_step_rank": 8},
}
KINDS = {
    **dict.fromkeys(("llama", "qwen3", "glm4moe", "deepseek2"), "exact"),
    **dict.fromkeys(("gemma3", "gpt-oss"), "bounded"),
}


def metadata(architecture: str, vocab: int = VOCAB) -> dict[str, Any]:
    """Return what a file of this architecture says of itself."""
    values, architecture = ARCHITECTURES[architecture], architecture.partition(" ")[0]
    common = {
        **{"vocab_size": vocab, "context_length": CONTEXT_TOKENS, "block_count": LAYERS},
        **{"embedding_length": EMBEDDING, "feed_forward_length": FEED, "leading_dense_block_count": 1},
        **{"attention.head_count": HEADS, "attention.head_count_kv": HEADS, "full_attention_interval": 2},
        **{"attention.layer_norm_rms_epsilon": 1e-5, "attention.layer_norm_epsilon": 1e-5},
        "rope.dimension_sections": [EMBEDDING // HEADS // 4] * 4,
        **{"ssm.inner_size": 2 * EMBEDDING, "ssm.conv_kernel": 4, "ssm.state_size": 128},
        **{"ssm.time_step_rank": HEADS, "ssm.group_count": 2, "shortconv.l_cache": 3, "logit_scale": 1.0},
    }
    own = {f"{architecture}.{key}": value for key, value in {**common, **values}.items()}
    return {"general.architecture": architecture, **own, "tokenizer.ggml.model": "no_vocab"}


def write_tiny_model(architecture: str, folder: Path, vocab: int = VOCAB) -> Path:
    """Write the model of an architecture, unless it is there, and return its file."""
    path = folder / f"{architecture}.gguf"
    if not path.exists():
        write_model(metadata(architecture, vocab), path)
    return path


def write_model(values: dict[str, Any], path: Path) -> None:
    """Write a model of random numbers with this metadata."""
    lc = pytest.importorskip("llama_cpp", reason="llama.cpp is not installed")
    ggml = _library()
    options = lc.llama_model_default_params()
    options.use_extra_bufts = False
    fill = lc.llama_model_set_tensor_data_t(_fill)
    model = lc.llama_model_init_from_user(_written(ggml, values), fill, None, options)
    assert model, f"llama.cpp makes no {values['general.architecture']}"
    lc.llama_model_save_to_file(model, str(path).encode())
    lc.llama_model_free(model)


@cache
def _library() -> ctypes.CDLL:
    """Return ggml's library with the functions that are not in llama.cpp's Python interface."""
    import llama_cpp

    pointer, name = ctypes.c_void_p, ctypes.c_char_p
    file = min((Path(llama_cpp.__file__).parent / "lib").glob("libggml-base.*"))
    ggml = ctypes.CDLL(str(file))
    ggml.gguf_init_empty.restype = pointer
    for kind, value in (("u32", ctypes.c_uint32), ("f32", ctypes.c_float), ("str", name)):
        getattr(ggml, f"gguf_set_val_{kind}").argtypes = [pointer, name, value]
    ggml.gguf_set_arr_data.argtypes = [pointer, name, ctypes.c_int, pointer, ctypes.c_size_t]
    ggml.ggml_nelements.argtypes, ggml.ggml_nelements.restype = [pointer], ctypes.c_int64
    ggml.ggml_nbytes.argtypes, ggml.ggml_nbytes.restype = [pointer], ctypes.c_size_t
    ggml.ggml_get_name.argtypes, ggml.ggml_get_name.restype = [pointer], name
    ggml.ggml_backend_tensor_set.argtypes = [pointer, pointer, ctypes.c_size_t, ctypes.c_size_t]
    return ggml


def _written(ggml: ctypes.CDLL, values: dict[str, Any]) -> int:
    file: int = ggml.gguf_init_empty()
    for key, value in values.items():
        match value:
            case int():
                ggml.gguf_set_val_u32(file, key.encode(), value)
            case float():
                ggml.gguf_set_val_f32(file, key.encode(), value)
            case str():
                ggml.gguf_set_val_str(file, key.encode(), value.encode())
            case _:
                array = np.array(value, np.uint32)
                ggml.gguf_set_arr_data(file, key.encode(), _U32, array.ctypes.data, len(array))
    return file


def _fill(tensor: int, _data: int) -> None:
    """Fill a tensor of llama.cpp's with numbers that its name decides."""
    ggml = _library()
    name = ggml.ggml_get_name(tensor)
    seed = int.from_bytes(hashlib.blake2b(name, digest_size=8).digest(), "little")
    numbers = np.random.default_rng(seed).standard_normal(ggml.ggml_nelements(tensor)) * _scale(name)
    if b"norm" in name:
        numbers += 1.0
    elif name.endswith(b"ssm_a"):  # how fast a state is forgotten
        numbers = -np.abs(numbers) - 0.05
    kind = ctypes.c_int.from_address(tensor).value  # the first field of ggml_tensor
    values = numbers.astype({_F32: np.float32, _F16: np.float16}[kind])
    ggml.ggml_backend_tensor_set(tensor, values.ctypes.data, 0, ggml.ggml_nbytes(tensor))


def _scale(name: bytes) -> float:
    """Return how large a tensor's numbers are, so that the history decides the next token."""
    if b"ssm_out" in name:
        return 0.6
    return 1.0 if name.startswith(b"output.") else 0.05 if name.startswith(b"token_embd") else 0.15
