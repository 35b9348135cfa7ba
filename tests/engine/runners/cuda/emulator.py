"""Runs our CUDA C++ kernels on the CPU: the same source, `emulator.h` instead of the GPU's instructions.

Owns the building (g++, once for each plan and source, and `emulator.cpp` once for all) and the calling
convention. Does not know what a kernel does.
"""

import ctypes
import hashlib
import os
import platform
import shutil
import struct
import subprocess
import tempfile
from pathlib import Path

import torch

from vivace.engine.runners.cuda.decode.launch import Launch, Tiles
from vivace.engine.runners.cuda.decode.plan import Plan
from vivace.engine.runners.cuda.kernels.driver import kernels, source

HERE = Path(__file__).parent
COMPILER = shutil.which("g++") or shutil.which("clang++")
FLAGS = (
    *("-std=c++17", "-fno-exceptions", "-fno-strict-aliasing", "-fvisibility=hidden", "-fPIC", "-w"),
    "-ffp-contract=off",  # products and sums are rounded apart, so that every CPU gives the same
    "-U_FORTIFY_SOURCE",  # it takes a jump to another stack for a mistake
    *(("-march=native",) if platform.machine() == "x86_64" else ()),
)


def build(plan: Plan) -> ctypes.CDLL:
    """The plan's kernels as a shared library; kept in the temporary folder between runs."""
    exports = "".join(f"LAUNCHED({name})\n" for name in kernels(plan))
    text = source(plan, f'#include "{HERE / "emulator.h"}"\n') + exports
    runtime = compiled((HERE / "emulator.cpp").read_text(), ".o", ("-c", "-O3", *FLAGS, f"-I{HERE}"))
    return ctypes.CDLL(str(compiled(text, ".so", ("-shared", "-O1", *FLAGS), runtime)))


def compiled(text: str, suffix: str, flags: tuple[str, ...], *linked: Path) -> Path:
    """Compile a source if that was not done before, and return the file."""
    assert COMPILER
    folder = Path(tempfile.gettempdir()) / "vivace-emulated-kernels"
    folder.mkdir(exist_ok=True)
    content = "\n".join((*flags, *map(str, linked), (HERE / "emulator.h").read_text(), text))
    file = folder / f"{hashlib.sha256(content.encode()).hexdigest()[:24]}{suffix}"
    if not file.exists():
        own = file.with_suffix(f".{os.getpid()}")  # another run may be building the same
        written, part = own.with_suffix(f"{own.suffix}.cpp"), own.with_suffix(f"{own.suffix}.part")
        written.write_text(text)
        subprocess.run([COMPILER, *flags, str(written), *map(str, linked), "-o", str(part)], check=True)
        part.rename(file)
        written.unlink()
    return file


class Emulator:
    """Stands where `driver.Module` stands on a GPU."""

    def __init__(self, plan: Plan) -> None:
        self._library = build(plan)
        self._library.take_problem.restype = ctypes.c_char_p

    def run(self, launch: Launch) -> None:
        size = launch.size
        sizes = (ctypes.c_int * 7)(*size.grid, size.threads, size.cluster, size.shared_bytes, size.is_meeting)
        tiles = [_described(each) for each in launch.arguments if isinstance(each, Tiles)]
        described = iter(tiles)
        words = [
            ctypes.addressof(next(described)) if isinstance(each, Tiles) else _word(each)
            for each in launch.arguments
        ]
        self._library[f"launch_{launch.kernel}"](sizes, (ctypes.c_uint64 * len(words))(*words))
        problem = self._library.take_problem()
        assert not problem, f"{launch.kernel}: {problem.decode()}"


def _described(tiles: Tiles) -> ctypes.Array[ctypes.c_uint64]:
    rows = tiles.rows.flatten(0, -2)
    assert tiles.rows.is_contiguous()
    row_bytes = rows.shape[1] * rows.itemsize
    return (ctypes.c_uint64 * 5)(rows.data_ptr(), len(rows), row_bytes, rows.itemsize, tiles.at_once)


def _word(argument: torch.Tensor | int | float) -> int:
    if isinstance(argument, torch.Tensor):
        assert argument.is_contiguous()
        return argument.data_ptr()
    if isinstance(argument, int):
        return argument & 0xFFFFFFFF
    return int(struct.unpack("<I", struct.pack("<f", argument))[0])
