"""How many sequences a model with recurrent state has, by what the state of one takes.

llama.cpp allocates the state of every sequence when it makes the context: 20 MB each for the 24 layers of a
Qwen3.5, where attention takes cells as tokens come. Owns the estimate from the file's metadata.
"""

import ctypes
from collections.abc import Callable

import llama_cpp as lc

from vivace.engine.runners.limits import STATES_BYTES

SEQUENCES = 64  # of a model without recurrent state
FEWEST = 8
VALUE_BYTES = 4  # states are kept in 32 bits

Number = Callable[
    [str], int
]  # a value of the file's metadata, without the architecture before its name; or 0


def recurrent_sequences(number: Number) -> int:
    """Return how many sequences fit into STATES_BYTES; the fewest if the file does not say what one takes."""
    size = state_bytes(number)
    return max(FEWEST, min(SEQUENCES, STATES_BYTES // size)) if size else FEWEST


def states_bytes(number: Number) -> int:
    """Return what the states of all sequences take at most; 0 for a model without any."""
    return state_bytes(number) * recurrent_sequences(number)


def state_bytes(number: Number) -> int:
    """Return what the state of one sequence takes at most: as if every layer had one."""
    embedding, inner, state = (
        number(name) for name in ("embedding_length", "ssm.inner_size", "ssm.state_size")
    )
    rolling = max(0, number("ssm.conv_kernel") - 1) * (inner + 2 * number("ssm.group_count") * state)
    rolling = max(rolling, max(0, number("shortconv.l_cache") - 1) * embedding)
    return number("block_count") * (rolling + inner * state) * VALUE_BYTES


def numbers_of(model: ctypes.c_void_p) -> Number:
    """Return how to read numbers of a loaded model's metadata."""
    architecture = _text(model, "general.architecture")
    return lambda name: int(_text(model, f"{architecture}.{name}") or 0)


def _text(model: ctypes.c_void_p, key: str) -> str:
    buffer = ctypes.create_string_buffer(256)
    length = lc.llama_model_meta_val_str(model, key.encode(), buffer, len(buffer))
    return buffer.value.decode("utf-8", "replace") if length > 0 else ""
