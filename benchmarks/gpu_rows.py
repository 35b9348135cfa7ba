"""Passes over rows of several sequences on a GPU, with random weights of the true shape: right, and how fast.

    gpu_rows.py products      the product of 32 and 64 rows, for tiles of several sizes: about 40 s

Needs torch, Triton and a GPU; nothing of the engine is in these numbers. A variant that fails is named and
the others still run. Nothing new is begun after `--limit-s`.
"""

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "src"))

import torch  # type: ignore[import-not-found,unused-ignore]
from torch.cuda import Event  # type: ignore[import-not-found,unused-ignore]

from vivace.engine.runners.cuda.rows.launches import Cut
from vivace.engine.runners.cuda.rows.product import Tile, multiply, plain_sums

HIDDEN, FFN, QKV_ROWS, VOCAB = 1536, 8960, 2048, 151936
COPIES = 12  # of the weights, so that they come from memory and not from a cache
PRODUCTS = {  # rows of the weights, columns, how columns are summed
    "gate+up": (2 * FFN, HIDDEN, Cut(1, 8, 192)),
    "down": (HIDDEN, FFN, Cut(4, 7, 320)),
    "qkv": (QKV_ROWS, HIDDEN, Cut(1, 8, 192)),
    "head": (VOCAB, HIDDEN, Cut(1, 8, 192)),
}
TILES = {
    "gate+up": [Tile(64, 4, 3), Tile(128, 8, 3), Tile(64, 4, 2), Tile(128, 4, 2), Tile(64, 4, 4)],
    "down": [Tile(64, 4, 2), Tile(64, 4, 3), Tile(32, 4, 2), Tile(64, 8, 2)],
    "qkv": [Tile(64, 4, 3), Tile(32, 4, 3), Tile(16, 4, 3), Tile(32, 2, 4)],
    "head": [Tile(64, 4, 3), Tile(128, 8, 3)],
}


def graph_us(work: Callable[[], None], replays: int = 5) -> float:
    """Return microseconds of one replay of `work`, the least of three."""
    work()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
    found = []
    for _ in range(3):
        begin, end = Event(enable_timing=True), Event(enable_timing=True)  # type: ignore[no-untyped-call,unused-ignore]
        begin.record()
        for _ in range(replays):
            graph.replay()
        end.record()
        end.synchronize()
        found.append(float(begin.elapsed_time(end)) / replays * 1e3)
    return min(found)


def time_product(name: str, rows: int, tile: Tile) -> str:
    """Return what one product takes, and whether its sums are those of plain torch."""
    count, columns, cut = PRODUCTS[name]
    copies = 2 if name == "head" else COPIES
    weights = torch.randint(-127, 128, (copies, count * columns), dtype=torch.int8, device="cuda")
    digits = torch.randint(-127, 128, (2, rows, columns), dtype=torch.int8, device="cuda")
    sums = torch.full((cut.parts, rows, count), float("nan"), device="cuda")
    multiply(digits, weights[0], sums, cut, tile)
    some = min(count, 512)  # rows of the weights that are compared
    wanted = plain_sums(digits.cpu(), weights[0, : some * columns].cpu(), cut)
    verdict = "same" if torch.equal(sums[:, :, :some].cpu(), wanted) else "DIFFERENT"

    def work() -> None:
        for copy in range(copies):
            multiply(digits, weights[copy], sums, cut, tile)

    return f"{graph_us(work) / copies:7.1f} µs  {verdict}"


def products(until: float) -> None:
    for rows in (64, 32):
        for name, tiles in TILES.items():
            for tile in tiles:
                if time.monotonic() > until:
                    return print("The time is over.", flush=True)
                try:
                    found = time_product(name, rows, tile)
                except Exception as error:  # noqa: BLE001 - one variant must not cost the others their time
                    found = f"FAILED {type(error).__name__}: {str(error).splitlines()[:1]}"
                label = f"{tile.rows} rows, {tile.warps} warps, {tile.stages} stages"
                print(f"{rows} x {name:8} {label:28} {found}", flush=True)
    return None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("stages", nargs="*", default=["products"])
    parser.add_argument("--limit-s", type=float, default=45.0)
    options = parser.parse_args()
    until = time.monotonic() + options.limit_s
    print(torch.cuda.get_device_name(), torch.__version__, flush=True)
    for stage in options.stages:
        {"products": products}[stage](until)


if __name__ == "__main__":
    main()
