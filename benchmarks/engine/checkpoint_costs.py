"""What checkpoints cost a turn: the same turns with and without them, one after the other.

    .venv/bin/python -m benchmarks.engine.checkpoint_costs --write qwen35.gguf  # Qwen3.5-0.8B's shape
    .venv/bin/python -m benchmarks.engine.checkpoint_costs qwen35.gguf

Prints the medians of both, what taking checkpoints took of a turn as the clock saw it, and their bytes. A
model whose memory can be cut takes none. Owns the turns and the shape; the checkpoints are the engine's.
"""

import argparse
import ctypes
import statistics
import time
from pathlib import Path
from typing import Any

import numpy as np

from tests.engine.tiny_models import write_model
from vivace.engine.kv.checkpoints import Checkpoints
from vivace.engine.loop.engine import Engine
from vivace.engine.loop.warmup import start_costs
from vivace.engine.runners.llamacpp import LlamaRunner
from vivace.engine.wire.frames import Close, Generate, Open

QWEN35_08B: dict[str, Any] = {
    **{"general.architecture": "qwen35", "tokenizer.ggml.model": "no_vocab"},
    **{"qwen35.vocab_size": 248_320, "qwen35.context_length": 32_768, "qwen35.block_count": 24},
    **{"qwen35.embedding_length": 1024, "qwen35.feed_forward_length": 3584},
    **{"qwen35.attention.head_count": 8, "qwen35.attention.head_count_kv": 2},
    **{"qwen35.attention.key_length": 256, "qwen35.attention.value_length": 256},
    **{"qwen35.full_attention_interval": 4, "qwen35.attention.layer_norm_rms_epsilon": 1e-6},
    **{"qwen35.rope.dimension_sections": [11, 11, 10, 0], "qwen35.rope.dimension_count": 64},
    **{"qwen35.ssm.inner_size": 2048, "qwen35.ssm.conv_kernel": 4, "qwen35.ssm.state_size": 128},
    **{"qwen35.ssm.time_step_rank": 16, "qwen35.ssm.group_count": 16},
}
Q4_K_M = 15


class Timed:
    """The seconds that calls of some methods took, and how often they were called."""

    def __init__(self, owner: object, *names: str) -> None:
        self.seconds, self.calls = 0.0, 0
        for name in names:
            setattr(owner, name, self._timed(getattr(owner, name)))

    def _timed(self, work: Any) -> Any:
        def call(*given: Any) -> Any:
            begun = time.perf_counter()
            try:
                return work(*given)
            finally:
                self.seconds += time.perf_counter() - begun
                self.calls += 1

        return call


def write(path: Path) -> None:
    """Write the model, first in 32 bits beside it."""
    import llama_cpp as lc

    wide = path.with_suffix(".wide.gguf")
    write_model(QWEN35_08B, wide)
    options = lc.llama_model_quantize_default_params()
    options.ftype = Q4_K_M
    failed = lc.llama_model_quantize(str(wide).encode(), str(path).encode(), ctypes.byref(options))
    wide.unlink()
    assert not failed


def turn(engine: Engine, checkpoints: Checkpoints, number: int, *, is_on: bool, options: Any) -> float:
    """Run one turn of a new session. Return its seconds."""
    checkpoints.is_needed = checkpoints.cannot_cut = is_on
    numbers = np.random.default_rng(number).integers(0, 100, options.prompt)
    prompt = [int(token) for token in numbers]
    begun = time.perf_counter()
    engine.handle(Open("s", []))
    engine.handle(Generate("s", f"t{number}{is_on}", prompt, max_tokens=options.output, use_drafts=False))
    while not engine.is_idle:
        engine.step()
    spent_s = time.perf_counter() - begun
    engine.handle(Close("s"))
    return spent_s


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("--write", action="store_true", help="write the random model instead")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--prompt", type=int, default=1200)
    parser.add_argument("--output", type=int, default=48)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    if options.write:
        return write(options.model)
    runner = LlamaRunner(options.model, context_tokens=8192, threads=options.threads)
    engine = Engine(runner, lambda *_: None, start_costs(runner))
    checkpoints = engine._sessions.checkpoints
    held = checkpoints.cannot_cut
    copies, holds = Timed(runner, "checkpoint"), Timed(checkpoints, "hold", "release")
    turn(engine, checkpoints, 0, is_on=held, options=options)
    copies.seconds = holds.seconds = copies.calls = 0
    with_s, without_s = [], []
    for number in range(1, options.rounds + 1):
        with_s.append(turn(engine, checkpoints, number, is_on=held, options=options))
        without_s.append(turn(engine, checkpoints, number, is_on=False, options=options))
    median_s = statistics.median(with_s)
    print(
        f"{runner.info.name}, memory {runner.info.memory}: {options.prompt} tokens in, {options.output} out"
    )
    print(f"median with checkpoints {median_s:.2f} s, without {statistics.median(without_s):.2f} s")
    share = (copies.seconds + holds.seconds) / sum(with_s)
    each_ms = copies.seconds / max(1, copies.calls) * 1e3
    print(f"{copies.calls} checkpoints, {each_ms:.1f} ms each; {share:.2%} of a turn with the states held")
    return None


if __name__ == "__main__":
    main()
