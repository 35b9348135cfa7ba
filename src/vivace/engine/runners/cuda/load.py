"""Load a model's file into a runner: check, read, build, capture.

Owns the order, and the checks before anything large is read. The error messages for machines are in
`gpu_check`, those for files in `checkpoint`.
"""

import re
import subprocess
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from vivace.engine.runners.base import TellRead
from vivace.engine.runners.gpu_check import DetectGpu, check_gpu, check_memory, detect_gpu
from vivace.errors import StartError

if TYPE_CHECKING:
    from vivace.engine.runners.cuda.kernels.driver import Modules
    from vivace.engine.runners.cuda.model.shape import Shape
    from vivace.engine.runners.cuda.runner import CudaRunner
    from vivace.engine.runners.cuda.weights.pieces import Checkpoint

RESERVE_BYTES = 700 << 20  # torch's context, our buffers, a little air
WEIGHT_SHARE = 0.6  # of the memory, that weights with their copies may take: a quicker prefill is not all
KV_SHARE = 0.5  # of the memory that the weights leave
LEAST_CELLS, MOST_CELLS = 16_384, 524_288


@dataclass(frozen=True)
class GpuOptions:
    """How a model is to be loaded on the GPU."""

    context_tokens: int  # KV cells, shared by all sessions; 0: what is free decides (`with_cells`)
    session_tokens: int = 0  # the longest that one session may be; 0: what the model was trained for
    weight_bits: int = 8  # 8, 16 or 4
    kv_bits: int = 16  # 16 or 8
    folder: Path | None = None  # where compiled kernels are kept; None: nowhere
    prefill: str = ""  # "bf16", "fp8" or "packed"; empty: what goes with the weights and has room
    host_bytes: int = 1 << 30  # of host memory for saved KV

    @property
    def cells(self) -> int:
        """Return the KV cells, shared by all sessions; never fewer than one session may need."""
        return max(self.context_tokens, self.session_tokens)

    @property
    def prefill_format(self) -> str:
        return self.prefill or ("fp8" if self.weight_bits <= 8 else "bf16")


def open_runner(
    path: Path,
    options: GpuOptions,
    detect_gpu: DetectGpu = detect_gpu,
    tell: TellRead = lambda _read, _total: None,
) -> "CudaRunner":
    """Load the model on this machine's GPU. Raise `StartError` with the reason if that cannot be."""
    found = detect_gpu()
    check_gpu(found)
    import torch  # type: ignore[import-not-found,unused-ignore]

    from vivace.engine.runners.cuda.decode.plan import Plan
    from vivace.engine.runners.cuda.weights.checkpoint import open_checkpoint

    checkpoint = open_checkpoint(path)
    shape = checkpoint.shape
    bits = options.weight_bits
    check_options(path, shape, options)
    options = with_prefill(options, shape, found.free_bytes)
    needed = weight_bytes(shape, bits, options.prefill_format)
    options = with_cells(options, shape, found.free_bytes - needed)
    check_memory(
        found,
        weight_bytes=needed,
        kv_bytes=kv_bytes(shape, options.cells, options.session_tokens, options.kv_bits),
        shared_bytes=Plan(shape, bits, 1).shared_bytes,
    )
    try:
        return _load(path, checkpoint, options, tell)
    except torch.OutOfMemoryError as error:
        raise StartError(
            f"The {found.gpu} ran out of memory while {path.name} was loaded.",
            "Set a smaller gpu_context_tokens or kv_bits = 8 in config.toml, or end other programs there.",
        ) from error
    except subprocess.CalledProcessError as error:  # Triton compiles what starts its kernels
        raise StartError(
            f"The C compiler ({error.cmd[0]}) could not build what starts Triton's kernels.",
            "Install a C compiler and Python's headers (Debian: gcc, python3-dev).",
        ) from error
    except RuntimeError as error:  # CUDA's own troubles: the CPU engine must still be able to take over
        words = str(error).strip().splitlines() or ["it said nothing"]
        raise StartError(
            f"The {found.gpu} could not run {path.name}: {words[0]}.",
            'Please report this; until then set device to "cpu" in config.toml.',
        ) from error


def check_options(path: Path, shape: "Shape", options: GpuOptions) -> None:
    """Refuse formats that a family's kernels do not have."""
    if shape.oss and options.weight_bits == 16:
        raise StartError(
            f"{path.name} has its experts in MXFP4, which go with 8 or 4 bits of the other weights.",
            "Set weight_bits = 8 in config.toml.",
        )
    if shape.oss and options.kv_bits != 16:
        raise StartError(
            f"{path.name} has heads of {shape.head_width}, whose KV is in 16 bits.",
            "Set kv_bits = 16 in config.toml.",
        )


