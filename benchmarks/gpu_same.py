"""What must come out the same on a GPU, at a known shape with random weights: where it does not, and how far.

    gpu_same.py                          gpt-oss-20b, all stages
    gpu_same.py --shape qwen3-coder-30b-a3b --bits 4 prompt places
    gpu_same.py --small                  a small gpt-oss and no GPU: does this script work?

prompt  what each layer's attention and experts make of a prompt of 1,023 tokens, against plain torch with the
        same inputs; whether anything is not a number
places  256 tokens behind it one by one, then in passes of 2 to 32, from two places: logits to the bit
played  edits and answers with drafts and without: the first token that differs, and the rate

A window, a page, a split of the attention begin somewhere: `places` goes over all of these. With `--alone` no
kernel begins before the one before it has ended, with `--one-thread` a prompt's kernels are compiled when
they are needed. Nothing new is begun after `--limit-s`.
"""

import argparse
import functools
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent / "src"))

import torch  # type: ignore[import-not-found,unused-ignore]

from gpu_attempt import attempt
from vivace.bench.engine.engine_process import Turn
from vivace.bench.gpu.material import Edit, Material
from vivace.bench.gpu.measures import GpuBench
from vivace.bench.gpu.played import ANSWERS, COMMITS, Change, random_tokens
from vivace.bench.gpu.shapes import LocalEngine, play_edits, random_runner
from vivace.engine.common_length import common_length
from vivace.engine.runners.base import Span
from vivace.engine.runners.cuda.decode.launches import COUNT
from vivace.engine.runners.cuda.kernels import driver
from vivace.engine.runners.cuda.model import reference
from vivace.engine.runners.cuda.model.shape import KNOWN_SHAPES, PAGE_TOKENS
from vivace.engine.runners.cuda.prefill.experts import ExpertPrefill, mix_experts
from vivace.engine.runners.cuda.runner import CudaRunner
from vivace.engine.wire.frames import Append, Generate, Rewind, Sampling

CONTEXT = 1024
BEHIND = 256
STAGES = ("prompt", "places", "played")
PASSES = (2, 4, 8, 16, 32)


class Watched:
    """A prefill whose attention and experts are computed again, and all of whose rows are looked at."""

    def __init__(self, prefill: Any, count: int) -> None:
        self._prefill, self._count, self._shape = prefill, count, prefill._model.shape
        self._mix, self._feed = prefill._mix, prefill._feed_forward
        self._far: dict[str, list[float]] = {}
        self._bad: list[str] = []

    def look(self, what: str, index: int, rows: torch.Tensor) -> None:
        is_bad = ~rows.isfinite().all(1)
        if is_bad.any():
            self._bad.append(
                f"{what} of layer {index}, {int(is_bad.sum())} rows from {int(is_bad.int().argmax())}"
            )

    def mix(self, state: torch.Tensor, index: int, size: int) -> torch.Tensor:
        prefill, shape, oss = self._prefill, self._shape, self._prefill._model.layers[index].oss
        found: torch.Tensor = self._mix(state, index, size)
        real = int(state[COUNT])
        rows = prefill._rows[:size].view(size, -1, shape.head_width)[:, : shape.heads]
        view = reference.View(shape.score_scale, shape.window_of(index), oss.sinks if oss else None)
        plain, (kv, pages) = torch.zeros_like(found), prefill._bf16_kv(prefill._kv[index])
        reference.attend_pages(state, rows, kv, pages, plain, view)
        self.look("q, k, v", index, prefill._rows[:real])
        self._compare("attention", index, found[:real], plain[:real])
        return found

    def feed(self, index: int, size: int) -> None:
        self._feed(index, size)
        prefill, shape, layer = self._prefill, self._shape, self._prefill._model.layers[index]
        real = min(size, self._count)
        x, found = prefill._x[:real], prefill._delta[:real]
        if shape.experts:
            y = reference.norm(x, layer.ffn_gain, shape.norm_epsilon).to(torch.bfloat16)
            self._compare(
                "experts", index, found, mix_experts(shape, layer, x, y, x @ prefill._routers[index])
            )

    def _compare(self, what: str, index: int, found: torch.Tensor, plain: torch.Tensor) -> None:
        self.look(what, index, found)
        apart = float((found.float() - plain.float()).norm() / plain.float().norm())
        self._far.setdefault(what, []).append(apart)

    def __str__(self) -> str:
        most = (f"{what} {max(far):.4f} (layer {far.index(max(far))})" for what, far in self._far.items())
        numbers = f"NOT NUMBERS: {'; '.join(self._bad[:6])}" if self._bad else "all are numbers"
        return f"from plain torch at most: {', '.join(most)}; {numbers}"


def prompt(runner: CudaRunner, tokens: Sequence[int]) -> str:
    """Read a prompt kernel by kernel, each layer's attention and experts again in plain torch."""
    prefill: Any = runner._prefill
    watched, graphs = Watched(prefill, len(tokens)), prefill._graphs
    prefill._graphs, prefill._mix, prefill._feed_forward = {}, watched.mix, watched.feed
    try:
        runner.forward([Span(0, 0, list(tokens), want=0)])
    finally:
        prefill._graphs = graphs
        del prefill._mix, prefill._feed_forward
    pages = torch.tensor(runner._pages.table(0), device=runner._kv.device)
    for index, kv in enumerate(runner._kv):
        rows = kv[pages].permute(0, 3, 1, 2, 4).reshape(len(pages) * PAGE_TOKENS, -1)
        watched.look("KV", index, rows[: len(tokens)])
    runner.trim(0, 0)
    return str(watched)


