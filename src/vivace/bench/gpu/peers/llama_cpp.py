"""llama.cpp on the GPU, through our runner, where it is built for CUDA. Owns how it is measured."""

import tempfile
import time
from pathlib import Path
from typing import Any

from vivace.bench.gpu.peers.asking import CONTEXT, DECODED, median_figures
from vivace.engine.runners.base import Span
from vivace.engine.runners.cuda.model.shape import KNOWN_SHAPES
from vivace.errors import StartError

LLAMA_EXTRA = "`vivace extras add cuda --llama-cpp`"


def measure_llama_cpp(asked: dict[str, Any]) -> dict[str, Any]:
    """Measure llama.cpp with the downloaded file, or with random weights: all layers on the GPU.

    As its own benchmark does: tokens are read and nobody chooses the next one.
    """
    import llama_cpp

    from vivace.config import load_settings
    from vivace.engine.devices.backend_files import find_built
    from vivace.engine.runners.ggml import find_device, load_library
    from vivace.engine.runners.llamacpp import BATCH_TOKENS, LlamaGpu, LlamaRunner

    if built := find_built(load_settings().cache_dir).get("cuda"):
        load_library(Path(built.library))
    try:
        device = find_device("cuda")
    except StartError as error:
        raise SystemExit(f"llama.cpp is not built for CUDA: {LLAMA_EXTRA}") from error
    with tempfile.TemporaryDirectory() as scratch:
        random = asked.get("shape")
        file = _write_random(random, scratch) if random else Path(asked["checkpoint"])
        gpu = LlamaGpu(device, "cuda", "cuda:0", context_tokens=4096)
        runner = LlamaRunner(file, context_tokens=4096, threads=1, gpu=gpu)
    tokens = asked["tokens"]

    def once() -> tuple[float, float]:
        """Return milliseconds to the first token, and of one later token."""
        runner.trim(0, 0)
        begun = time.perf_counter()
        for at in range(0, CONTEXT, BATCH_TOKENS):
            part = tokens[at : at + BATCH_TOKENS]
            runner.forward([Span(0, at, part, want=int(at + BATCH_TOKENS >= CONTEXT))])
        first = time.perf_counter()
        for number in range(DECODED):
            runner.forward([Span(0, CONTEXT + number, [tokens[number]], want=1)])
        return (first - begun) * 1e3, (time.perf_counter() - first) * 1e3 / DECODED

    return median_figures(once) | {"version": llama_cpp.__version__, "format": file.stem}


def _write_random(name: str, folder: str) -> Path:
    """Write a file of random weights, called after its format."""
    from vivace.bench.gpu.random_gguf import MIXES, write_gguf

    mix = "MXFP4" if KNOWN_SHAPES[name].oss else "Q4_K_M"
    path = Path(folder) / f"{mix}.gguf"
    write_gguf(path, KNOWN_SHAPES[name], MIXES[mix])
    return path
