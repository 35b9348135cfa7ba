"""Compile CUDA C++ with NVRTC and launch it with the driver, both through ctypes: no nvcc is needed.

Owns modules, functions and the launch attributes that torch does not offer: clusters, and the overlap of
a kernel's beginning with the end of the one before it. Runs in torch's context and on torch's current
stream.
"""

import ctypes
import functools
import hashlib
import os
import sys
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from importlib import resources
from pathlib import Path

import torch  # type: ignore[import-not-found,unused-ignore]

from vivace.engine.runners.cuda.decode.expert_groups import GROUP_KERNELS, is_for_groups
from vivace.engine.runners.cuda.decode.experts import EXPERT_KERNELS, expert_macros
from vivace.engine.runners.cuda.decode.launch import Argument, Launch, Tiles
from vivace.engine.runners.cuda.decode.plan import Plan, Size
from vivace.errors import StartError

PARTS = (
    *("common", "kv", "heads", "ring", "int4", "mxfp4", "product", "projections"),
    *("experts", "expert_groups", "block", "attention", "row_attention", "draft_attention"),
    *("cluster_attention", "feed", "head", "wide"),
)
PREFILL_PARTS = ("prefill", "prompt_attention", "prompt_feed", "widen")
DECODE_KERNELS = ("embed", "qkv", "attention", "out_projection", "head", "choose")
DRAFT_KERNELS = ("draft_attention", "merge_ranks")
FEED_FORWARD_KERNELS = ("gate_up", "down_projection")
NEAR_KERNELS = ("embed", "cluster_attention", "feed", "head", "choose")
PREFILL_KERNELS = (
    *("read_tokens", "add_norm", "silu_product", "place", "keep_tail", "widen"),
    *("add_norm_fp8", "silu_product_fp8", "to_fp8", "prompt_gate_up", "prompt_attention"),
    "short_prompt_attention",
)
KV8_KERNELS = ("unpack_pages",)
WIDE_KERNELS = (
    *("embed", "add_and_norm", "place_rows", "attention", "stage_parts_of_rows"),
    *("silu_digits", "pick", "choose"),
)
_SHARED_BYTES_ATTRIBUTE, _CARVEOUT_ATTRIBUTE, _CLUSTER_ATTRIBUTE = 8, 9, 14
_CLUSTER_DIMENSION, _OVERLAP = 4, 6
_BYTES, _BF16, _TURNED_128_BYTES, _READ_AHEAD_128_BYTES = 0, 9, 3, 2  # of a description of tiles


def kernels(plan: Plan) -> tuple[str, ...]:
    """Return the kernels of a plan's module. Those of prefill are in the module for one token."""
    if plan.is_clustered:
        return NEAR_KERNELS
    draft = DRAFT_KERNELS if plan.draft_tiles else ()
    if plan.is_wide:
        return WIDE_KERNELS + draft
    decode = DECODE_KERNELS + draft + (() if plan.shape.experts else FEED_FORWARD_KERNELS)
    if is_for_groups(plan):
        return ("router", *GROUP_KERNELS)
    if plan.tokens > 1:
        return decode
    if plan.shape.experts:
        decode += EXPERT_KERNELS
    return decode + PREFILL_KERNELS + (KV8_KERNELS if plan.kv_bits == 8 else ())


def source(plan: Plan, intrinsics: str | None = None) -> str:
    """Return all kernels of a plan as one source. `intrinsics` replaces those of the GPU."""
    folder = resources.files("vivace.engine.runners.cuda.kernels")
    parts = [*PARTS, *PREFILL_PARTS] if plan.tokens == 1 and not plan.is_clustered else PARTS
    texts = [(folder / f"{name}.cuh").read_text() for name in parts]
    first = intrinsics if intrinsics is not None else (folder / "intrinsics.cuh").read_text()
    defines = "".join(
        f"#define {name} {value}\n" for name, value in (plan.macros() | expert_macros(plan)).items()
    )
    return defines + first + "".join(texts)


