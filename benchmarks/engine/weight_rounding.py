"""What rounding the weights to 4 bits costs: logits of a real model in plain torch, its projections rounded.

    .venv/bin/python benchmarks/engine/weight_rounding.py MODEL [--tokens 400]

Needs no GPU. Every way of rounding is held against the same weights in bf16, over the texts of
benchmarks/engine/kv_rounding.py; embedding and head stay as they are. Owns the ways and the table for
docs/gpu-notes.md; the way that the GPU takes is `vivace.engine.runners.cuda.weights.int4`. A file that is in
4 bits already favours the ways that can hold its own groups: read the table with that in mind.
"""

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path

import torch  # type: ignore[import-not-found,unused-ignore]

from kv_rounding import TEXTS, Tensor, compare
from vivace.engine.runners.cuda.decode.launches import rotation_table
from vivace.engine.runners.cuda.model import reference
from vivace.engine.runners.cuda.model.reference import StateDict
from vivace.engine.runners.cuda.weights.checkpoint import read_checkpoint
from vivace.engine.runners.cuda.weights.int4 import SPANS, round_to_int4, widen
from vivace.models.tokenizer import GgufTokenizer

Way = Callable[[Tensor], Tensor]
LEVELS = 15  # steps between the least and the largest of 4 bits


def as_it_is(weight: Tensor) -> Tensor:
    return weight


def a_row(weight: Tensor) -> Tensor:
    """Round to 8-bit integers with one scale for each row, as weight_bits = 8 does."""
    scale = weight.abs().amax(1, keepdim=True).clamp(min=1e-12) / 127
    return torch.round(weight / scale) * scale


def symmetric(size: int) -> Way:
    """Return a rounding with one step for each group, whose largest number is -8 steps."""

    def rounded(weight: Tensor) -> Tensor:
        groups = weight.reshape(-1, size)
        most = groups.gather(1, groups.abs().argmax(1, keepdim=True))
        step = _short(-most / 8, weight)
        safe = torch.where(step == 0, 1.0, step)
        return (torch.round(groups / safe).clamp(-8, 7) * step).reshape(weight.shape)

    return rounded


def with_least(size: int, spans: Sequence[int] = (LEVELS,)) -> Way:
    """Return a rounding with a step and a minimum for each group; the step is the best of a few."""

    def rounded(weight: Tensor) -> Tensor:
        groups = weight.reshape(-1, size)
        low, high = groups.amin(1, keepdim=True), groups.amax(1, keepdim=True)
        least, best, error = _short(low, weight), groups, torch.full_like(low, torch.inf)
        for span in spans:
            step = _short((high - least) / span, weight)
            safe = torch.where(step == 0, 1.0, step)
            found = torch.round((groups - least) / safe).clamp(0, LEVELS) * step + least
            off = (found - groups).square().sum(1, keepdim=True)
            best, error = torch.where(off < error, found, best), torch.minimum(off, error)
        return best.reshape(weight.shape)

    return rounded


def in_bytes(weight: Tensor) -> Tensor:
    """Round as weight_bits = 4 does."""
    return widen(round_to_int4(weight))


def _short(numbers: Tensor, weight: Tensor) -> Tensor:
    """Round to fp16 in the unit of a row."""
    rows = numbers.reshape(len(weight), -1)
    unit = weight.abs().amax(1, keepdim=True).clamp(min=1e-12)
    return ((rows / unit).half().float() * unit).reshape(numbers.shape)


WAYS: dict[str, Way] = {
    "8 bits, a scale a row": a_row,
    "4 bits, groups of 32, a step": symmetric(32),
    "4 bits, groups of 64, a step": symmetric(64),
    "4 bits, groups of 32, step and least": with_least(32),
    "4 bits, groups of 64, step and least": with_least(64),
    "4 bits, groups of 32, best of six steps, and least": with_least(32, SPANS),
    "4 bits, groups of 32, best of six steps, and zero: a byte each": in_bytes,
}


def run(model: Path, tokens: int, say: Callable[[str], None] = print) -> None:
    shape, weights = read_checkpoint(model)
    table = rotation_table(shape, tokens, "cpu", factors=weights.get("rope_freqs.weight"))
    words = GgufTokenizer(model)
    texts = [torch.tensor(words.encode(text.read_text())[:tokens]) for text in TEXTS]
    ways = {"bf16": as_it_is, **WAYS}
    with torch.inference_mode():
        inner = {name: [weights["embed_tokens.weight"][text].float() for text in texts] for name in ways}
        for index in range(shape.layers):
            at = f"layers.{index}."
            for name, way in ways.items():
                layer = _rounded_layer(weights, at, way)
                inner[name] = [
                    reference.decoder_layer(shape, layer, index, x, table[: len(x)]) for x in inner[name]
                ]
        wanted = [_logits(shape.norm_epsilon, weights, x) for x in inner["bf16"]]
        say("| weights | relative error of the logits | same likeliest token | KL divergence |")
        say("|---|---|---|---|")
        for name in WAYS:
            found = [
                compare(_logits(shape.norm_epsilon, weights, x), truth)
                for x, truth in zip(inner[name], wanted, strict=True)
            ]
            error, same, divergence = torch.stack(found).mean(0).tolist()
            say(f"| {name} | {error:.1e} | {same:.1%} | {divergence:.1e} |")


def _rounded_layer(weights: StateDict, at: str, way: Way) -> StateDict:
    return StateDict(
        (name, way(each.float()) if name.endswith("_proj.weight") else each)
        for name, each in weights.items()
        if name.startswith(at)
    )


def _logits(epsilon: float, weights: StateDict, x: Tensor) -> Tensor:
    y = reference.norm(x, weights["norm.weight"], epsilon)
    return y @ weights.get("lm_head.weight", weights["embed_tokens.weight"]).float().T


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("model", type=Path)
    parser.add_argument("--tokens", type=int, default=400)
    options = parser.parse_args()
    run(options.model, options.tokens, lambda line: print(line, flush=True))
