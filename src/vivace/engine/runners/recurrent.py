"""How many sequences a context of llama.cpp's has, by what the recurrent state of one takes.

llama.cpp allocates the state of every sequence when it makes the context: 55 MB each for the 24 layers of a
Qwen3.5, where attention takes cells as tokens come. Owns the estimate from the file's metadata.
"""

import ctypes

import llama_cpp as lc

SEQUENCES = 64  # of a model without recurrent state
FEWEST = 8
STATE_BYTES = 1 << 30  # for the states of all sequences together
VALUE_BYTES = 4  # states are kept in 32 bits


def recurrent_sequences(model: ctypes.c_void_p) -> int:
    """Return how many sequences fit into STATE_BYTES."""
    return max(FEWEST, min(SEQUENCES, STATE_BYTES // max(1, state_bytes(model))))


def state_bytes(model: ctypes.c_void_p) -> int:
    """Return what the state of one sequence takes at most: as if every layer had one."""
    architecture = _text(model, "general.architecture")

    def size(name: str) -> int:
        return int(_text(model, f"{architecture}.{name}") or 0)

    embedding, inner, state = size("embedding_length"), size("ssm.inner_size"), size("ssm.state_size")
    rolling = max(0, size("ssm.conv_kernel") - 1) * (inner + 2 * size("ssm.group_count") * state)
    rolling = max(rolling, max(0, size("shortconv.l_cache") - 1) * embedding)
    return size("block_count") * (rolling + inner * state) * VALUE_BYTES


def _text(model: ctypes.c_void_p, key: str) -> str:
    buffer = ctypes.create_string_buffer(256)
    length = lc.llama_model_meta_val_str(model, key.encode(), buffer, len(buffer))
    return buffer.value.decode("utf-8", "replace") if length > 0 else ""