def weight_bytes(shape: "Shape", bits: int, prefill: str) -> int:
    """Return the bytes of all weights: packed, and as the prefill reads them."""
    from vivace.engine.runners.cuda.prefill.chunks import SIZES

    table = shape.vocab * shape.hidden
    layers = shape.parameters - 2 * table
    own = shape.expert_parameters if shape.oss else 0  # in MXFP4
    packed = own * 17 // 32 + ((layers - own) * 9 // 16 if bits == 4 else (layers - own) * bits // 8)
    tables = table * (4 if bits == 16 else 3)  # the embedding in bf16, and the head as it is packed
    inner = 0 if shape.experts else shape.layers * 3 * shape.ffn * shape.hidden
    copied = layers - shape.expert_parameters
    routers = 4 * shape.layers * shape.experts * shape.hidden
    rows = 2 * SIZES[-1] * shape.experts_per_token * (shape.expert_ffn + shape.hidden)  # of all experts
    copies = {"packed": 2 * layers // shape.layers, "bf16": 2 * copied, "fp8": 2 * copied - inner}
    return packed + tables + copies[prefill] + (routers + rows if shape.experts else 0) + RESERVE_BYTES


def with_prefill(options: GpuOptions, shape: "Shape", free_bytes: int) -> GpuOptions:
    """Return the options with a prefill out of the packed weights where nothing quicker has room."""
    if options.prefill or shape.experts:
        return options
    cells = options.cells or LEAST_CELLS
    kv = kv_bytes(shape, cells, options.session_tokens, options.kv_bits)
    left = min(free_bytes - kv, int(free_bytes * WEIGHT_SHARE))
    fits = weight_bytes(shape, options.weight_bits, options.prefill_format) <= left
    return options if fits else replace(options, prefill="packed")


def with_cells(options: GpuOptions, shape: "Shape", free_bytes: int) -> GpuOptions:
    """Return the options with a number of KV cells: what half of the bytes holds, where none was chosen."""
    from vivace.engine.runners.cuda.model.shape import PAGE_TOKENS

    if options.context_tokens:
        return options
    room = int(free_bytes * KV_SHARE) // shape.kv_bytes_per_token(options.kv_bits)
    cells = min(MOST_CELLS, max(LEAST_CELLS, room)) // PAGE_TOKENS * PAGE_TOKENS
    return replace(options, context_tokens=cells)


def kv_bytes(shape: "Shape", context_tokens: int, session_tokens: int, kv_bits: int) -> int:
    """Return the bytes of all pages; in 8 bits also those of one unpacked layer of the longest session."""
    pool = context_tokens * shape.kv_bytes_per_token(kv_bits)
    if kv_bits == 16:
        return pool
    longest = min(context_tokens, max(session_tokens, shape.trained_tokens))
    return pool + longest * shape.kv_bytes_per_token() // shape.layers


def _load(path: Path, checkpoint: "Checkpoint", options: GpuOptions, tell: TellRead) -> "CudaRunner":
    import torch

    from vivace.engine.runners.cuda.kernels.driver import Modules
    from vivace.engine.runners.cuda.model.vocabulary import read_vocabulary
    from vivace.engine.runners.cuda.runner import CudaRunner, prefill_class
    from vivace.engine.runners.cuda.weights.build import build_model, reading_order
    from vivace.engine.runners.cuda.weights.checkpoint import identity_of
    from vivace.engine.runners.cuda.weights.stream import WeightStream

    begun, shape = time.perf_counter(), checkpoint.shape
    bits, kv_bits, folder = options.weight_bits, options.kv_bits, options.folder
    vocabulary, identity = read_vocabulary(path, shape.vocab), identity_of(path)  # before what takes long
    blocks = torch.cuda.get_device_properties(0).multi_processor_count
    modules = Modules(folder / "kernels" if folder else None)
    compile_plans(modules, shape, bits, blocks, kv_bits)
    if folder:
        _delete_old_copies(folder)
    yarn_factor = max(1.0, options.session_tokens / shape.trained_tokens)
    limit = min(options.cells, round(shape.trained_tokens * yarn_factor))
    positions = -(-limit // 64) * 64
    keep = prefill_class(shape, options.prefill_format).keep
    with WeightStream(checkpoint, list(reading_order(shape)), "cuda", tell) as weights:
        model, dense = build_model(shape, weights, bits, "cuda", positions, yarn_factor, keep=keep)
    torch.cuda.empty_cache()  # what packing needed is free for the KV
    runner = CudaRunner(
        path.name if path.is_dir() else path.stem,
        model,
        dense,
        vocabulary,
        bits=bits,
        kv_bits=kv_bits,
        context_tokens=options.cells,
        identity=identity,
        yarn_factor=yarn_factor,
        make_launcher=modules.load,
        blocks=blocks,
        prefill=options.prefill_format,
        host_bytes=options.host_bytes,
    )
    runner.warm_up()
    runner.check_numbers()
    print(f"{path.name} is on the GPU after {time.perf_counter() - begun:.1f} s.", file=sys.stderr)
    return runner


def compile_plans(modules: "Modules", shape: "Shape", bits: int, blocks: int, kv_bits: int = 16) -> None:
    """Compile the kernels of all passes that a runner may have."""
    from vivace.engine.runners.cuda.decode.experts import expert_plan
    from vivace.engine.runners.cuda.decode.plan import Plan, fitting_passes
    from vivace.engine.runners.cuda.rows.passes import batch_plans

    sizes = fitting_passes(shape, bits)
    plans = [Plan(shape, bits, size, blocks, kv_bits=kv_bits) for size in sizes]
    modules.compile([*plans, *(plan.near for plan in plans if plan.near)])
    modules.compile(batch_plans(shape, bits, blocks, kv_bits))
    if shape.experts:
        several = (Plan(shape, bits, size, blocks, kv_bits=kv_bits) for size in sizes if size > 1)
        modules.compile(list({expert_plan(plan) for plan in several}))


def _delete_old_copies(folder: Path) -> None:
    """Delete what earlier versions kept of GGUF files: all weights in bf16, several gigabytes each."""
    for file in folder.glob("*.safetensors"):
        if re.fullmatch(r".+-[0-9a-f]+-[0-9a-f]+-v\d+", file.stem):
            file.unlink(missing_ok=True)
