"""Total speed for several users at once, in process: `vivace bench gpu --users 1,2,4,8,16,32,64`.

    python -m vivace.bench.gpu.users [--checkpoint FILE --gpu-folder FOLDER | --shape NAME] [--users 1,2,4]
                                     [--bits 4,8] [--no-peers] [--json]

is the same without the command line's packages; without a file the weights are random, of a known shape.
Every user has a prompt of its own and all decode at the same time, sampled, without drafts. vLLM gets the
same prompts and chooses greedily. Owns the measurement and its report. Nothing of the server is in it.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from vivace.bench.gpu.device import describe_gpu, describe_versions
from vivace.bench.gpu.peers.asking import (
    OUTPUT_TOKENS,
    PROMPT_TOKENS,
    make_prompts,
    measure_team_peers,
    team_wish,
)
from vivace.bench.gpu.shapes import known_names, random_runner
from vivace.engine.loop.engine import Engine
from vivace.engine.loop.warmup import row_costs
from vivace.engine.runners.base import Runner
from vivace.engine.runners.cuda.model.shape import KNOWN_SHAPES, Shape
from vivace.engine.runners.gpu_check import check_gpu, detect_gpu, free_gpu_memory
from vivace.engine.speculation.costs import StepCosts
from vivace.engine.wire.frames import Close, FromEngine, Generate, Open, Sampling, Tokens
from vivace.errors import VivaceError

USERS = (1, 2, 4, 8, 16, 32, 64)
DEFAULT_SHAPE = "qwen2.5-coder-1.5b"
MUST = {1: 1500, 2: 2600, 4: 4600, 8: 7000, 16: 9000, 32: 14500, 64: 20000}  # of this shape in 8 bits
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
    prompts = make_prompts(users, prompt_tokens, min(runner.info.vocab_size, 1000))
    for user, (name, prompt) in enumerate(zip(said, prompts, strict=True)):
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
    users: Sequence[int],
    bits: Sequence[int] = (8,),
    *,
    checkpoint: Path | None = None,
    gpu_folder: Path | None = None,
    shape: str = DEFAULT_SHAPE,
    has_peers: bool = False,
    say: Callable[[str], None] = lambda _: None,
) -> dict[str, Any]:
    """Measure every number of users with a file's weights, or with random ones of a shape; then the peers.

    `StartError` where there is no GPU that can.
    """
    check_gpu(detect_gpu())
    model = named_model(checkpoint) if checkpoint else {"shape": shape}
    report: dict[str, Any] = {**model, "gpu": describe_gpu(), "versions": describe_versions()}
    for each in bits:
        say(f"{each}-bit")
        if checkpoint:
            from vivace.engine.runners.cuda.load import GpuOptions, open_runner

            runner = open_runner(checkpoint, GpuOptions(CELLS, weight_bits=each, folder=gpu_folder))
        else:
            runner = random_runner(KNOWN_SHAPES[shape], each, CELLS)
        measure_users(runner, min(2, max(users)))  # warms up
        report[f"{each}-bit"] = {str(count): measure_users(runner, count) for count in users}
        runner.close()
        del runner
        free_gpu_memory()
    if has_peers:
        say("peers")
        asked = {"checkpoint": str(checkpoint)} if checkpoint and checkpoint.is_dir() else model
        report["peers"] = measure_team_peers(asked | team_wish(users))
    return report


def named_model(checkpoint: Path) -> dict[str, str]:
    """Return a model's file and, if it is known by name, its shape: with random weights vLLM is as quick."""
    from vivace.engine.runners.cuda.weights.checkpoint import open_checkpoint

    found = open_checkpoint(checkpoint).shape

    def is_same(shape: Shape) -> bool:  # but for what a file has in 32 bits, and a head that it keeps apart
        return replace(found, norm_epsilon=shape.norm_epsilon, tied_head=shape.tied_head) == shape

    same = [name for name, shape in KNOWN_SHAPES.items() if is_same(shape)]
    return {"checkpoint": str(checkpoint)} | ({"shape": same[0]} if same else {})


def users_table(report: dict[str, Any]) -> str:
    name = Path(report["checkpoint"]).name if "checkpoint" in report else f"{report['shape']}, random weights"
    lines = [f"{name}, {report['gpu']['name']}: tok/s of all, {OUTPUT_TOKENS} tokens each"]
    has_limits = report.get("shape") == DEFAULT_SHAPE
    for bits in (key for key in report if key.endswith("-bit")):
        for count, found in report[bits].items():
            must = (
                f", must {MUST[int(count)]}" if has_limits and bits == "8-bit" and int(count) in MUST else ""
            )
            lines.append(f"{bits:>6}  {count:>2} users  {found['tokens_per_s']:8.0f} tok/s{must}")
    for peer, found in report.get("peers", {}).items():
        if "missing" in found:
            lines.append(f"{peer}: {found['missing']}")
            continue
        for count, each in found["users"].items():
            what = f"{peer} {found['version']}, {found['format']}, {found['weights']} weights, greedy"
            lines.append(f"{what}  {count:>2} users  {each['tokens_per_s']:8.0f} tok/s")
    return "\n".join(lines)


def parse_users(text: str) -> list[int]:
    """Return the numbers of "1,2,4". Raise ValueError for anything else."""
    counts = [int(word) for word in text.split(",")]
    if not counts or min(counts) < 1 or max(counts) > USERS[-1]:
        raise ValueError(f"users are numbers from 1 to {USERS[-1]} with commas between")
    return counts


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m vivace.bench.gpu.users")
    parser.add_argument(
        "--checkpoint", type=Path, help="a GGUF file or a folder; without it weights are random"
    )
    parser.add_argument("--gpu-folder", type=Path, help="where compiled kernels are kept")
    parser.add_argument("--shape", choices=known_names(), default=DEFAULT_SHAPE, help="of random weights")
    parser.add_argument("--users", type=parse_users, default=list(USERS))
    parser.add_argument("--bits", default="8", help="of a weight, with commas between")
    parser.add_argument("--no-peers", action="store_true")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    try:
        report = run_users_bench(
            options.users,
            [int(each) for each in options.bits.split(",")],
            checkpoint=options.checkpoint,
            gpu_folder=options.gpu_folder,
            shape=options.shape,
            has_peers=not options.no_peers,
            say=lambda what: print(what, file=sys.stderr),
        )
    except VivaceError as error:
        print(f"{error.message} {error.hint}", file=sys.stderr)
        return error.exit_code
    print(json.dumps(report, indent=2) if options.json else users_table(report))
    return 0


if __name__ == "__main__":
    sys.exit(main())