@functools.lru_cache(maxsize=64)
def compile_source(text: str, architecture: str) -> bytes:
    """Compile to machine code for `architecture` (such as sm_90)."""
    nvrtc = _load_nvrtc()
    program = ctypes.c_void_p()
    options = [f"--gpu-architecture={architecture}".encode(), b"--std=c++17"]
    nvrtc.nvrtcCreateProgram(ctypes.byref(program), text.encode(), b"vivace.cu", 0, None, None)
    status = nvrtc.nvrtcCompileProgram(program, len(options), (ctypes.c_char_p * len(options))(*options))
    if status:
        raise StartError(f"The GPU kernels did not compile: {_compile_log(nvrtc, program)}")
    size = ctypes.c_size_t()
    nvrtc.nvrtcGetCUBINSize(program, ctypes.byref(size))
    code = ctypes.create_string_buffer(size.value)
    nvrtc.nvrtcGetCUBIN(program, code)
    nvrtc.nvrtcDestroyProgram(ctypes.byref(program))
    return code.raw


def has_team_products() -> bool:
    """Return whether four warps can multiply together: on Hopper, and on no GPU before or after it."""
    return torch.cuda.is_available() and torch.cuda.get_device_capability() == (9, 0)


def architecture() -> str:
    major, minor = torch.cuda.get_device_capability()
    return "sm_90a" if has_team_products() else f"sm_{major}{minor}"


class Modules:
    """Compile the modules of several plans in parallel, or read them from `folder` if they are there."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._threads = ThreadPoolExecutor(8, thread_name_prefix="nvrtc")
        self._images: dict[Plan, Future[bytes]] = {}

    def compile(self, plans: Sequence[Plan]) -> None:
        target = architecture()
        for plan in plans:
            self._images[plan] = self._threads.submit(self._image, source(plan), target)

    def load(self, plan: Plan) -> "Module":
        image = self._images.pop(plan).result() if plan in self._images else b""
        return Module(plan, image=image)

    def _image(self, text: str, target: str) -> bytes:
        if self._folder is None:
            return compile_source(text, target)
        file = self._folder / f"{hashlib.sha256(text.encode()).hexdigest()[:32]}.{target}"
        if file.exists():
            return file.read_bytes()
        code = compile_source(text, target)
        self._folder.mkdir(parents=True, exist_ok=True)
        part = file.with_suffix(f".{os.getpid()}.part")
        part.write_bytes(code)
        part.replace(file)
        return code


def _compile_log(nvrtc: ctypes.CDLL, program: ctypes.c_void_p) -> str:
    size = ctypes.c_size_t()
    nvrtc.nvrtcGetProgramLogSize(program, ctypes.byref(size))
    text = ctypes.create_string_buffer(size.value)
    nvrtc.nvrtcGetProgramLog(program, text)
    return text.value.decode(errors="replace")


def _load_nvrtc() -> ctypes.CDLL:
    """Load the NVRTC that came with torch, or the system's."""
    folders = [Path(entry) / "nvidia" for entry in sys.path]
    found = [str(p) for folder in folders for p in sorted(folder.glob("*/lib/libnvrtc.so.*"))]
    for name in (*found, "libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"):
        try:
            for builtins in sorted(Path(name).parent.glob("libnvrtc-builtins.so.*")) if "/" in name else []:
                ctypes.CDLL(str(builtins))  # NVRTC asks for it by its bare name
            return ctypes.CDLL(name)
        except OSError:
            continue
    raise StartError("NVRTC, CUDA's run-time compiler, was not found.", "Install PyTorch with CUDA.")


class _LaunchAttribute(ctypes.Structure):
    _fields_ = [("id", ctypes.c_int), ("pad", ctypes.c_char * 4), ("value", ctypes.c_uint * 16)]


class _LaunchConfig(ctypes.Structure):
    _fields_ = [
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared_bytes", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.POINTER(_LaunchAttribute)),
        ("attribute_count", ctypes.c_uint),
    ]


class _TileMap(ctypes.Structure):
    _fields_ = [("words", ctypes.c_uint64 * 16)]


