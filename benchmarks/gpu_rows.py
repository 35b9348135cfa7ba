"""Passes over rows of several sequences on a GPU, with random weights of the true shape: right, and how fast.

    gpu_rows.py few wide many variants      all of it, each stage in its own process

few       up to 16 users: tokens, keys and values of a row in a pass with others, against the same alone,
          to the bit; then total tok/s through `decode` and `decode_rows`
wide      one pass over 64 rows, kernel by kernel, up to the first that fails
many      as `few`, with 32 and 64 users, and where the time goes
variants  other cuts of the attention, other tiles of the products

Needs torch, Triton and a GPU, no packages of the engine. Nothing new is begun after `--limit-s`.
"""

import argparse
import contextlib
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent / "src"))

import torch  # type: ignore[import-not-found,unused-ignore]
from torch.cuda import Event  # type: ignore[import-not-found,unused-ignore]

from vivace.engine.runners.base import DecodeRow, SamplingSpec, Span
from vivace.engine.runners.cuda.decode.graphs import Launcher
from vivace.engine.runners.cuda.decode.launches import Launch
from vivace.engine.runners.cuda.decode.plan import BATCH_ROWS, Plan, down_columns
from vivace.engine.runners.cuda.kernels.driver import Modules
from vivace.engine.runners.cuda.model.shape import QWEN_CODER_1_5B as SHAPE
from vivace.engine.runners.cuda.rows import launches, product
from vivace.engine.runners.cuda.rows.launches import WideProduct
from vivace.engine.runners.cuda.rows.passes import RowInput, batch_plans
from vivace.engine.runners.cuda.rows.product import Tile
from vivace.engine.runners.cuda.runner import CudaRunner
from vivace.engine.runners.cuda.weights.build import build_model, random_weights

MOST = 64  # rows of a pass
USERS = (1, 2, 4, 8, 16, 32, 64)
MUST = {1: 1500, 2: 2600, 4: 4600, 8: 7000, 16: 9000, 32: 14500, 64: 20000}
CONTEXT = 700  # tokens of the shortest sequence; they end below 1,024, where the attention has one part
STEPS = 150
COMPARED = 12  # tokens of each sequence
FIRST = 5  # what every sequence says first
REPLAYS = 20
# Other cuts: rows, changes of the tuning. One compiled module each.
CUTS: list[tuple[int, dict[str, Any]]] = [
    (4, {"attention_cluster": 16, "attention_ranks": 1}),
    (8, {"attention_cluster": 8, "attention_ranks": 2}),
    (8, {"attention_cluster": 2, "attention_ranks": 8}),
    (16, {"attention_cluster": 4, "attention_ranks": 4}),
    (16, {"is_wide": True}),
    (32, {"attention_cluster": 4, "attention_ranks": 4}),
    (64, {"attention_cluster": 4, "attention_ranks": 4}),
    (64, {"early_blocks": 4}),
    (32, {"is_wide": False}),
    (64, {"is_wide": False}),
]
TILES = {  # of products over 64 rows
    "gate_up": [Tile(128, 8, 3), Tile(64, 4, 2), Tile(128, 4, 2)],
    "down": [Tile(64, 4, 3), Tile(32, 4, 2), Tile(64, 8, 2)],
    "qkv": [Tile(64, 4, 3), Tile(16, 4, 3)],
    "out": [Tile(64, 4, 3), Tile(16, 4, 3)],
    "head": [Tile(128, 8, 3)],
}


TILES_32 = {
    "gate_up": [Tile(64, 4, 2), Tile(128, 4, 3), Tile(32, 4, 3), Tile(64, 8, 3)],
    "down": [Tile(64, 4, 3), Tile(32, 4, 3), Tile(32, 4, 2)],
    "qkv": [Tile(64, 4, 3), Tile(16, 4, 3), Tile(32, 4, 2)],
    "out": [Tile(64, 4, 3), Tile(16, 4, 3), Tile(32, 4, 2)],
    "head": [Tile(64, 4, 3), Tile(128, 8, 3), Tile(64, 4, 4)],
}


class Letters:
    end_tokens = frozenset({3})

    def token_bytes(self, token: int) -> bytes:
        return bytes([token % 256])


def sampling_of(seq: int) -> SamplingSpec:
    return (SamplingSpec(), SamplingSpec(1.0, 7 + seq), SamplingSpec(40.0, (1 << 40) + seq))[seq % 3]


def length_of(seq: int, context: int) -> int:
    return context + seq * 37 % 100


