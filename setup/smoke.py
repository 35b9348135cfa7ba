"""Does the fresh llama.cpp compute on this CPU? Multiplies small matrices as a model does, and compares.

Owns that one question: exit code 0 or 1, or death by an illegal instruction, which the caller sees as well.
Every kind of memory that the CPU backend offers is tried: AMX and repacked weights have their own kernels.
Uses ggml's C functions through ctypes: no model file, no package but the standard library.
"""

import ctypes
import sys
from ctypes import POINTER, Structure, c_bool, c_char_p, c_float, c_int, c_int64, c_size_t, c_void_p
from pathlib import Path
from typing import Any

DEPTH, ROWS, COLUMNS = 256, 64, 32  # weights DEPTH x ROWS, input DEPTH x COLUMNS: enough for whole AMX tiles
TYPES = {"F16": 1, "Q4_0": 2, "Q8_0": 8, "Q4_K": 12, "Q6_K": 14}
F32, CPU, WEIGHTS = 0, 0, 1
LIKENESS = 0.98  # cosine between what 4-bit weights give and what exact ones would


class InitParams(Structure):
    _fields_ = (("mem_size", c_size_t), ("mem_buffer", c_void_p), ("no_alloc", c_bool))


SIGNATURES: dict[str, tuple[Any, ...]] = {  # name: result, arguments
    "ggml_init": (c_void_p, InitParams),
    "ggml_free": (None, c_void_p),
    "ggml_new_tensor_2d": (c_void_p, c_void_p, c_int, c_int64, c_int64),
    "ggml_mul_mat": (c_void_p, c_void_p, c_void_p, c_void_p),
    "ggml_new_graph": (c_void_p, c_void_p),
    "ggml_build_forward_expand": (None, c_void_p, c_void_p),
    "ggml_nbytes": (c_size_t, c_void_p),
    "ggml_quantize_chunk": (
        c_size_t, c_int, POINTER(c_float), c_void_p, c_int64, c_int64, c_int64, c_void_p
    ),
    "ggml_backend_dev_by_type": (c_void_p, c_int),
    "ggml_backend_dev_backend_reg": (c_void_p, c_void_p),
    "ggml_backend_dev_buffer_type": (c_void_p, c_void_p),
    "ggml_backend_dev_init": (c_void_p, c_void_p, c_char_p),
    "ggml_backend_dev_supports_op": (c_bool, c_void_p, c_void_p),
    "ggml_backend_reg_get_proc_address": (c_void_p, c_void_p, c_char_p),
    "ggml_backend_buft_name": (c_char_p, c_void_p),
    "ggml_backend_buft_alloc_buffer": (c_void_p, c_void_p, c_size_t),
    "ggml_backend_buft_get_alloc_size": (c_size_t, c_void_p, c_void_p),
    "ggml_backend_buffer_get_base": (c_void_p, c_void_p),
    "ggml_backend_buffer_set_usage": (None, c_void_p, c_int),
    "ggml_backend_tensor_alloc": (c_int, c_void_p, c_void_p, c_void_p),
    "ggml_backend_tensor_set": (None, c_void_p, c_void_p, c_size_t, c_size_t),
    "ggml_backend_tensor_get": (None, c_void_p, c_void_p, c_size_t, c_size_t),
    "ggml_backend_graph_compute": (c_int, c_void_p, c_void_p),
    "llama_print_system_info": (c_char_p,),
}  # fmt: skip


class Ggml:
    """The libraries of one build as one namespace of typed functions."""

    def __init__(self, folder: Path) -> None:
        suffix = "dylib" if sys.platform == "darwin" else "so"
        names = ("ggml-base", "ggml-cpu", "ggml", "llama")
        libraries = [ctypes.CDLL(str(folder / f"lib{name}.{suffix}"), ctypes.RTLD_GLOBAL) for name in names]
        for name, (result, *arguments) in SIGNATURES.items():
            function = next(getattr(library, name) for library in libraries if hasattr(library, name))
            function.restype, function.argtypes = result, arguments
            setattr(self, name.removeprefix("ggml_"), function)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(name)


