"""Greedy tokens of ours against transformers in bf16 on the same weights, at 1k, 4k and 16k of context.

Ours decodes; transformers then reads prompt and answer at once and says what it would have said at each
place. A difference is explained if transformers itself holds the two tokens for all but equal: within two
steps of bf16 at the size of the largest logit. Owns the comparison. Loads one model after the other.
"""

import math
from pathlib import Path
from typing import Any

from vivace.bench.gpu.material import Material
from vivace.bench.gpu.peers.transformers import load_transformers
from vivace.engine.runners.base import SamplingSpec, Span
from vivace.engine.runners.cuda.load import GpuOptions, open_runner

CONTEXTS = (1024, 4096, 16384)
DECODED = 128
CHUNK = 2048


def compare_with_transformers(
    model: Path, gpu_folder: Path, material: Material, prefill: str = ""
) -> dict[str, Any]:
    import torch  # type: ignore[import-not-found,unused-ignore]

    said = {bits: _decode_ours(model, gpu_folder, material, bits, prefill) for bits in (16, 8)}
    torch.cuda.empty_cache()
    theirs = load_transformers(model)
    found: dict[str, Any] = {}
    for bits, texts in said.items():
        for context, tokens in texts.items():
            found[f"{bits}-bit at {context}"] = _judge(theirs, material.code[:context], tokens)
    return found


def _decode_ours(
    model: Path, gpu_folder: Path, material: Material, bits: int, prefill: str
) -> dict[int, list[int]]:
    runner = open_runner(
        model, GpuOptions(CONTEXTS[-1] + 1024, weight_bits=bits, folder=gpu_folder, prefill=prefill)
    )
    texts = {}
    for context in CONTEXTS:
        tokens = material.code[:context]
        for at in range(0, context - 1, CHUNK):
            runner.forward([Span(0, at, tokens[at : min(at + CHUNK, context - 1)])])
        said: list[int] = []
        while len(said) < DECODED:
            said += runner.decode(Span(0, context - 1 + len(said), [(tokens + said)[-1]]), SamplingSpec(), 2)
        runner.trim(0, 0)
        texts[context] = said
    runner.close()
    return texts


def _judge(theirs: Any, prompt: list[int], said: list[int]) -> dict[str, Any]:
    import torch

    ids = torch.tensor([prompt + said[:-1]], device="cuda")
    with torch.inference_mode():
        rows = theirs(ids, logits_to_keep=len(said)).logits[0].float()
    best = rows.argmax(-1).tolist()
    differences = []
    for at, (ours, other) in enumerate(zip(said, best, strict=True)):
        if ours != other:
            top = float(rows[at, other])
            gap = top - float(rows[at, ours])
            step = 2.0 ** (math.floor(math.log2(max(abs(top), 1e-6))) - 7)  # of bf16 at that size
            differences.append({"at": at, "gap": round(gap, 4), "is_tie": gap <= 2 * step})
    return {
        "tokens": len(said),
        "same": len(said) - len(differences),
        "unexplained": sum(not each["is_tie"] for each in differences),
        "largest_gap": max((each["gap"] for each in differences), default=0.0),
    }
