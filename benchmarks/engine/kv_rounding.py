"""What rounding the KV costs: logits of a real model in plain torch with its keys and values rounded.

    .venv/bin/python benchmarks/engine/kv_rounding.py MODEL.gguf [--tokens 400]

Needs no GPU. Every way of rounding is held against keys and values in bf16, over the same texts: Python, C++
and prose of this repository. Owns the ways and the table for docs/gpu-notes.md; the way that the GPU takes is
`vivace.engine.runners.cuda.kv.pool`.
"""

import argparse
from collections.abc import Callable
from pathlib import Path

import torch  # type: ignore[import-not-found,unused-ignore]

from vivace.engine.runners.cuda.decode.launches import rotation_table
from vivace.engine.runners.cuda.model import reference
from vivace.engine.runners.cuda.weights.checkpoint import read_checkpoint
from vivace.models.tokenizer import GgufTokenizer

ROOT = Path(__file__).parents[2]
KERNELS = ROOT / "src/vivace/engine/runners/cuda/kernels"
TEXTS = (ROOT / "src/vivace/engine/loop/engine.py", KERNELS / "product.cuh", ROOT / "README.md")
PAIRS = torch.arange(64).reshape(8, 8)
PAIRED = torch.cat([PAIRS, PAIRS + 64], dim=1).reshape(-1)  # 8 dimensions, then those that turn with them

Tensor = torch.Tensor


def to_bf16(rows: Tensor) -> Tensor:
    return rows.to(torch.bfloat16).float()


def integers(size: int, *, is_paired: bool = False) -> reference.RoundKV:
    """Return a rounding to signed 8-bit integers with a bf16 scale for every `size` dimensions."""

    def keep(rows: Tensor) -> Tensor:
        ordered = rows[..., PAIRED] if is_paired else rows
        groups = ordered.reshape(*rows.shape[:-1], -1, size)
        scale = to_bf16(groups.abs().amax(-1, keepdim=True) / 127).clamp(min=1e-30)
        found = to_bf16(torch.round(groups / scale).clamp(-127, 127) * scale).flatten(-2)
        return torch.empty_like(found).index_copy_(-1, PAIRED, found) if is_paired else found

    return keep


def floats(rows: Tensor) -> Tensor:
    """Round to 8-bit floats (e4m3) without a scale."""
    return rows.clamp(-448, 448).to(torch.float8_e4m3fn).float()


def scaled_floats(rows: Tensor) -> Tensor:
    """Round to 8-bit floats with one scale for each head."""
    scale = rows.abs().amax(-1, keepdim=True).clamp(min=1e-30) / 448
    return (rows / scale).to(torch.float8_e4m3fn).float() * scale


WAYS: dict[str, reference.RoundKV] = {
    "int8, a scale a head": integers(128),
    "int8, groups of 32": integers(32),
    "int8, groups of 16": integers(16),
    "int8, groups of 8 rotation pairs": integers(16, is_paired=True),
    "fp8 e4m3, no scale": floats,
    "fp8 e4m3, a scale a head": scaled_floats,
}


def compare(found: Tensor, wanted: Tensor) -> Tensor:
    """Return means: relative error of the logits, share of equal top tokens, KL divergence."""
    error = (found - wanted).norm(dim=1) / wanted.norm(dim=1)
    is_same = (found.argmax(1) == wanted.argmax(1)).float()
    truth = wanted.log_softmax(1)
    divergence = (truth.exp() * (truth - found.log_softmax(1))).sum(1)
    return torch.stack([error, is_same, divergence]).double().mean(1)


def run(model: Path, tokens: int, say: Callable[[str], None] = print) -> None:
    shape, weights = read_checkpoint(model)
    table = rotation_table(shape, tokens, "cpu", factors=weights.get("rope_freqs.weight"))
    words = GgufTokenizer(model)
    texts = [torch.tensor(words.encode(text.read_text())[:tokens]) for text in TEXTS]
    with torch.inference_mode():
        wanted = [reference.forward(shape, weights, text, table, to_bf16) for text in texts]
        say("| KV | relative error of the logits | same likeliest token | KL divergence |\n|---|---|---|---|")
        for name, keep in {"fp32": reference.unrounded, **WAYS}.items():
            found = torch.stack(
                [
                    compare(reference.forward(shape, weights, text, table, keep), truth)
                    for text, truth in zip(texts, wanted, strict=True)
                ]
            ).mean(0)
            error, same, divergence = found.tolist()
            say(f"| {name} | {error:.1e} | {same:.1%} | {divergence:.1e} |")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("model", type=Path)
    parser.add_argument("--tokens", type=int, default=400)
    options = parser.parse_args()
    run(options.model, options.tokens, lambda line: print(line, flush=True))