def places(runner: CudaRunner, tokens: Sequence[int], behind: int) -> str:
    """Compare passes of several tokens with single ones, behind the same prompt."""
    start = CONTEXT - 1
    end = start + behind

    def say(size: int, begin: int) -> torch.Tensor:
        """Return the logits of all places from `start` on: one by one up to `begin`, then in passes."""
        runner.trim(0, start)
        rows, at = [], start
        while at < end:
            step = 1 if at < begin else min(size, end - at)
            rows.append(torch.tensor(runner.forward([Span(0, at, list(tokens[at : at + step]), want=step)])))
            at += step
        return torch.cat(rows)

    runner.forward([Span(0, 0, list(tokens[:start]), want=0)])
    alone, lines = say(1, start), []
    passes = [(size, CONTEXT + more) for size in PASSES for more in (0, size // 2 + 1)]
    for size, begin in ((1, start), *passes):
        found = say(size, begin)
        wrong = [start + at for at in range(behind) if not torch.equal(found[at], alone[at])]
        if wrong:
            other = [start + at for at in range(behind) if found[at].argmax() != alone[at].argmax()]
            lines.append(
                f"passes of {size} from {begin} DIFFERENT at {len(wrong)} of {behind}, {wrong[:5]}, up to "
                f"{float((found - alone).abs().max()):.3g}, the likeliest at {other[:3]}"
            )
    runner.trim(0, 0)
    lines += [] if alone.isfinite().all() else ["NOT NUMBERS"]
    return "; ".join(lines) or f"all {behind} the same to the bit"


def played(runner: CudaRunner, costs: dict[int, float], texts: Sequence[Sequence[Change]]) -> str:
    """Play edits; say which texts drafts change, and from which token on."""
    vocab = runner.info.vocab_size
    material = Material("played", random_tokens(vocab, 8 * CONTEXT), [], [])
    sampling = Sampling(temperature=1.0, seed=1)
    bench = GpuBench(LocalEngine(runner, dict(costs)), material, decoded=16, rounds=1, edit_sampling=sampling)
    on, differ = list[Turn](), list[str]()
    for edit in play_edits(bench, vocab, CONTEXT, texts):
        with bench.session() as session:
            bench.engine.run(Append(session, "", edit.prompt[:-1]))
            on.append(_said(bench, session, edit, use_drafts=True))
            plain = _said(bench, session, edit, use_drafts=False).tokens
        same = common_length(on[-1].tokens, plain)
        if same < len(plain):
            differ.append(f"{edit.name} of {len(plain)} tokens from {same}")
    seconds = sum(turn.whole_s - turn.first_token_ms / 1e3 for turn in on)
    rate = (sum(len(turn.tokens) for turn in on) - len(on)) / seconds
    right = sum(turn.waterfall.draft_accepted for turn in on)
    wrong = sum(turn.waterfall.draft_rejected for turn in on)
    text = f"DIFFERENT: {', '.join(differ)}" if differ else f"all {len(on)} texts the same"
    return f"{rate:.0f} tok/s, {right} drafted tokens right, {wrong} wrong; {text}"


def _said(bench: GpuBench, session: str, edit: Edit, *, use_drafts: bool) -> Turn:
    prediction = edit.prediction if use_drafts else []
    options: dict[str, Any] = {"max_tokens": edit.max_tokens, "sampling": bench.edit_sampling}
    wish = Generate(session, "", edit.prompt[-1:], prediction=prediction, use_drafts=use_drafts, **options)
    turn = bench.engine.run(wish)
    bench.engine.send(Rewind(session, len(edit.prompt) - 1))
    return turn


def small_runner() -> CudaRunner:
    sys.path.insert(1, str(Path(__file__).parent.parent))
    from tests.engine.runners.cuda.emulator import Emulator
    from tests.engine.runners.cuda.oss_bed import SMALL

    assert SMALL.oss
    oss = replace(SMALL.oss, window=128, yarn_tokens=4096)
    shape = replace(SMALL, layers=2, oss=oss, trained_tokens=4096)
    return random_runner(shape, 8, 4096, make_launcher=Emulator)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("stages", nargs="*", default=STAGES)
    parser.add_argument("--shape", default="gpt-oss-20b")
    parser.add_argument("--bits", type=int, default=8)
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--alone", action="store_true")
    parser.add_argument("--one-thread", action="store_true")
    parser.add_argument("--limit-s", type=float, default=400.0)
    options = parser.parse_args()
    begun, small = time.monotonic(), options.small
    if options.alone:
        module: Any = driver.Module
        module.__init__ = functools.partialmethod(module.__init__, overlap=False)
    if options.one_thread:
        prefill: Any = ExpertPrefill
        prefill.warm_up = super(ExpertPrefill, ExpertPrefill).warm_up
    runner = small_runner() if small else random_runner(KNOWN_SHAPES[options.shape], options.bits)
    print(f"{options.shape}: ready after {time.monotonic() - begun:.0f} s", flush=True)
    tokens = random_tokens(runner.info.vocab_size, CONTEXT + BEHIND)
    costs = {1: 1.2, 2: 1.8, 4: 2.5, 8: 3.3, 16: 4.5, 32: 7.4, 512: 12.0} if small else runner.known_costs()
    print("ms of a pass:", {size: round(ms, 3) for size, ms in costs.items()}, flush=True)
    stages: dict[str, Callable[[], str]] = {
        "prompt": lambda: prompt(runner, tokens[: CONTEXT - 1]),
        "places": lambda: places(runner, tokens, 140 if small else BEHIND),
        "played": lambda: played(runner, costs, [COMMITS[9]] if small else COMMITS + ANSWERS),
    }
    for stage in options.stages:
        attempt(stage, stages[stage], begun + options.limit_s)


if __name__ == "__main__":
    main()
