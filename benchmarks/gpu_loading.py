"""How long a large model takes from page cache to the GPU, and which part of the way takes it.

    gpu_loading.py                                  8 GB of Qwen3-Coder-30B-A3B in Q4_K_M, packed in 4 bits
    gpu_loading.py --gb 20 --bits 4,8               the whole model, twice
    gpu_loading.py --kind Q8_0 --shape qwen2.5-coder-14b
    gpu_loading.py --folder                         bf16 in safetensors in place of a GGUF
    gpu_loading.py --device cpu --gb 1              without a GPU: reading and unpacking on the host

Writes a file of random blocks with as many layers of the true shape as `--gb` holds, each the same bytes, and
then measures, seconds and GB/s of the file each time:

read      everything into memory of the host that was not used before, with 1 thread and with all
copy      everything through pinned memory to the device, and nothing else
unpack    the same, and blocks become bf16 there
load      all of it: the packed model is built, with 1 thread and with all; not on a CPU, which takes minutes

Needs torch (for a folder, safetensors); no gguf. Nothing new is begun after `--limit-s`. The file is removed.
"""

import argparse
import contextlib
import json
import os
import shutil
import struct
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent / "src"))

import torch  # type: ignore[import-not-found,unused-ignore]

from vivace.bench.gpu.random_gguf import ALIGNMENT, MIXES, NUMBERS, tensors_of, write_gguf, write_tensors
from vivace.engine.runners.cuda.model.shape import HEAD_DIM, KNOWN_SHAPES, Shape
from vivace.engine.runners.cuda.runner import prefill_class
from vivace.engine.runners.cuda.weights.blocks import KINDS
from vivace.engine.runners.cuda.weights.build import build_model, reading_order
from vivace.engine.runners.cuda.weights.checkpoint import open_checkpoint
from vivace.engine.runners.cuda.weights.pieces import Checkpoint
from vivace.engine.runners.cuda.weights.stream import READERS, WeightStream

MUST_S = 10.0  # for 20 GB


def write_folder(folder: Path, shape: Shape) -> None:
    """Write a folder of that shape with random bf16 numbers: a file for every four layers."""
    from vivace.engine.runners.cuda.weights.safetensors_folder import _wanted_sizes

    names = {f"model.{n}" if n != "lm_head.weight" else n: size for n, size in _wanted_sizes(shape).items()}
    parts: dict[int, dict[str, tuple[int, ...]]] = {}
    for name, size in names.items():
        words = name.split(".")
        parts.setdefault(int(words[2]) // 4 if words[1] == "layers" else 1000, {})[name] = size
    where: dict[str, str] = {}
    for number, (_, part) in enumerate(sorted(parts.items()), 1):
        file = f"model-{number:05}-of-{len(parts):05}.safetensors"
        where |= dict.fromkeys(part, file)
        header, at, sizes = dict[str, Any](), 0, list[tuple[str, int]]()
        for name, size in part.items():
            count = 2 * int(torch.Size(size).numel())
            header[name] = {"dtype": "BF16", "shape": size, "data_offsets": [at, at + count]}
            at += count
            sizes.append(("BF16", count))
        text = json.dumps(header).encode()
        text += b" " * (-len(text) % ALIGNMENT)
        with (folder / file).open("wb") as opened:
            opened.write(struct.pack("<Q", len(text)) + text)
            write_tensors(opened, sizes)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": where}))
    family = "qwen3_moe" if shape.experts else "qwen3" if shape.qk_norm else "qwen2"
    config = {
        "model_type": family, "num_hidden_layers": shape.layers, "hidden_size": shape.hidden,
        "intermediate_size": shape.ffn, "num_attention_heads": shape.heads, "head_dim": HEAD_DIM,
        "num_key_value_heads": shape.kv_heads, "max_position_embeddings": shape.trained_tokens,
        "vocab_size": shape.vocab, "rope_theta": shape.rope_theta, "rms_norm_eps": shape.norm_epsilon,
        "tie_word_embeddings": shape.tied_head, "num_experts": shape.experts,
        "num_experts_per_tok": shape.experts_per_token, "moe_intermediate_size": shape.expert_ffn,
        "norm_topk_prob": True,
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config))


def cut_to(shape: Shape, gb: float, size_of: Callable[[Shape], int]) -> Shape:
    """Return the shape with as many layers as that many gigabytes hold, and not more than it has."""
    one, two = (size_of(replace(shape, layers=count)) for count in (1, 2))
    layers = 1 + int((gb * 1e9 - one) / (two - one))
    return replace(shape, layers=max(1, min(layers, shape.layers)))


def read_only(checkpoint: Checkpoint, readers: int) -> None:
    """Read everything to the host and use nothing: what disks and page cache give."""
    with WeightStream(checkpoint, list(reading_order(checkpoint.shape)), "cpu", readers=readers) as stream:
        _drain(stream)


def copy_only(checkpoint: Checkpoint, device: str, readers: int) -> None:
    with WeightStream(checkpoint, list(reading_order(checkpoint.shape)), device, readers=readers) as stream:
        _drain(stream)


