"""One decode step by itself: microseconds of a captured pass on random weights, for any tuning.

    gpu_steps.py                                            every format as it is tuned, at 1k, 4k and 16k
    gpu_steps.py --tokens 1 2 4 8 16 32 --contexts 1024     passes that verify drafts
    gpu_steps.py --bits 8 up_stages=10,12 late_start=24,28  every combination at 1k, the best first
    gpu_steps.py --shape qwen2.5-coder-7b                   another model's shape

No model is needed: time does not depend on what the weights are. Nothing of the engine is in these numbers
(`vivace bench gpu` has that); they are for choosing `Tuning` in plan.py. Rounds of all combinations take
turns, and the least of each is shown.
"""

import argparse
import itertools
import sys
from collections.abc import Iterator, Sequence
from dataclasses import fields, replace
from typing import Any

from vivace.bench.gpu.passes import ROUNDS, PassBench, Step, compile_all
from vivace.engine.runners.cuda.decode.tuning import Tuning
from vivace.engine.runners.cuda.kernels.driver import Module
from vivace.engine.runners.cuda.model.shape import KNOWN_SHAPES, Shape

SHOWN = 20


def combinations(words: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Yield every combination of values; each word is `name=a,b`."""
    known = {field.name for field in fields(Tuning)} - {"attention_parts"}  # numbers only
    names, values = [], []
    for word in words:
        name, _, texts = word.partition("=")
        if name not in known:
            sys.exit(f"There is no {name}; known: {', '.join(sorted(known))}.")
        names.append(name)
        values.append([int(text, 0) for text in texts.split(",")])
    for choice in itertools.product(*values):
        yield dict(zip(names, choice, strict=True))


def measure(
    shape: Shape, bits: int, tokens: int, contexts: Sequence[int], changes: Sequence[dict[str, Any]]
) -> None:
    bench = PassBench(shape, bits)
    base = bench.plan(tokens)
    plans = [replace(base, tuning=replace(base.tuned, **change)) for change in changes]
    steps = {
        (context, index): Step(bench, plan, Module(plan, image=image), context)
        for index, (plan, image) in enumerate(zip(plans, compile_all(plans), strict=True))
        for context in contexts
    }
    found: dict[tuple[int, int], float] = {}
    for _ in range(ROUNDS):
        for key, step in steps.items():
            found[key] = min(step.microseconds(), found.get(key, float("inf")))
    for context in contexts:
        best = sorted((us, index) for (at, index), us in found.items() if at == context)
        for us, index in best[:SHOWN]:
            words = " ".join(f"{name}={value}" for name, value in changes[index].items())
            speed = f"{1e6 / us:5.0f} tok/s" if tokens == 1 else f"{tokens:2} tokens"
            print(f"{bits:2}-bit at {context:5}: {us:7.1f} µs, {speed}  {words}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--shape", choices=KNOWN_SHAPES, default="qwen2.5-coder-1.5b")
    parser.add_argument("--bits", type=int, nargs="*", default=[4, 8, 16])
    parser.add_argument("--tokens", type=int, nargs="*", default=[1])
    parser.add_argument("--contexts", type=int, nargs="*", default=[])
    parser.add_argument("changes", nargs="*", help="fields of Tuning, as in up_stages=10,12")
    options = parser.parse_args()
    changes = list(combinations(options.changes))
    contexts = options.contexts or ([1024] if options.changes else [1024, 4096, 16384])
    for bits in options.bits:
        for tokens in options.tokens:
            measure(KNOWN_SHAPES[options.shape], bits, tokens, contexts, changes)


if __name__ == "__main__":
    main()
