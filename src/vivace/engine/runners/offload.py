"""How much of a GGUF model goes onto a GPU: all of it, or as many layers as its free memory holds.

Owns the arithmetic and the sizes that it needs, read from the file's header. Does not load the model.
"""

import ctypes
import os
from ctypes import POINTER, Structure, c_bool, c_char_p, c_int64, c_uint32, c_void_p
from pathlib import Path
from typing import NamedTuple

from llama_cpp._ggml import libggml

from vivace.engine.runners.recurrent import states_bytes
from vivace.errors import StartError
from vivace.models.store import shards_of

RESERVE_BYTES = 600 << 20  # buffers of a pass, the driver, a little air
KV_SHARE = 0.5  # of the memory that the weights leave
MOST_CELLS = 131_072
KV_VALUE_BYTES = 2  # a half-precision number


class ModelSize(NamedTuple):
    layers: int
    weight_bytes: int
    kv_token_bytes: int  # of one token, in all layers
    states_bytes: int = 0  # recurrent state of all sequences


class Offload(NamedTuple):
    """What is put onto the GPU."""

    layers: int  # of `of_layers`, the output counted as one
    of_layers: int
    context_tokens: int  # KV cells

    def __str__(self) -> str:
        if self.layers == self.of_layers:
            return "all layers"
        return f"{self.layers} of {self.of_layers} layers: the rest did not fit and is on the CPU"


def plan_offload(size: ModelSize, free_bytes: int, context_tokens: int, gpu_context_tokens: int) -> Offload:
    """Return how many layers and KV cells fit.

    With room for all weights, half of what is left is KV, unless the user said how much. Without, the context
    is the CPU's and each layer takes its share of the KV along.
    """
    whole, room = size.layers + 1, max(0, free_bytes - RESERVE_BYTES - size.states_bytes)
    fitting = int((room - size.weight_bytes) * KV_SHARE) // size.kv_token_bytes
    cells = gpu_context_tokens or min(MOST_CELLS, max(context_tokens, fitting))
    needed = size.weight_bytes + cells * size.kv_token_bytes
    if needed <= room:
        return Offload(whole, whole, cells)
    cells = gpu_context_tokens or context_tokens
    needed = size.weight_bytes + cells * size.kv_token_bytes
    return Offload(min(whole, room * whole // needed), whole, cells)


class _InitParams(Structure):
    _fields_ = (("no_alloc", c_bool), ("ctx", POINTER(c_void_p)))


for _name, _result, *_arguments in (
    ("gguf_init_from_file", c_void_p, c_char_p, _InitParams),
    ("gguf_free", None, c_void_p),
    ("gguf_find_key", c_int64, c_void_p, c_char_p),
    ("gguf_get_kv_type", ctypes.c_int, c_void_p, c_int64),
    ("gguf_get_val_u32", c_uint32, c_void_p, c_int64),
    ("gguf_get_val_str", c_char_p, c_void_p, c_int64),
    ("gguf_get_arr_n", ctypes.c_size_t, c_void_p, c_int64),
    ("gguf_get_arr_data", POINTER(c_uint32), c_void_p, c_int64),
):
    _function = getattr(libggml, _name)
    _function.restype, _function.argtypes = _result, list(_arguments)
_UINT32, _ARRAY = 4, 9  # of gguf_type


def read_size(path: Path) -> ModelSize:
    """Return the sizes of a model, from the header of its (first) file."""
    header = libggml.gguf_init_from_file(os.fsencode(path), _InitParams(no_alloc=True, ctx=None))
    if not header:
        raise StartError(f"llama.cpp could not read {path}.", "Is it a GGUF file? Pull it again.")
    try:
        return _size(header, sum(file.stat().st_size for file in shards_of(path)))
    finally:
        libggml.gguf_free(header)


def _size(header: int, weight_bytes: int) -> ModelSize:
    at = libggml.gguf_find_key(header, b"general.architecture")
    architecture = libggml.gguf_get_val_str(header, at) if at >= 0 else b""

    def number(name: str, default: int) -> int:
        """Return a value; of a list with one for each layer the largest."""
        key = libggml.gguf_find_key(header, architecture + b"." + name.encode())
        kind = libggml.gguf_get_kv_type(header, key) if key >= 0 else -1
        if kind == _ARRAY:
            return max(
                libggml.gguf_get_arr_data(header, key)[: libggml.gguf_get_arr_n(header, key)], default=default
            )
        return libggml.gguf_get_val_u32(header, key) if kind == _UINT32 else default

    layers, heads = number("block_count", 1), number("attention.head_count", 1)
    width = number("embedding_length", 1) // max(1, heads)
    kv_heads = number("attention.head_count_kv", heads)
    key_width, value_width = number("attention.key_length", width), number("attention.value_length", width)
    kv_token_bytes = layers * kv_heads * (key_width + value_width) * KV_VALUE_BYTES
    states = states_bytes(lambda name: number(name, 0))
    return ModelSize(max(1, layers), weight_bytes, max(1, kv_token_bytes), states)
