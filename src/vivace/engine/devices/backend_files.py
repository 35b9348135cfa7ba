"""The parts of llama.cpp that were built here for GPUs: where they are, and for what they were built.

Each is one library that the engine loads beside llama.cpp's own, in a folder of its own under the cache: the
CPU's build is never touched. Owns the folders' layout. Does not build (`building`) or load (`runners.ggml`).
"""

import platform
import sys
from pathlib import Path
from typing import Literal

import msgspec

BackendName = Literal["cuda", "vulkan"]
NAMES: tuple[BackendName, ...] = ("cuda", "vulkan")
MANIFEST = "built.json"
FOLDER = "backends"


class BuiltBackend(msgspec.Struct, frozen=True):
    """A finished library."""

    name: BackendName
    library: str  # its path
    toolkit: tuple[int, int] = (0, 0)  # the CUDA that it was built with
    capabilities: tuple[str, ...] = ()  # of the GPUs that it has code for, as "8.6"


def llama_version() -> str:
    """Return the version of the installed llama.cpp; "" if there is none."""
    from importlib.metadata import PackageNotFoundError, version  # 20 ms: not before it is asked for

    try:
        return version("llama_cpp_python")
    except PackageNotFoundError:
        return ""


def library_file(name: BackendName) -> str:
    return f"libggml-{name}.{'dylib' if sys.platform == 'darwin' else 'so'}"


def backend_key(name: BackendName) -> str:
    """Return the folder's name. A library belongs to one version of llama.cpp and one kind of machine."""
    return f"{name}-{llama_version()}-{platform.machine()}"


def find_built(cache_dir: Path) -> dict[BackendName, BuiltBackend]:
    """Return the libraries that fit the installed llama.cpp, by name."""
    found: dict[BackendName, BuiltBackend] = {}
    for name in NAMES:
        folder = cache_dir / FOLDER / backend_key(name)
        try:
            built = msgspec.json.decode((folder / MANIFEST).read_bytes(), type=BuiltBackend)
        except (OSError, msgspec.DecodeError):
            continue
        if Path(built.library).is_file():
            found[name] = built
    return found