def weights_and_input() -> tuple[Any, Any, list[float]]:
    """Two small matrices with no pattern that a wrong kernel could meet by luck, and their exact product."""
    weights = [((7 * i + 13 * (i // DEPTH)) % 31 - 15) / 15 for i in range(DEPTH * ROWS)]
    values = [((11 * i + 5 * (i // DEPTH)) % 29 - 14) / 14 for i in range(DEPTH * COLUMNS)]
    product = [
        sum(map(float.__mul__, weights[r * DEPTH : (r + 1) * DEPTH], values[c * DEPTH : (c + 1) * DEPTH]))
        for c in range(COLUMNS)
        for r in range(ROWS)
    ]
    return (c_float * len(weights))(*weights), (c_float * len(values))(*values), product


def buffer_types(ggml: Ggml, device: int) -> list[int]:
    """Where weights can live: plain memory, then whatever extra kinds this CPU has kernels for."""
    registry = ggml.backend_dev_backend_reg(device)
    address = ggml.backend_reg_get_proc_address(registry, b"ggml_backend_dev_get_extra_bufts")
    found = [ggml.backend_dev_buffer_type(device)]
    if address:
        extra = ctypes.CFUNCTYPE(POINTER(c_void_p), c_void_p)(address)(device)
        index = 0
        while extra and extra[index]:
            found.append(extra[index])
            index += 1
    return found


def place(ggml: Ggml, tensor: int, buffer_type: int, usage: int = 0) -> None:
    buffer = ggml.backend_buft_alloc_buffer(
        buffer_type, ggml.backend_buft_get_alloc_size(buffer_type, tensor)
    )
    ggml.backend_buffer_set_usage(buffer, usage)
    ggml.backend_tensor_alloc(buffer, tensor, ggml.backend_buffer_get_base(buffer))


def multiply(
    ggml: Ggml, device: int, buffer_type: int, kind: int, data: tuple[Any, Any]
) -> list[float] | None:
    """The product with weights as `kind` in memory of `buffer_type`; None where these do not go together."""
    context = ggml.init(InitParams(1 << 20, None, True))
    weights = ggml.new_tensor_2d(context, kind, DEPTH, ROWS)
    values = ggml.new_tensor_2d(context, F32, DEPTH, COLUMNS)
    product = ggml.mul_mat(context, weights, values)
    place(ggml, weights, buffer_type, WEIGHTS)
    if not ggml.backend_dev_supports_op(device, product):
        return None
    for tensor in (values, product):
        place(ggml, tensor, ggml.backend_dev_buffer_type(device))
    size_bytes = ggml.nbytes(weights)
    packed = ctypes.create_string_buffer(size_bytes)
    ggml.quantize_chunk(kind, data[0], packed, 0, ROWS, DEPTH, None)
    ggml.backend_tensor_set(weights, packed, 0, size_bytes)
    ggml.backend_tensor_set(values, data[1], 0, ggml.nbytes(values))
    graph = ggml.new_graph(context)
    ggml.build_forward_expand(graph, product)
    ggml.backend_graph_compute(ggml.backend_dev_init(device, None), graph)
    result = (c_float * (ROWS * COLUMNS))()
    ggml.backend_tensor_get(product, result, 0, ctypes.sizeof(result))
    ggml.free(context)
    return list(result)


def likeness(a: list[float], b: list[float]) -> float:
    dot = sum(map(float.__mul__, a, b))
    return float(dot / (sum(x * x for x in a) * sum(x * x for x in b) or 1e-9) ** 0.5)


def main() -> int:
    ggml = Ggml(Path(sys.argv[1]))
    print(ggml.llama_print_system_info().decode())
    device = ggml.backend_dev_by_type(CPU)
    *data, exact = weights_and_input()
    failed = False
    for buffer_type in buffer_types(ggml, device):
        for name, kind in TYPES.items():
            where = ggml.backend_buft_name(buffer_type).decode()
            print(f"{where} {name}: ", end="", flush=True)  # before: if this one kills us, the log says which
            result = multiply(ggml, device, buffer_type, kind, (data[0], data[1]))
            score = likeness(result, exact) if result else None
            print("not offered" if score is None else f"{score:.4f}", flush=True)
            failed |= score is not None and not score > LIKENESS  # also catches NaN
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