def _drain(stream: WeightStream) -> None:
    with contextlib.suppress(AssertionError):  # behind the last batch
        while True:
            stream._advance()


def unpack_only(checkpoint: Checkpoint, device: str, readers: int) -> None:
    order = [name for name in reading_order(checkpoint.shape) if name in checkpoint.pieces]
    with WeightStream(checkpoint, order, device, readers=readers) as stream:
        runs: list[list[str]] = []
        for name in order:
            if runs and checkpoint.pieces[runs[-1][-1]].is_continued_by(checkpoint.pieces[name]):
                runs[-1].append(name)
            else:
                runs.append([name])
        for run in runs:
            stream.rows(*run)


def load(checkpoint: Checkpoint, device: str, readers: int, bits: int) -> None:
    order = list(reading_order(checkpoint.shape))
    keep = prefill_class(checkpoint.shape, "packed").keep
    with WeightStream(checkpoint, order, device, readers=readers) as stream:
        build_model(checkpoint.shape, stream, bits, device, 4096, keep=keep)


def measure(what: str, work: Callable[[], None], size: int, until: float) -> dict[str, Any] | None:
    """Print and return how long it took."""
    if time.monotonic() > until:
        return None
    is_cuda = torch.cuda.is_available()
    begun = time.perf_counter()
    work()
    if is_cuda:
        torch.cuda.synchronize()
    spent = time.perf_counter() - begun
    peak = torch.cuda.max_memory_allocated() >> 20 if is_cuda else 0
    if is_cuda:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    rate = size / 1e9 / spent
    print(f"{what:28} {spent:7.2f} s {rate:7.2f} GB/s   peak {peak} MiB on the device", flush=True)
    return {"what": what, "seconds": round(spent, 3), "gb_per_s": round(rate, 2), "peak_mib": peak}


def make(options: argparse.Namespace, scratch: Path) -> Path:
    shape = KNOWN_SHAPES[options.shape]
    begun = time.perf_counter()
    if options.folder:
        shape = cut_to(shape, options.gb, lambda one: 2 * one.parameters)
        path = scratch / "model"
        path.mkdir()
        write_folder(path, shape)
    else:
        kinds = MIXES[options.kind]

        def size_of(one: Shape) -> int:
            sizes = (
                (KINDS[NUMBERS[kind]], torch.Size(size).numel()) for _, size, kind in tensors_of(one, kinds)
            )
            return sum(kind.bytes_of(count) for kind, count in sizes)

        shape = cut_to(replace(shape, tied_head=False), options.gb, size_of)
        path = scratch / "model.gguf"
        write_gguf(path, shape, kinds)
    print(
        f"{options.shape}, {shape.layers} layers, written in {time.perf_counter() - begun:.1f} s", flush=True
    )
    return path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--gb", type=float, default=8.0)
    parser.add_argument("--shape", choices=KNOWN_SHAPES, default="qwen3-coder-30b-a3b")
    parser.add_argument("--kind", choices=MIXES, default="Q4_K_M")
    parser.add_argument("--folder", action="store_true", help="bf16 in safetensors")
    parser.add_argument("--bits", default="4")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--scratch", type=Path, default=Path("/dev/shm"), help="where the file is written")
    parser.add_argument("--limit-s", type=float, default=200.0)
    parser.add_argument("--json", type=Path, help="where the figures go, too")
    options = parser.parse_args()
    until = time.monotonic() + options.limit_s
    scratch = Path(tempfile.mkdtemp(prefix="vivace-loading-", dir=options.scratch))
    try:
        path = make(options, scratch)
        checkpoint = open_checkpoint(path)
        size = sum(piece.size for piece in checkpoint.pieces.values())
        print(f"{size / 1e9:.1f} GB, {os.cpu_count()} cores; must: 20 GB in {MUST_S:.0f} s", flush=True)
        device, found = options.device, []
        for readers in (1, READERS):
            one = f"{readers} thread{'s' if readers > 1 else ''}"
            found.append(measure(f"read, {one}", lambda n=readers: read_only(checkpoint, n), size, until))  # type: ignore[misc]
        found.append(measure("copy", lambda: copy_only(checkpoint, device, READERS), size, until))
        found.append(measure("unpack", lambda: unpack_only(checkpoint, device, READERS), size, until))
        for bits in map(int, options.bits.split(",")) if device != "cpu" else ():
            for readers in (READERS, 1):
                what = f"load, {bits} bits, {readers} thread{'s' if readers > 1 else ''}"
                work = lambda b=bits, n=readers: load(checkpoint, device, n, b)  # noqa: E731
                found.append(measure(what, work, size, until))
        if options.json:
            told = {
                "gb": size / 1e9,
                "shape": options.shape,
                "device": device,
                "found": [f for f in found if f],
            }
            options.json.write_text(json.dumps(told, indent=2))
    finally:
        shutil.rmtree(scratch)


if __name__ == "__main__":
    main()
