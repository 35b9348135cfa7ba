"""A checkpoint read once and kept as bf16: the second load takes the time of reading a file.

Dequantising a GGUF is the slow part of a load (rounding to 8 bits and tiling take under a second on the
GPU), so it is the bf16 matrices that are kept. Owns the cached file and when it is valid; a half-written one
never gets the name, and a damaged one is made anew. A folder of safetensors is read where it lies: a copy
would be the same bytes, read by the same call. So is a GGUF with experts: in bf16 it would be 60 GB.
"""

import dataclasses
import json
import os
import re
from pathlib import Path

from vivace.engine.runners.cuda.model.reference import StateDict
from vivace.engine.runners.cuda.model.shape import Shape
from vivace.engine.runners.cuda.weights.checkpoint import describe, read_checkpoint
from vivace.models import folder

VERSION = 3


def read_through_cache(path: Path, cache: Path) -> tuple[Shape, StateDict]:
    """Return what `read_checkpoint` returns, from `cache` if it was read before."""
    if path.is_dir() or describe(path).experts:
        return read_checkpoint(path)
    from safetensors import SafetensorError, safe_open  # type: ignore[import-not-found,unused-ignore]
    from safetensors.torch import load_file, save_file  # type: ignore[import-not-found,unused-ignore]

    kept = cache / cache_name(path)
    if kept.exists():
        try:
            with safe_open(str(kept), "pt") as file:
                shape = Shape(**json.loads(file.metadata()["shape"]))
            return shape, StateDict(load_file(str(kept)))
        except (SafetensorError, KeyError, TypeError, ValueError):
            kept.unlink()  # made by another version, or damaged
    shape, weights = read_checkpoint(path)
    cache.mkdir(parents=True, exist_ok=True)
    part = kept.with_suffix(f".{os.getpid()}.part")
    save_file(dict(weights), str(part), metadata={"shape": json.dumps(dataclasses.asdict(shape))})
    part.replace(kept)
    _delete_stale(cache, path, kept)
    return shape, weights


def _delete_stale(cache: Path, path: Path, kept: Path) -> None:
    """Delete what was made of earlier versions of the same file: several gigabytes each."""
    ours = re.compile(rf"{re.escape(path.stem)}-[0-9a-f]+-[0-9a-f]+-v\d+\.safetensors")
    for file in cache.iterdir():
        if file != kept and ours.fullmatch(file.name):
            file.unlink(missing_ok=True)


def identity_of(path: Path) -> str:
    """Return a string that changes with the model's weights. Saved KV belongs to it."""
    if path.is_dir():
        return folder.identity(path)
    stat = path.stat()
    return f"{stat.st_size} {stat.st_mtime_ns}"


def cache_name(path: Path) -> str:
    """Return a name that changes with the file's name, size, time and the version of this reader."""
    stat = path.stat()
    return f"{path.stem}-{stat.st_size:x}-{stat.st_mtime_ns:x}-v{VERSION}.safetensors"
