"""`vivace bench gpu --shape NAME`: a known shape with random weights, through the engine, in this process.

    python -m vivace.bench.gpu.shapes qwen3-coder-30b-a3b [--bits 4,8] [--no-peers] [--json]

is the same without the command line's packages. Time does not depend on what the weights are, but what a
model says does: random weights cannot edit, so edits are played. A text that the model will say is given to
it as its prediction, changed as real commits and a real model change theirs (`played`), and the report says
so. Owns the random runner and the report; what is measured is `measures`', and for other programs `peers`'.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from vivace.bench.engine.engine_process import EngineClient
from vivace.bench.figures import rounded
from vivace.bench.gpu.device import describe_gpu, describe_versions
from vivace.bench.gpu.material import Edit, Material
from vivace.bench.gpu.measures import GpuBench, measure_decode, measure_edits, measure_first_token
from vivace.bench.gpu.peers.asking import CONTEXT, measure_peers
from vivace.bench.gpu.played import ANSWERS, COMMITS, Change, new_tokens, old_text, random_tokens
from vivace.engine.loop.engine import Engine
from vivace.engine.runners.base import Runner
from vivace.engine.runners.cuda.model.shape import KNOWN_SHAPES, Shape
from vivace.engine.runners.gpu_check import check_gpu, detect_gpu, free_gpu_memory
from vivace.engine.speculation.costs import StepCosts
from vivace.engine.wire.frames import Append, Frame, FromEngine, Generate, Sampling
from vivace.errors import VivaceError

if TYPE_CHECKING:
    from vivace.engine.runners.cuda.decode.graphs import MakeLauncher
    from vivace.engine.runners.cuda.runner import CudaRunner

CELLS = 16 * 1024
PLAYED = (
    "Played: random weights cannot edit. The text that the model says (sampled, so that it does not repeat "
    f"itself) is its prediction, with changes taken back: those of {len(COMMITS)} real commits as their "
    f"authors wrote them, and of {len(ANSWERS)} as Qwen2.5-Coder-1.5B writes them."
)


@dataclass(frozen=True)
class Sizes:
    """How much is measured."""

    context: int = CONTEXT
    new_tokens: tuple[int, ...] = (1024, 4096)
    rounds: int = 5
    decoded: int = 256
    edits: int = len(COMMITS)


FULL = Sizes()


class LocalEngine(EngineClient):
    """An engine in this process, asked as one behind a socket is."""

    def __init__(self, runner: Runner, costs: dict[int, float]) -> None:
        super().__init__()
        self._engine = Engine(runner, self._take, StepCosts(costs))

    def send(self, *frames: Frame) -> None:
        for frame in frames:
            self._engine.handle(frame)  # type: ignore[arg-type]

    def _receive(self, timeout_s: float, *, is_silence_fine: bool = False) -> None:
        del timeout_s, is_silence_fine
        self._engine.step()

    def _take(self, *frames: FromEngine) -> None:
        now = time.perf_counter()
        for frame in frames:
            self._handle_frame(frame, now)


class RandomWords:
    """The vocabulary of random weights: no token ends a turn."""

    end_tokens: frozenset[int] = frozenset()

    def token_bytes(self, token: int) -> bytes:
        return b"%d " % token


def random_runner(
    shape: Shape,
    bits: int,
    context_tokens: int = CELLS,
    prefill: str = "",
    make_launcher: "MakeLauncher | None" = None,
) -> "CudaRunner":
    """Return a runner with random weights: on the GPU, or with a launcher that needs none."""
    import torch  # type: ignore[import-not-found,unused-ignore]

    from vivace.bench.gpu.passes import random_parts
    from vivace.engine.runners.cuda.kernels.driver import Modules
    from vivace.engine.runners.cuda.load import GpuOptions, compile_plans, with_prefill
    from vivace.engine.runners.cuda.runner import CudaRunner, prefill_class

    device = "cpu" if make_launcher else "cuda"
    blocks = 5 if make_launcher else torch.cuda.get_device_properties(0).multi_processor_count
    wished = GpuOptions(context_tokens, weight_bits=bits, prefill=prefill)
    if make_launcher is None:
        wished = with_prefill(wished, shape, torch.cuda.mem_get_info()[0])
        modules = Modules(None)
        compile_plans(modules, shape, bits, blocks)
        make_launcher = modules.load
    keep = prefill_class(shape, wished.prefill_format).keep
    model, dense = random_parts(shape, bits, min(context_tokens, shape.trained_tokens), device, keep)
    runner = CudaRunner(
        "random",
        model,
        dense,
        RandomWords(),
        bits=bits,
        context_tokens=context_tokens,
        make_launcher=make_launcher,
        blocks=blocks,
        prefill=wished.prefill_format,
    )
    if device == "cuda":
        runner.warm_up()
    return runner


def play_edits(bench: GpuBench, vocab: int, context: int, texts: Sequence[Sequence[Change]]) -> list[Edit]:
    """Return edits whose prediction is what the model says, with the changes of a text taken back."""
    edits = []
    for number, changes in enumerate(texts):
        prompt, max_tokens = bench.text(context, 211 * number), new_tokens(changes)
        assert len(prompt) == context, "the material is too short for so many texts"
        with bench.session() as session:
            # As `measure_edits` will: a last token that was read with the others may say something else.
            bench.engine.run(Append(session, "", prompt[:-1]))
            work = Generate(
                session,
                "",
                prompt[-1:],
                max_tokens=max_tokens,
                sampling=bench.edit_sampling,
                use_drafts=False,
            )
            said = bench.engine.run(work).tokens
        prediction = old_text(said, changes, vocab, seed=number)
        edits.append(Edit(f"played {number}", prompt, prediction, [], max_tokens))
    return edits


def measure_runner(
    runner: Runner, sizes: Sizes = FULL, costs: dict[int, float] | None = None
) -> dict[str, Any]:
    """Measure what one user sees: decoding, first tokens, played edits. `costs` are measured if None."""
    vocab = runner.info.vocab_size
    material = Material("played", random_tokens(vocab, 3 * max(*sizes.new_tokens, sizes.context)), [], [])
    costs = costs or runner.known_costs()
    bench = GpuBench(
        LocalEngine(runner, dict(costs)),
        material,
        decoded=sizes.decoded,
        rounds=sizes.rounds,
        edit_sampling=Sampling(temperature=1.0, seed=1),
    )
    decode = {str(sizes.context): measure_decode(bench, sizes.context)}
    first = {str(count): measure_first_token(bench, count) for count in sizes.new_tokens}
    report = {
        "costs_ms": {str(tokens): ms for tokens, ms in costs.items()},
        "decode": decode,
        "first_token_ms": first,
    }
    for name, texts in (("edits", COMMITS), ("answers", ANSWERS)):
        material.edits[:] = play_edits(bench, vocab, sizes.context, texts[: sizes.edits])
        report[name] = measure_edits(bench, has_first_token=False) | {"played": PLAYED}
    return report


def run_shape_bench(
    name: str, bits: Sequence[int], *, has_peers: bool = True, say: Callable[[str], None] = lambda _: None
) -> dict[str, Any]:
    """Measure a known shape in each format, then the peers; `StartError` where there is no GPU that can."""
    check_gpu(detect_gpu())
    from vivace.bench.gpu.passes import measure_shape

    shape = KNOWN_SHAPES[name]
    report: dict[str, Any] = {
        "shape": name, "weights": "random", "gpu": describe_gpu(), "versions": describe_versions()
    }  # fmt: skip
    for each in bits:
        say(f"{each}-bit")
        runner = random_runner(shape, each)
        report[f"{each}-bit"] = measure_runner(runner)
        runner.close()
        del runner
        free_gpu_memory()
        report[f"{each}-bit"]["passes"] = measure_shape(shape, each)
        free_gpu_memory()
    if has_peers:
        say("peers")
        report["peers"] = measure_peers({"shape": name, "tokens": random_tokens(shape.vocab, CONTEXT)})
    return dict(rounded(report))


def known_names() -> list[str]:
    """Return the shapes that can be measured."""
    return [name for name, shape in KNOWN_SHAPES.items() if not shape.problem()]


def shape_table(report: dict[str, Any]) -> str:
    """Return the report as lines for people."""
    lines = [f"{report['shape']}, random weights, {report['gpu']['name']}"]
    for bits in (key for key in report if key.endswith("-bit")):
        part = report[bits]
        for context, found in part["decode"].items():
            lines.append(f"{bits:>6}  decode at {int(context):,}: {found['tokens_per_s']:.0f} tok/s")
        for key, whose in (("edits", "authors'"), ("answers", "a model's")):
            edits = part[key]
            lines.append(
                f"{bits:>6}  edits, drafts on (played, {whose} text): {edits['tokens_per_s']:.0f} tok/s, "
                f"{edits['tokens_per_pass']:.1f} tokens a pass; "
                f"without: {edits['without_drafts_tokens_per_s']:.0f} tok/s"
            )
            if edits["different_rows"]:
                differ = ", ".join(edits["different_rows"])
                lines.append(f"{bits:>6}  WRONG: drafts have changed the text of {differ}")
        for count, ms in part["first_token_ms"].items():
            lines.append(f"{bits:>6}  first token of {int(count):,}: {ms:.1f} ms")
        for tokens, found in part["passes"].items():
            lines.append(
                f"{bits:>6}  a pass of {tokens}: {found['us']:.0f} µs, {found['tokens_per_s']:.0f} tok/s"
            )
    for name, found in report.get("peers", {}).items():
        if "missing" in found:
            lines.append(f"{name}: {found['missing']}")
        else:
            lines.append(
                f"{name} {found['version']}, {found.get('format', 'bf16')}, random weights: "
                f"{found['tokens_per_s']:.0f} tok/s at "
                f"{CONTEXT:,}, first token {found['first_token_ms']:.1f} ms"
            )
    return "\n".join([*lines, PLAYED])


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m vivace.bench.gpu.shapes")
    parser.add_argument("shape", choices=known_names())
    parser.add_argument("--bits", default="4,8")
    parser.add_argument("--no-peers", action="store_true")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    bits = [int(each) for each in options.bits.split(",")]
    try:
        report = run_shape_bench(
            options.shape, bits, has_peers=not options.no_peers, say=lambda what: print(what, file=sys.stderr)
        )
    except VivaceError as error:
        print(f"{error.message} {error.hint}", file=sys.stderr)
        return error.exit_code
    print(json.dumps(report, indent=2, ensure_ascii=False) if options.json else shape_table(report))
    return 0


if __name__ == "__main__":
    sys.exit(main())