def compile_products() -> None:
    """Compile the products while the weights are made. What fails here is shown where it is used."""
    columns, down = SHAPE.hidden, Plan(SHAPE, 8, 64, is_batch=True).down_slices
    for rows in (64, 32):
        for name, count in (("gate_up", 2 * SHAPE.ffn), ("down", columns), ("qkv", SHAPE.qkv_rows)):
            tile = product.tile_for(name, rows)
            wide, slices = (down_columns(SHAPE), down[1]) if name == "down" else (columns, launches.SLICES)
            blocks = wide // (down[0] if name == "down" else 1) // slices // product.BLOCK
            with contextlib.suppress(Exception):
                product._multiply.warmup(
                    *(torch.int8, torch.int8, torch.float32, count, rows, wide, slices, blocks, tile.rows),
                    grid=(1, 1),
                    num_warps=tile.warps,
                    num_stages=tile.stages,
                )


class Bench:
    def __init__(self) -> None:
        begun = time.monotonic()
        blocks = torch.cuda.get_device_properties(0).multi_processor_count
        modules = Modules(None)
        plans = batch_plans(SHAPE, 8, blocks, 16, MOST)
        self.base = {plan.tokens: plan for plan in plans}
        modules.compile([Plan(SHAPE, 8, 1, blocks), *plans, *(self.variant(*cut) for cut in CUTS)])
        self._modules, self._loaded = modules, dict[Plan, Launcher]()
        tiles = threading.Thread(target=compile_products)
        tiles.start()
        plain = random_weights(SHAPE, 1, "cuda")
        model, dense = build_model(SHAPE, plain, 8, "cuda", 4096)
        self.runner = CudaRunner(
            "random", model, dense, Letters(), bits=8, context_tokens=64 * 2048, blocks=blocks,
            make_launcher=self.load, max_rows=MOST,
        )  # fmt: skip
        tiles.join()
        self.runner._kv.normal_()
        self.passes = self.runner._row_passes
        self.tokens: dict[int, int] = {}
        self.starts: dict[int, int] = {}
        self.passes.warm_up(2048)  # no graph is captured while something is timed
        print(f"ready after {time.monotonic() - begun:.0f} s", flush=True)

    def load(self, plan: Plan) -> Launcher:
        if plan not in self._loaded:
            self._loaded[plan] = self._modules.load(plan)
        return self._loaded[plan]

    def variant(self, rows: int, change: dict[str, Any]) -> Plan:
        plan = self.base[rows]
        return replace(plan, tuning=replace(plan.tuned, **change))

    def begin(self, users: int, context: int = CONTEXT) -> None:
        """Let every sequence stand behind its context, whose keys and values are anything."""
        self.runner._flights.drop_all()
        for seq in range(users):
            self.starts[seq], self.tokens[seq] = length_of(seq, context), FIRST
            self.runner.trim(seq, self.starts[seq])  # the same pages again: what is in them is its past
            self.runner._pages.reserve(seq, 0, self.starts[seq])
            self.runner._lengths[seq] = self.starts[seq]

    def step_alone(self, seq: int, steps_ahead: int) -> None:
        span = Span(seq, self.starts[seq], [self.tokens[seq]])
        (self.tokens[seq],) = self.runner.decode(span, sampling_of(seq), steps_ahead)
        self.starts[seq] += 1

    def step_rows(self, seqs: Sequence[int], steps_ahead: int = 1) -> None:
        rows = [DecodeRow(seq, self.starts[seq], self.tokens[seq], sampling_of(seq)) for seq in seqs]
        for seq, said in zip(seqs, self.runner.decode_rows(rows, steps_ahead), strict=True):
            if isinstance(said, list):
                self.tokens[seq], self.starts[seq] = said[-1], self.starts[seq] + 1

    def written(self, seq: int, context: int) -> torch.Tensor:
        """Return the keys and values behind the context, as bits."""
        self.runner._passes.synchronize()
        begin, kv = length_of(seq, context), self.runner._kv
        at = torch.arange(begin, begin + COMPARED)
        pages = torch.tensor(self.runner._pages.table(seq))[at // 64].to(kv.device)
        return kv[:, pages, :, :, (at % 64).to(kv.device)].view(torch.int16).clone()

    @contextlib.contextmanager
    def using(self, plan: Plan) -> Iterator[None]:
        """Let passes of that many rows be another variant."""
        passes, rows = self.passes, plan.tokens
        before = passes._plans[rows], passes._launchers.pop(rows, None), dict(passes._graphs)
        passes._plans[rows] = plan
        passes._graphs = {key: graph for key, graph in before[2].items() if key[0] != rows}
        try:
            yield
        finally:
            passes._plans[rows] = before[0]
            passes._launchers.pop(rows, None)
            if before[1] is not None:
                passes._launchers[rows] = before[1]
            passes._graphs = before[2]

    def pass_us(self, users: int, context: int = CONTEXT) -> float:
        """Return microseconds of one pass on the device, the least of three rounds."""
        self.begin(users, context)
        inputs = []
        for seq in range(users):
            self.runner._reserve_row(seq, self.starts[seq])
            inputs.append(RowInput(seq, self.starts[seq], FIRST, sampling_of(seq)))
        self.passes.collect(self.passes.start(inputs), users)
        size = next(size for size in self.passes._plans if size >= users)
        plan = self.passes._plans[size]
        graph = self.passes._graphs[size, max(plan.parts_for(row.position + 1) for row in inputs)]
        found = []
        for _ in range(3):
            begin, end = Event(enable_timing=True), Event(enable_timing=True)  # type: ignore[no-untyped-call,unused-ignore]
            begin.record()
            for _ in range(REPLAYS):
                graph.replay()
            end.record()
            end.synchronize()
            found.append(float(begin.elapsed_time(end)) / REPLAYS * 1e3)
        return min(found)


def attempt(what: str, work: Callable[[], str], until: float) -> None:
    """Print what came of one piece of work, or why nothing did."""
    if time.monotonic() > until:
        return
    begun = time.monotonic()
    try:
        found = work()
    except Exception as error:  # noqa: BLE001 - one that fails must not cost the others their time
        traceback.print_exc(limit=-4)
        if "CUDA error" in str(error):  # nothing works in this process any more
            sys.exit(f"{what}: {str(error).splitlines()[0]}")
        found = f"FAILED {type(error).__name__}: {str(error)[:300]}"
    print(f"{what:34} {found}   [{time.monotonic() - begun:.1f} s]", flush=True)


def compare(bench: Bench, users: int, context: int) -> str:
    """Compare what some sequences say and write alone with what they do in a pass of all."""
    some = range(0, users, max(1, users // 6))
    bench.begin(users, context)
    alone = {}
    for seq in some:
        said = []
        for _ in range(COMPARED):
            bench.step_alone(seq, 0)
            said.append(bench.tokens[seq])
        alone[seq] = (said, bench.written(seq, context))
    bench.begin(users, context)
    together: dict[int, list[int]] = {seq: [] for seq in some}
    for _ in range(COMPARED):
        bench.step_rows(range(users))
        for seq in some:
            together[seq].append(bench.tokens[seq])
    tokens = sum(alone[seq][0] == together[seq] for seq in some)
    kv = [(bench.written(seq, context) != alone[seq][1]).float().mean().item() for seq in some]
    distinct = len({token for said, _ in alone.values() for token in said})
    same = f"tokens the same in {tokens} of {len(some)} ({distinct} different ones)"
    return f"{same}, keys and values that differ: {max(kv):.2%}"


def same(bench: Bench, until: float, cases: Sequence[tuple[int, int]]) -> None:
    for users, context in cases:
        attempt(f"same: {users} users at {context}", lambda u=users, c=context: compare(bench, u, c), until)  # type: ignore[misc]


def few(bench: Bench, until: float) -> None:
    same(bench, until, ((2, 900), (16, 900), (4, 1000), (8, 2000)))
    users(bench, until, USERS[:5])


def many(bench: Bench, until: float) -> None:
    same(bench, until, ((64, 900), (32, 1000)))
    users(bench, until, USERS[5:])
    kernels(bench, until)


def wide(bench: Bench, until: float) -> None:
    """Run every launch of a pass by itself, and name the first that fails."""
    del until
    passes, plan = bench.passes, bench.base[64]
    bench.begin(64)
    for seq in range(64):
        bench.runner._reserve_row(seq, bench.starts[seq])
    inputs = [RowInput(seq, bench.starts[seq], FIRST, sampling_of(seq)) for seq in range(64)]
    passes._write(1, 64, plan, inputs)
    launcher = bench.load(plan)
    for index, launch in enumerate(launches.row_launches(plan, passes._model, passes._buffers, 1)):
        name = launch.kernel if isinstance(launch, Launch) else f"product {launch.name}"
        try:
            passes._run_launch(launcher, launch)
            torch.cuda.synchronize()
        except Exception as error:  # noqa: BLE001 - whatever it is, it is what we look for
            print(f"wide: launch {index}, {name}: {str(error).splitlines()[0]}", flush=True)
            print(launch.size if isinstance(launch, Launch) else launch.cut, flush=True)
            sys.exit(1)
        if isinstance(launch, WideProduct) and index < 20:
            some = launch.sums[:, :, :256].cpu()
            weights = launch.weights[: 256 * launch.digits.shape[2]].cpu()
            found = torch.equal(some, product.plain_sums(launch.digits.cpu(), weights, launch.cut))
            print(f"wide: {name} is {'the same' if found else 'DIFFERENT'}", flush=True)
    print(f"wide: all {index + 1} launches ran; chosen {passes._buffers.chosen[:8].tolist()}", flush=True)


def rate(bench: Bench, users: int) -> str:
    """Return tok/s on the host's clock, and what of a pass is the device's."""
    bench.begin(users)
    seqs = range(users)

    def step() -> None:
        if users == 1:
            bench.step_alone(0, 2)
        else:
            bench.step_rows(seqs)

    for _ in range(10):
        step()
    before = sum(bench.starts[seq] for seq in seqs)
    begun = time.perf_counter()
    for _ in range(STEPS):
        step()
    spent = time.perf_counter() - begun
    said = sum(bench.starts[seq] for seq in seqs) - before
    device = (
        "" if users == 1 else f"device {bench.pass_us(users):6.0f} µs, 1.2k {bench.pass_us(users, 1200):6.0f}"
    )
    return f"{said / spent:7.0f} tok/s (must {MUST[users]:6}), {spent / STEPS * 1e6:6.0f} µs a pass, {device}"


def users(bench: Bench, until: float, counts: Sequence[int]) -> None:
    for count in counts:
        attempt(f"users: {count}", lambda count=count: rate(bench, count), until)  # type: ignore[misc]


def kernels(bench: Bench, until: float) -> None:
    def profile(count: int) -> str:
        from torch.profiler import ProfilerActivity, profile

        bench.pass_us(count)
        size = next(size for size in BATCH_ROWS if size >= count)
        graph = next(graph for key, graph in bench.passes._graphs.items() if key[0] == size)
        with profile(activities=[ProfilerActivity.CUDA]) as seen:
            for _ in range(3):
                graph.replay()
            torch.cuda.synchronize()
        lines = [
            f"\n    {event.key[:40]:40} {event.count // 3:4} x {event.device_time:7.2f} µs"
            for event in sorted(seen.key_averages(), key=lambda e: -e.device_time_total)[:12]
        ]
        return "".join(lines)

    for count in (64, 32, 16):
        attempt(f"kernels: {count} rows", lambda count=count: profile(count), until)  # type: ignore[misc]


def variants(bench: Bench, until: float) -> None:
    def tiled_32(name: str, tile: Tile) -> str:
        before = product.TILES.get((name, 32))
        product.TILES[name, 32] = tile
        try:
            return cut(32, {})
        finally:
            product.TILES.pop((name, 32))
            if before:
                product.TILES[name, 32] = before

    def cut(rows: int, change: dict[str, Any]) -> str:
        with bench.using(bench.variant(rows, change) if change else bench.base[rows]):
            return f"{bench.pass_us(rows):7.0f} µs, 1.2k {bench.pass_us(rows, 1200):7.0f}"

    def tiled(name: str, tile: Tile) -> str:
        before = product.TILES.get((name, 64))
        product.TILES[name, 64] = tile
        try:
            return cut(64, {})
        finally:
            product.TILES.pop((name, 64))
            if before:
                product.TILES[name, 64] = before

    def serial() -> str:
        launches.WIDE_OVERLAPS = False
        try:
            return cut(64, {})
        finally:
            launches.WIDE_OVERLAPS = True

    for rows, change in CUTS:
        label = " ".join(f"{key.removeprefix('attention_')}={value}" for key, value in change.items())
        attempt(f"cut: {rows} {label}", lambda r=rows, c=change: cut(r, c), until)  # type: ignore[misc]
    attempt("64 rows, no overlap", serial, until)
    attempt("32 rows as they are", lambda: cut(32, {}), until)
    for name, tiles in TILES_32.items():
        for tile in tiles:
            label = f"32: {name} {tile.rows} rows {tile.warps} warps {tile.stages}"
            attempt(label, lambda n=name, t=tile: tiled_32(n, t), until)  # type: ignore[misc]
    for name, tiles in TILES.items():  # of 64 rows
        for tile in tiles:
            label = f"tile: {name} {tile.rows} rows {tile.warps} warps {tile.stages}"
            attempt(label, lambda n=name, t=tile: tiled(n, t), until)  # type: ignore[misc]


STAGES = {"few": few, "wide": wide, "many": many, "variants": variants}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("stages", nargs="*", default=list(STAGES))
    parser.add_argument("--limit-s", type=float, default=100.0)
    parser.add_argument("--inside", action="store_true", help="this is the process of one stage")
    options = parser.parse_args()
    until = time.monotonic() + options.limit_s
    if options.inside:
        STAGES[options.stages[0]](Bench(), until)
        return
    for stage in options.stages:
        left_s = until - time.monotonic()
        if left_s > 0:
            print(f"== {stage}", flush=True)
            command = [sys.executable, __file__, stage, "--inside", "--limit-s", f"{left_s:.0f}"]
            with contextlib.suppress(subprocess.TimeoutExpired):
                subprocess.run(command, timeout=left_s + 15, check=False)


if __name__ == "__main__":
    main()
