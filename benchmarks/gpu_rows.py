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
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent / "src"))

import torch  # type: ignore[import-not-found,unused-ignore]

from gpu_attempt import attempt
from gpu_row_bench import COMPARED, CUTS, FIRST, Bench, sampling_of
from vivace.engine.runners.cuda.decode.launch import Launch
from vivace.engine.runners.cuda.decode.plan import BATCH_ROWS
from vivace.engine.runners.cuda.rows import launches, product
from vivace.engine.runners.cuda.rows.launches import WideProduct
from vivace.engine.runners.cuda.rows.passes import RowInput
from vivace.engine.runners.cuda.rows.product import Tile

USERS = (1, 2, 4, 8, 16, 32, 64)
MUST = {1: 1500, 2: 2600, 4: 4600, 8: 7000, 16: 9000, 32: 14500, 64: 20000}
STEPS = 150
TILES = {  # of products, by the rows of a pass
    32: {
        "gate_up": [Tile(64, 4, 2), Tile(128, 4, 3), Tile(32, 4, 3), Tile(64, 8, 3)],
        "down": [Tile(64, 4, 3), Tile(32, 4, 3), Tile(32, 4, 2)],
        "qkv": [Tile(64, 4, 3), Tile(16, 4, 3), Tile(32, 4, 2)],
        "out": [Tile(64, 4, 3), Tile(16, 4, 3), Tile(32, 4, 2)],
        "head": [Tile(64, 4, 3), Tile(128, 8, 3), Tile(64, 4, 4)],
    },
    64: {
        "gate_up": [Tile(128, 8, 3), Tile(64, 4, 2), Tile(128, 4, 2)],
        "down": [Tile(64, 4, 3), Tile(32, 4, 2), Tile(64, 8, 2)],
        "qkv": [Tile(64, 4, 3), Tile(16, 4, 3)],
        "out": [Tile(64, 4, 3), Tile(16, 4, 3)],
        "head": [Tile(128, 8, 3)],
    },
}


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
    def cut(rows: int, change: dict[str, Any]) -> str:
        with bench.using(bench.variant(rows, change) if change else bench.base[rows]):
            return f"{bench.pass_us(rows):7.0f} µs, 1.2k {bench.pass_us(rows, 1200):7.0f}"

    def tiled(rows: int, name: str, tile: Tile) -> str:
        before = product.TILES.get((name, rows))
        product.TILES[name, rows] = tile
        try:
            return cut(rows, {})
        finally:
            product.TILES.pop((name, rows))
            if before:
                product.TILES[name, rows] = before

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
    for rows, tried in TILES.items():
        for name, tiles in tried.items():
            for tile in tiles:
                label = f"tile: {rows} {name} {tile.rows} rows {tile.warps} warps {tile.stages}"
                attempt(label, lambda r=rows, n=name, t=tile: tiled(r, n, t), until)  # type: ignore[misc]


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
