"""The devices that llama.cpp can compute on: its own, and those of libraries that are loaded beside it.

    python -m vivace.engine.runners.ggml LIBRARY

lists them. Owns the calls into ggml's registry. Does not load models (`llamacpp`).
"""

import os
import sys
from ctypes import POINTER, byref, c_char_p, c_int, c_size_t, c_void_p
from pathlib import Path
from typing import NamedTuple

from llama_cpp._ggml import libggml

from vivace.errors import StartError
from vivace.models.gguf_vocab import start_llama

KINDS = {0: "cpu", 1: "gpu", 2: "integrated gpu"}
REGISTRIES = {"cuda": ("CUDA",), "vulkan": ("Vulkan",), "metal": ("Metal", "MTL")}  # ggml's names


class GgmlDevice(NamedTuple):
    handle: int
    registry: str  # CUDA, Vulkan, MTL, CPU
    name: str  # as ggml calls it: CUDA0
    description: str  # as its maker calls it
    kind: str
    free_bytes: int
    total_bytes: int


for _name, _result, *_arguments in (
    ("ggml_backend_load", c_void_p, c_char_p),
    ("ggml_backend_dev_count", c_size_t),
    ("ggml_backend_dev_get", c_void_p, c_size_t),
    ("ggml_backend_dev_name", c_char_p, c_void_p),
    ("ggml_backend_dev_description", c_char_p, c_void_p),
    ("ggml_backend_dev_type", c_int, c_void_p),
    ("ggml_backend_dev_memory", None, c_void_p, POINTER(c_size_t), POINTER(c_size_t)),
    ("ggml_backend_dev_backend_reg", c_void_p, c_void_p),
    ("ggml_backend_reg_name", c_char_p, c_void_p),
):
    _function = getattr(libggml, _name)
    _function.restype, _function.argtypes = _result, list(_arguments)

_loaded: set[str] = set()


def load_library(path: Path) -> None:
    """Load a part of llama.cpp that was built for a GPU. It stays until the process ends."""
    start_llama()
    if str(path) in _loaded:
        return
    if not libggml.ggml_backend_load(os.fsencode(path)):
        raise StartError(
            f"llama.cpp could not load {path}.",
            "A driver or a library that it needs is missing: build it again with `vivace extras add`.",
        )
    _loaded.add(str(path))


def list_devices() -> list[GgmlDevice]:
    start_llama()
    return [
        _describe(libggml.ggml_backend_dev_get(index)) for index in range(libggml.ggml_backend_dev_count())
    ]


def _describe(handle: int) -> GgmlDevice:
    free, total = c_size_t(), c_size_t()
    libggml.ggml_backend_dev_memory(handle, byref(free), byref(total))
    registry = libggml.ggml_backend_reg_name(libggml.ggml_backend_dev_backend_reg(handle))
    return GgmlDevice(
        handle,
        registry.decode(),
        libggml.ggml_backend_dev_name(handle).decode(),
        libggml.ggml_backend_dev_description(handle).decode("utf-8", "replace"),
        KINDS.get(libggml.ggml_backend_dev_type(handle), "other"),
        free.value,
        total.value,
    )


def find_device(kind: str, index: int = 0) -> GgmlDevice:
    """Return the device of this kind with that index. Raise `StartError` if llama.cpp shows none."""
    found = [device for device in list_devices() if device.registry in REGISTRIES[kind]]
    if index < len(found):
        return found[index]
    shown = ", ".join(f"{kind}:{at} {device.description}" for at, device in enumerate(found)) or "none"
    raise StartError(
        f"llama.cpp finds no device {kind}:{index} (it finds {shown}).",
        "See that the driver is installed, or choose another device in config.toml.",
    )


def main() -> int:
    try:
        load_library(Path(sys.argv[1]))
    except StartError as error:
        print(error.message)
        return 1
    for device in list_devices():
        print(f"{device.name}: {device.description}, {device.free_bytes / 1e9:.1f} GB free ({device.kind})")
    return 0


if __name__ == "__main__":
    sys.exit(main())
