"""llama.cpp on a GPU and on the CPU, both against the CPU in 32 bits: how far rounding takes their logits.

    gpu_llama.py MODEL.gguf

Writes the model's weights in 32 bits beside each other (half a GB for SmolLM2-135M) to a temporary folder. A
device that computes as it should is as near to the CPU there as 32 bits are; with the model as it is, what it
rounds while it multiplies is its own. Owns the comparison. Devices that are not built are left out.
"""

import argparse
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "src"))
sys.path.insert(1, str(Path(__file__).parent.parent))

import numpy as np
import pytest

from tests.engine.fixtures import (
    RunnerFixture,
    divergences,
    llama_fixture,
    llama_gpu_fixture,
    widen_model,
)
from vivace.engine.devices.backend_files import NAMES
from vivace.engine.runners.base import Logits, Span

PROMPTS = (
    "Write the numbers from one to ten as words.",
    "def add(a, b):\n    return a +",
    "The capital of France is Paris, and that of Italy",
)


def say(fixture: RunnerFixture) -> Logits:
    """Return the logits of every token of the prompts, each at once."""
    found = []
    for text in PROMPTS:
        tokens = fixture.prompt(text)
        found.append(np.array(fixture.runner.forward([Span(0, 0, tokens, want=len(tokens))])))
        fixture.runner.trim(0, 0)
    fixture.close()
    rows: Logits = np.concatenate(found)
    return rows


def compare(name: str, found: Logits, wanted: Logits) -> str:
    apart, divergence = found - wanted, divergences(found, wanted)
    best = found.argmax(1)
    below = wanted.max(1) - np.take_along_axis(wanted, best[:, None], 1)[:, 0]
    return (
        f"{name:24} {np.abs(apart).max():8.3f} {np.sqrt((apart**2).mean()):8.3f} "
        f"{np.abs(apart.mean(1)).max():8.3f} {divergence.max():9.5f} {divergence.mean():9.5f} "
        f"{int((best == wanted.argmax(1)).sum()):5} {below.max():8.3f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("model", type=Path)
    model: Path = parser.parse_args().model
    with tempfile.TemporaryDirectory() as folder:
        wide = widen_model(model, Path(folder) / "wide.gguf")
        exact = say(llama_fixture(wide))
        found = {"cpu": say(llama_fixture(model))}
        for kind in NAMES:
            for file, bits in ((wide, " in 32 bits"), (model, "")):
                try:
                    found[kind + bits] = say(llama_gpu_fixture(file, kind))
                except pytest.skip.Exception as reason:
                    print(reason)
    print(
        f"{len(exact)} rows of logits from {exact.min():.0f} to {exact.max():.0f}, against the CPU in 32 bits"
    )
    print(
        f"{'':24} {'most':>8} {'rms':>8} {'shift':>8} {'KL most':>9} {'KL mean':>9} {'same':>5} {'below':>8}"
    )
    for name, rows in found.items():
        print(compare(name, rows, exact))
    for name, rows in found.items():
        if name != "cpu" and not name.endswith("bits"):
            print(compare(f"{name} against cpu", rows, found["cpu"]))


if __name__ == "__main__":
    main()
