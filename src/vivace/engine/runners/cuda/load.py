"""From a model's file to a runner that is ready: check, read, build, capture.

Owns the order, and what is asked of the machine before anything large is read. `choose` has the sentences for
machines that cannot; `checkpoint` those for files.
"""

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from vivace.engine.runners import choose
from vivace.errors import StartError

if TYPE_CHECKING:
    from vivace.engine.runners.cuda.runner import CudaRunner
    from vivace.engine.runners.cuda.shape import Shape

RESERVE_BYTES = 700 << 20  # torch's context, our buffers, a little air


def open_runner(
    path: Path,
    *,
    context_tokens: int,
    session_tokens: int = 0,
    bits: int = 8,
    folder: Path | None = None,  # where what was converted is kept; None: nowhere
    prefill: str = "graph",
    look: choose.Look = choose.look,
) -> "CudaRunner":
    """The model on this machine's GPU; `StartError` with the reason if that cannot be."""
    found = look()
    choose.check_machine(found)
    import torch  # type: ignore[import-not-found,unused-ignore]

    from vivace.engine.runners.cuda.checkpoint import describe
    from vivace.engine.runners.cuda.plan import Plan

    shape = describe(path)
    context_tokens = max(context_tokens, session_tokens)
    choose.check_room(
        found,
        weight_bytes=shape.parameters * (2 + bits // 8) + RESERVE_BYTES,
        kv_bytes=context_tokens * shape.kv_bytes_per_token,
        shared_bytes=Plan(shape, bits, 1).shared_bytes,
    )
    try:
        return _load(path, shape, context_tokens, session_tokens, bits, folder, prefill)
    except torch.OutOfMemoryError as error:
        raise StartError(
            f"The {found.gpu} ran out of memory while {path.name} was loaded.",
            "Set a smaller context_tokens in config.toml, or end other programs on the GPU.",
        ) from error
    except RuntimeError as error:  # CUDA's own troubles: the CPU engine must still be able to take over
        words = str(error).strip().splitlines() or ["it said nothing"]
        raise StartError(
            f"The {found.gpu} could not run {path.name}: {words[0]}.",
            'Please report this; until then set device to "cpu" in config.toml.',
        ) from error


def _load(
    path: Path,
    shape: "Shape",
    context_tokens: int,
    session_tokens: int,
    bits: int,
    folder: Path | None,
    prefill: str,
) -> "CudaRunner":
    import torch

    from vivace.engine.runners.cuda.cache import read_through_cache
    from vivace.engine.runners.cuda.checkpoint import read_checkpoint
    from vivace.engine.runners.cuda.driver import Modules
    from vivace.engine.runners.cuda.gguf_file import GgufFile
    from vivace.engine.runners.cuda.plan import Plan, fitting_passes
    from vivace.engine.runners.cuda.runner import CudaRunner
    from vivace.engine.runners.cuda.weights import build_model
    from vivace.engine.runners.cuda.words import Words

    begun = time.perf_counter()
    blocks = torch.cuda.get_device_properties(0).multi_processor_count
    modules = Modules(folder / "kernels" if folder else None)
    modules.begin([Plan(shape, bits, size, blocks) for size in fitting_passes(shape, bits)])
    shape, weights = read_through_cache(path, folder) if folder else read_checkpoint(path)
    stretch = max(1.0, session_tokens / shape.trained_tokens)
    limit = min(context_tokens, round(shape.trained_tokens * stretch))
    positions = -(-limit // 64) * 64
    model, dense = build_model(shape, weights, bits, "cuda", positions, stretch)
    del weights
    file = GgufFile(path)
    facts = path.stat()
    runner = CudaRunner(
        path.stem,
        model,
        dense,
        Words(file.fields, path.name),
        bits=bits,
        context_tokens=context_tokens,
        identity=f"{facts.st_size} {facts.st_mtime_ns}",
        stretch=stretch,
        make_machine=modules.take,
        blocks=blocks,
        prefill=prefill,
    )
    file.close()
    runner.warm_up()
    print(f"{path.name} is on the GPU after {time.perf_counter() - begun:.1f} s.", file=sys.stderr)
    return runner