class Module:
    """The compiled kernels of one plan, on the current device."""

    def __init__(self, plan: Plan, *, overlap: bool = True, image: bytes = b"") -> None:
        torch.cuda.current_stream().synchronize()  # torch's context exists and is current from here on
        self._driver = ctypes.CDLL("libcuda.so.1")
        self._plan, self._overlap = plan, overlap
        self._image = image or compile_source(source(plan), architecture())
        self._module = ctypes.c_void_p()
        self._check(self._driver.cuModuleLoadData(ctypes.byref(self._module), self._image), "load")
        self._functions = {name: self._function(name) for name in kernels(plan)}
        self._sizes_set: set[tuple[str, Size]] = set()
        self._shared_bytes: dict[str, int] = {}  # that a kernel may take, by name

    def _check(self, status: int, what: str) -> None:
        if status:
            text = ctypes.c_char_p()
            self._driver.cuGetErrorString(status, ctypes.byref(text))
            raise StartError(f"CUDA could not {what}: {(text.value or b'?').decode()} ({status})")

    def _function(self, name: str) -> ctypes.c_void_p:
        function = ctypes.c_void_p()
        self._check(
            self._driver.cuModuleGetFunction(ctypes.byref(function), self._module, name.encode()),
            f"find {name}",
        )
        return function

    def registers(self) -> dict[str, tuple[int, int]]:
        """Return registers and spilled bytes per thread of each kernel."""
        out = {}
        for name, function in self._functions.items():
            pair = []
            for attribute in (4, 3):
                value = ctypes.c_int()
                self._driver.cuFuncGetAttribute(ctypes.byref(value), attribute, function)
                pair.append(value.value)
            out[name] = (pair[0], pair[1])
        return out

    def run(self, launch: Launch) -> None:
        """Put one launch on torch's current stream, or into the graph that it is capturing."""
        name, size, arguments, overlaps = launch
        function = self._functions[name]
        if (name, size) not in self._sizes_set:
            self._allow(name, function, size)
            self._sizes_set.add((name, size))
        attributes = (_LaunchAttribute * 2)()
        count = 0
        if size.cluster > 1:
            attributes[0].id = _CLUSTER_DIMENSION
            attributes[0].value[0], attributes[0].value[1], attributes[0].value[2] = size.cluster, 1, 1
            count = 1
        if self._overlap and overlaps:
            attributes[count].id = _OVERLAP
            attributes[count].value[0] = 1
            count += 1
        config = _LaunchConfig(
            size.grid, (size.threads, 1, 1), size.shared_bytes, torch.cuda.current_stream().cuda_stream,
            attributes, count,
        )  # fmt: skip
        values = [self._as_c(argument) for argument in arguments]
        pointers = (ctypes.c_void_p * len(values))(*(ctypes.addressof(value) for value in values))
        self._check(
            self._driver.cuLaunchKernelEx(ctypes.byref(config), function, pointers, None), f"launch {name}"
        )

    def _allow(self, name: str, function: ctypes.c_void_p, size: Size) -> None:
        set_attribute = self._driver.cuFuncSetAttribute
        if self._plan.tuned.takes_all_shared:
            self._check(set_attribute(function, _CARVEOUT_ATTRIBUTE, 100), "divide the cache")
        if size.shared_bytes > max(48 * 1024, self._shared_bytes.get(name, 0)):  # a limit: it only grows
            self._check(
                set_attribute(function, _SHARED_BYTES_ATTRIBUTE, size.shared_bytes), "take shared memory"
            )
            self._shared_bytes[name] = size.shared_bytes
        if size.cluster > 8:
            self._check(set_attribute(function, _CLUSTER_ATTRIBUTE, 1), "use large clusters")

    def _as_c(self, argument: Argument) -> "ctypes.c_void_p | ctypes.c_int | ctypes.c_float | _TileMap":
        if isinstance(argument, torch.Tensor):
            return ctypes.c_void_p(argument.data_ptr())
        if isinstance(argument, Tiles):
            return self._tile_map(argument)
        return ctypes.c_int(argument) if isinstance(argument, int) else ctypes.c_float(argument)

    def _tile_map(self, tiles: Tiles) -> _TileMap:
        """Describe rows, to be read some rows and 128 bytes of each at a time."""
        assert tiles.rows.is_contiguous()
        rows, columns = tiles.rows.numel() // tiles.rows.shape[-1], tiles.rows.shape[-1]
        bytes_each = tiles.rows.itemsize
        kind = {2: _BF16, 1: _BYTES}[bytes_each]
        extent = (ctypes.c_uint64 * 2)(columns, rows)
        pitch = (ctypes.c_uint64 * 1)(columns * bytes_each)
        tile, every = (ctypes.c_uint * 2)(128 // bytes_each, tiles.at_once), (ctypes.c_uint * 2)(1, 1)
        memory = (ctypes.c_uint64 * 24)()
        tile_map = _TileMap.from_buffer(memory, -ctypes.addressof(memory) % 64)
        status = self._driver.cuTensorMapEncodeTiled(
            *(ctypes.byref(tile_map), kind, 2, ctypes.c_void_p(tiles.rows.data_ptr())),
            *(extent, pitch, tile, every, 0, _TURNED_128_BYTES, _READ_AHEAD_128_BYTES, 0),
        )
        self._check(status, "describe rows")
        return tile_map
