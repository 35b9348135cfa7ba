"""How fast one GPU serves one user: `python bench/gpu.py [--bits 8] [--checkpoint FILE] [--json FILE]`.

Wall clock through the runner: tokens polled from the ring at 1k, 4k and 16k of context, time to the first
token, what a verifying pass over m drafts costs, how soon a stream stops. Without a checkpoint the
weights are random, which changes no time. Owns no claim: it prints what this machine did, with what.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch  # type: ignore[import-not-found,unused-ignore]

from vivace.engine.runners.base import Span
from vivace.engine.runners.cuda.checkpoint import read_checkpoint
from vivace.engine.runners.cuda.plan import PASS_TOKENS
from vivace.engine.runners.cuda.runner import CudaRunner
from vivace.engine.runners.cuda.shape import QWEN_CODER_1_5B
from vivace.engine.runners.cuda.weights import build_model, random_weights

CHUNK_TOKENS = 1024
DECODED = 256
CONTEXTS = (1024, 4096, 16384)


class NoWords:
    end_tokens: frozenset[int] = frozenset()

    def piece(self, token: int) -> bytes:
        raise NotImplementedError(token)


def open_runner(bits: int, checkpoint: Path | None) -> CudaRunner:
    shape, plain = read_checkpoint(checkpoint) if checkpoint else (QWEN_CODER_1_5B, None)
    plain = plain or random_weights(shape, 1, "cuda")
    model, dense = build_model(shape, plain, bits, "cuda", 20480)
    blocks = torch.cuda.get_device_properties(0).multi_processor_count
    return CudaRunner("bench", model, dense, NoWords(), bits=bits, context_tokens=40960, blocks=blocks)


def read(runner: CudaRunner, seq: int, start: int, count: int) -> int:
    """Prefill `count` random tokens in chunks; the first token after them."""
    tokens = np.random.default_rng(start).integers(0, runner.facts.vocab_size, count).tolist()
    rows = None
    for at in range(0, count, CHUNK_TOKENS):
        chunk = tokens[at : at + CHUNK_TOKENS]
        rows = runner.forward([Span(seq, start + at, chunk, want=int(at + CHUNK_TOKENS >= count))])
    assert rows is not None
    return int(rows[0].argmax())


def decode_rate(runner: CudaRunner, start: int, first: int) -> tuple[float, list[int]]:
    stream = runner.decode(0, start, first, most_tokens=DECODED)
    tokens: list[int] = []
    began = time.perf_counter()
    while not stream.is_done:
        tokens += stream.poll()
    return DECODED / (time.perf_counter() - began), tokens


def median_ms(what: Callable[[], object], times: int = 7) -> float:
    spent = []
    for _ in range(times):
        began = time.perf_counter()
        what()
        spent.append((time.perf_counter() - began) * 1e3)
    return statistics.median(spent)


def first_token_ms(runner: CudaRunner, count: int) -> float:
    def once() -> None:
        runner.trim(1, 0)
        read(runner, 1, 0, count)

    once()
    spent = median_ms(once, 5)
    runner.trim(1, 0)
    return spent


def stop_ms(runner: CudaRunner, start: int, first: int) -> float:
    """From the wish to stop a running stream to the device being free."""
    spent = []
    for _ in range(5):
        stream = runner.decode(0, start, first, most_tokens=DECODED)
        for _ in range(3):
            while not stream.poll():
                pass
        began = time.perf_counter()
        stream.stop()
        spent.append((time.perf_counter() - began) * 1e3)
    return statistics.median(spent)


def pass_ms(runner: CudaRunner, start: int, tokens: list[int]) -> float:
    """A verifying pass with all its logits on the host."""
    span = Span(0, start, tokens, want=len(tokens))

    def once() -> None:
        runner.forward([span])

    once()
    return median_ms(once)


def measure(runner: CudaRunner) -> dict[str, object]:
    found: dict[str, object] = {}
    filled = 0
    for context in CONTEXTS:
        first = read(runner, 0, filled, context - filled)
        filled = context
        decode_rate(runner, context, first)  # captures its graphs
        runs = [decode_rate(runner, context, first) for _ in range(3)]
        assert runs[0][1] == runs[1][1] == runs[2][1], "a greedy stream must repeat itself"
        found[f"decode_tokens_per_s_{context}"] = round(statistics.median(rate for rate, _ in runs), 1)
        found[f"stop_ms_{context}"] = round(stop_ms(runner, context, first), 3)
        for size in PASS_TOKENS:
            found[f"pass_ms_{size}_at_{context}"] = round(pass_ms(runner, context, [first] * size), 3)
    runner.trim(0, 0)
    for count in (1024, 4096):
        found[f"first_token_ms_{count}"] = round(first_token_ms(runner, count), 2)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bits", type=int, choices=(8, 16), default=8)
    parser.add_argument("--checkpoint", type=Path)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    found: dict[str, object] = {
        "hardware": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "bits": options.bits,
        "weights": options.checkpoint.name if options.checkpoint else "random, Qwen2.5-Coder-1.5B's shape",
    }
    found |= measure(open_runner(options.bits, options.checkpoint))
    for name, value in found.items():
        print(f"{name:28} {value}", flush=True)
    if options.json:
        options.json.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
