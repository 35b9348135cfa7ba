"""Runs our CUDA C++ kernels on the CPU: the same source, `emulator.h` instead of the GPU's instructions.

Owns the building (g++, once for each plan and source) and the calling convention. Does not know what a
kernel does.
"""

import ctypes
import hashlib
import os
import shutil
import struct
import subprocess
import tempfile
from pathlib import Path

import torch

from vivace.engine.runners.cuda.decode.launches import Launch
from vivace.engine.runners.cuda.decode.plan import Plan
from vivace.engine.runners.cuda.kernels.driver import kernels, source

HERE = Path(__file__).parent
COMPILER = shutil.which("g++") or shutil.which("clang++")
# Products and sums are rounded apart, so that every CPU gives the same.
FLAGS = ("-O1", "-ftree-vectorize", "-ffp-contract=off", "-std=c++17", "-shared", "-fPIC", "-w")
EXPORT = """
template <class... A> struct Unpack;
template <class A> A argument(const u64*& at) { A value; memcpy(&value, at++, sizeof(A)); return value; }
template <class... A> void launch_with(void (*kernel)(A...), const int* size, const u64* arguments) {
    const u64* at = arguments;
    std::tuple<A...> values{argument<A>(at)...};
    launch({size[0], size[1], size[2]}, size[3], size[4], size[5], [&] { std::apply(kernel, values); });
}
"""


def build(plan: Plan) -> ctypes.CDLL:
    """The plan's kernels as a shared library; kept in the temporary folder between runs."""
    exports = "".join(
        f'extern "C" void launch_{name}(const int* size, const u64* a) {{ launch_with({name}, size, a); }}\n'
        for name in kernels(plan)
    )
    text = source(plan, "#include <tuple>\n" + (HERE / "emulator.h").read_text()) + EXPORT + exports
    folder = Path(tempfile.gettempdir()) / "vivace-emulated-kernels"
    folder.mkdir(exist_ok=True)
    content = "\n".join((*FLAGS, text))
    library = folder / f"{hashlib.sha256(content.encode()).hexdigest()[:24]}.so"
    if not library.exists():
        assert COMPILER
        own = library.with_suffix(f".{os.getpid()}")  # another run may be building the same
        file, part = own.with_suffix(f"{own.suffix}.cpp"), own.with_suffix(f"{own.suffix}.part")
        file.write_text(text)
        subprocess.run([COMPILER, *FLAGS, str(file), "-o", str(part)], check=True)
        part.rename(library)
        file.unlink()
    return ctypes.CDLL(str(library))


class Emulator:
    """Stands where `driver.Module` stands on a GPU."""

    def __init__(self, plan: Plan) -> None:
        self._library = build(plan)
        self._library.take_problem.restype = ctypes.c_char_p

    def run(self, launch: Launch) -> None:
        size = launch.size
        sizes = (ctypes.c_int * 6)(*size.grid, size.threads, size.cluster, size.shared_bytes)
        words = [_word(argument) for argument in launch.arguments]
        self._library[f"launch_{launch.kernel}"](sizes, (ctypes.c_uint64 * len(words))(*words))
        problem = self._library.take_problem()
        assert not problem, f"{launch.kernel}: {problem.decode()}"


def _word(argument: torch.Tensor | int | float) -> int:
    if isinstance(argument, torch.Tensor):
        assert argument.is_contiguous()
        return argument.data_ptr()
    if isinstance(argument, int):
        return argument & 0xFFFFFFFF
    return int(struct.unpack("<I", struct.pack("<f", argument))[0])
