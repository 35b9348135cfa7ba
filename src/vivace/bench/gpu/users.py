"""Total speed for several users at once, in process: `vivace bench gpu --users 1,2,4,8,16,32,64`.

    python -m vivace.bench.gpu.users [--checkpoint FILE --gpu-folder FOLDER] [--users 1,2,4] [--json]

is the same without the command line's packages; without a file the weights are random, of the 1.5B model's
shape. Every user has a prompt of its own and all decode at the same time, sampled, without drafts. Owns the
measurement and its report. Nothing of the server is in it.
"""

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from vivace.bench.gpu.shapes import random_runner
from vivace.engine.loop.engine import Engine
from vivace.engine.loop.warmup import row_costs
from vivace.engine.runners.base import Runner
from vivace.engine.runners.cuda.model.shape import QWEN_CODER_1_5B
from vivace.engine.runners.gpu_check import check_gpu, detect_gpu
from vivace.engine.speculation.costs import StepCosts
from vivace.engine.wire.frames import Close, FromEngine, Generate, Open, Sampling, Tokens
from vivace.errors import VivaceError

USERS = (1, 2, 4, 8, 16, 32, 64)
MUST = {1: 1500, 2: 2600, 4: 4600, 8: 7000, 16: 9000, 32: 14500, 64: 20000}  # 8-bit weights, 1.5B
PROMPT_TOKENS = 500
OUTPUT_TOKENS = 300
CELLS = 64 * 1024


def measure_users(
    runner: Runner, users: int, *, prompt_tokens: int = PROMPT_TOKENS, output_tokens: int = OUTPUT_TOKENS
) -> dict[str, Any]:
    """Let so many turns run at once. Return tok/s of all, from when each has begun until one has ended."""
    said: dict[str, list[float]] = {f"user {user}": [] for user in range(users)}  # when each token was sent

    def receive(*frames: FromEngine) -> None:
        now = time.perf_counter()
        for frame in frames:
            if isinstance(frame, Tokens):
                said[frame.turn] += [now] * len(frame.tokens)

    engine = Engine(runner, receive, StepCosts(runner.known_costs()), row_costs=row_costs(runner))
    vocab = min(runner.info.vocab_size, 1000)
    for user, name in enumerate(said):
        prompt = [(user * 7919 + at * 31) % vocab for at in range(prompt_tokens)]
        sampling = Sampling(temperature=1.0, seed=user)
        engine.handle(Open(name, [], tenant=name))
        work = Generate(name, name, prompt, max_tokens=output_tokens, sampling=sampling, use_drafts=False)
        engine.handle(work)
    begun = time.perf_counter()
    while not engine.is_idle:
        engine.step()
    spent = time.perf_counter() - begun
    for name in said:
        engine.handle(Close(name))
    all_decode, one_ends = max(t[0] for t in said.values()), min(t[-1] for t in said.values())
    together = sum(all_decode < at <= one_ends for times in said.values() for at in times)
    return {
        "tokens_per_s": together / (one_ends - all_decode) if one_ends > all_decode else 0.0,
        "with_prompts_tokens_per_s": sum(map(len, said.values())) / spent,
        "tokens": sum(map(len, said.values())),
    }


def run_users_bench(
    checkpoint: Path | None, gpu_folder: Path | None, users: Sequence[int], bits: int = 8
) -> dict[str, Any]:
    """Measure every number of users; `StartError` where there is no GPU that can."""
    check_gpu(detect_gpu())
    if checkpoint:
        from vivace.engine.runners.cuda.load import GpuOptions, open_runner

        runner = open_runner(checkpoint, GpuOptions(CELLS, weight_bits=bits, folder=gpu_folder))
    else:
        runner = random_runner(QWEN_CODER_1_5B, bits, CELLS)
    measure_users(runner, min(2, max(users)))  # warms up
    found = {str(count): measure_users(runner, count) for count in users}
    return {"weights": checkpoint.name if checkpoint else "random", "bits": bits, "users": found}


def users_table(report: dict[str, Any]) -> str:
    what = f"{report['weights']} weights, {report['bits']} bits"
    lines = [f"{what}: total tok/s, sampled, {OUTPUT_TOKENS} tokens each"]
    for count, found in report["users"].items():
        must = f", must {MUST[int(count)]}" if int(count) in MUST and report["bits"] == 8 else ""
        lines.append(f"{count:>4} users  {found['tokens_per_s']:8.0f} tok/s{must}")
    return "\n".join(lines)


def parse_users(text: str) -> list[int]:
    """Return the numbers of "1,2,4". Raise ValueError for anything else."""
    counts = [int(word) for word in text.split(",")]
    if not counts or min(counts) < 1 or max(counts) > USERS[-1]:
        raise ValueError(f"users are numbers from 1 to {USERS[-1]} with commas between")
    return counts


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m vivace.bench.gpu.users")
    parser.add_argument("--checkpoint", type=Path, help="a GGUF file; without it weights are random")
    parser.add_argument("--gpu-folder", type=Path, help="where compiled kernels are kept")
    parser.add_argument("--users", type=parse_users, default=list(USERS))
    parser.add_argument("--bits", type=int, choices=(4, 8, 16), default=8)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    try:
        report = run_users_bench(options.checkpoint, options.gpu_folder, options.users, options.bits)
    except VivaceError as error:
        print(f"{error.message} {error.hint}", file=sys.stderr)
        return error.exit_code
    print(json.dumps(report, indent=2) if options.json else users_table(report))
    return 0


if __name__ == "__main__":
    sys.exit(main())
