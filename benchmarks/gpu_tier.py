"""KV between the GPU and host memory, with random weights of the true shape: is it the same, and how fast.

    gpu_tier.py lock copies beside logits      all in one process, at most a minute and a half

lock     how long page-locking a slab takes, and how long a pass waits for it
copies   `save` and `load` of 1k, 4k, 16k and 64k tokens through the runner: until the call returns, until the
         copy is done, until the first pass over it; the bytes compared
beside   the same while another sequence decodes, alone and in rows: the longest step with and without them
logits   rows that the host samples (top_p, grammars) in a pass with others: their logits against the same
         alone, to the bit, and total tok/s with none, half and all of the rows sampled by the host

Needs torch, Triton and a GPU, no packages of the engine. Run from the repository's root.
"""

import sys
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).parent.parent / "src"))

import numpy as np
import torch  # type: ignore[import-not-found,unused-ignore]

from vivace.engine.runners.base import DecodeRow, SamplingSpec, Span
from vivace.engine.runners.cuda.decode.plan import Plan
from vivace.engine.runners.cuda.kernels.driver import Modules
from vivace.engine.runners.cuda.kv import host_memory
from vivace.engine.runners.cuda.kv.host_tier import HostKV
from vivace.engine.runners.cuda.model.shape import PAGE_TOKENS
from vivace.engine.runners.cuda.model.shape import QWEN_CODER_1_5B as SHAPE
from vivace.engine.runners.cuda.rows.passes import batch_plans
from vivace.engine.runners.cuda.runner import CudaRunner
from vivace.engine.runners.cuda.weights.build import build_model, random_weights

LENGTHS = (1024, 4096, 16_384, 65_536)
CELLS = 200_000
HOST_BYTES = 12 << 30
PARKED, RESTORED, SPEAKER = 0, 1, 2  # sequences
FIRST = 300  # tokens before the one that decodes
ROWS = 8


class Letters:
    end_tokens = frozenset({3})

    def token_bytes(self, token: int) -> bytes:
        return bytes([token % 256])


class Bench:
    def __init__(self) -> None:
        begun = time.monotonic()
        blocks = torch.cuda.get_device_properties(0).multi_processor_count
        modules = Modules(None)
        modules.compile([Plan(SHAPE, 8, 1, blocks), *batch_plans(SHAPE, 8, blocks, 16, ROWS)])
        model, dense = build_model(SHAPE, random_weights(SHAPE, 1, "cuda"), 8, "cuda", 70_016)
        self.runner = CudaRunner(
            "random", model, dense, Letters(), bits=8, context_tokens=CELLS, blocks=blocks,
            make_launcher=modules.load, max_rows=ROWS, host_bytes=HOST_BYTES,
        )  # fmt: skip
        self.runner._kv.normal_()
        self.runner._row_passes.warm_up(2048)
        print(f"ready after {time.monotonic() - begun:.0f} s", flush=True)

    def fill(self, seq: int, tokens: int) -> None:
        """Let a sequence have this many tokens, whose keys and values are anything."""
        self.runner.trim(seq, 0)
        self.runner._pages.reserve(seq, 0, tokens)
        self.runner._lengths[seq] = tokens

    def held(self, seq: int, tokens: int) -> torch.Tensor:
        pages = self.runner._pages.table(seq)[: tokens // PAGE_TOKENS]
        return self.runner._kv[:, torch.tensor(pages, device="cuda")].view(torch.int16)

    def empty_pages(self) -> None:
        """Let other sequences take all free pages once, so that nothing comes back without a copy."""
        self.fill(20, self.runner._pages.free_pages * PAGE_TOKENS)
        self.runner.trim(20, 0)

    def memory_ready(self) -> float:
        """Wait until locked memory for the largest state is there. Return the seconds that it took."""
        begun = time.monotonic()
        memory = self.runner._host._memory
        while len(memory._free) * memory.slot_bytes < min(host_memory.AHEAD_BYTES, HOST_BYTES):
            time.sleep(0.01)
        return time.monotonic() - begun


def ms_of(work: Callable[[], object]) -> float:
    begun = time.perf_counter()
    work()
    return (time.perf_counter() - begun) * 1e3


def lock(bench: Bench) -> None:
    waited = bench.memory_ready()
    print(f"lock: {host_memory.AHEAD_BYTES >> 20} MiB ahead after another {waited:.2f} s", flush=True)
    memory = bench.runner._host._memory
    found = [ms_of(memory._grow) for _ in range(8)]
    size = host_memory.SLAB_BYTES >> 20
    print(f"lock: a slab of {size} MiB: {median(found):.1f} ms, most {max(found):.1f}", flush=True)
    speaker = Speaker(bench, 1)
    speaker.steps_ms(10)
    plain, beside_it = speaker.steps_ms(40), list[float]()
    growing = threading.Thread(target=lambda: [memory._grow() for _ in range(10)])
    growing.start()
    while growing.is_alive():
        beside_it += speaker.steps_ms(1)
    shown = [f"{median(each):.2f}, most {max(each):.2f}" for each in (plain, beside_it)]
    print(f"lock: steps without {shown[0]}, {len(beside_it)} beside 10 slabs {shown[1]} ms", flush=True)


def copies(bench: Bench) -> None:
    runner = bench.runner
    print("copies: tokens, MB | save: returns, done, GB/s | load: returns, done, GB/s | load and a pass")
    for tokens in LENGTHS:
        megabytes = tokens * SHAPE.kv_bytes_per_token() / 1e6
        rounds = []
        for _ in range(3):
            bench.fill(PARKED, tokens)
            wanted = bench.held(PARKED, tokens).clone() if tokens <= 16_384 else None
            torch.cuda.synchronize()
            begun = time.perf_counter()
            state = runner.save(PARKED)
            returned = time.perf_counter()
            assert isinstance(state, HostKV)
            state.pages[-1].copied.synchronize()  # type: ignore[union-attr]
            saved = time.perf_counter()
            runner.trim(PARKED, 0)
            bench.empty_pages()
            runner._kv.normal_()  # what comes back cannot have been there
            torch.cuda.synchronize()
            loading = time.perf_counter()
            runner.load(RESTORED, state)
            loaded = time.perf_counter()
            runner.finish_loading(RESTORED)
            there = time.perf_counter()
            same = wanted is None or bool((bench.held(RESTORED, tokens) == wanted).all())
            runner.trim(RESTORED, 0)
            bench.empty_pages()
            torch.cuda.synchronize()
            passed = time.perf_counter()
            runner.load(RESTORED, state)
            runner.trim(RESTORED, tokens - 1)
            runner.decode(Span(RESTORED, tokens - 1, [5]), SamplingSpec())
            spoke = time.perf_counter()
            runner.trim(RESTORED, 0)
            state.free()
            rounds.append([each * 1e3 for each in (returned - begun, saved - begun, loaded - loading,
                                                   there - loading, spoke - passed)] + [same])  # fmt: skip
        best = [min(each[index] for each in rounds) for index in range(5)]
        right = "same" if all(each[5] for each in rounds) else "DIFFERENT"
        saves = f"{best[0]:6.2f} {best[1]:7.2f} ms {megabytes / best[1]:5.1f}"
        loads = f"{best[2]:6.2f} {best[3]:7.2f} ms {megabytes / best[3]:5.1f}"
        print(
            f"copies: {tokens:6} {megabytes:6.0f} | {saves} | {loads} | {best[4]:7.2f} ms | {right}",
            flush=True,
        )


class Speaker:
    """A sequence, or several in rows, that decode all the time."""

    def __init__(self, bench: Bench, rows: int) -> None:
        self._runner, self._rows = bench.runner, rows
        self._at, self._tokens = FIRST, [5] * rows
        for row in range(rows):
            bench.fill(SPEAKER + row, FIRST)

    def step(self) -> None:
        if self._rows == 1:
            span = Span(SPEAKER, self._at, self._tokens)
            self._tokens = self._runner.decode(span, SamplingSpec(), 2)
        else:
            each = enumerate(self._tokens)
            rows = [DecodeRow(SPEAKER + row, self._at, token, SamplingSpec()) for row, token in each]
            self._tokens = [
                each[-1] if isinstance(each, list) else 0 for each in self._runner.decode_rows(rows, 1)
            ]
        self._at += 1

    def steps_ms(self, count: int) -> list[float]:
        return [ms_of(self.step) for _ in range(count)]


def beside(bench: Bench) -> None:
    runner = bench.runner
    print("beside: rows, tokens | steps: median, most | save: call, steps beside | load: call, steps beside")
    for rows in (1, ROWS):
        for tokens in (4096, 16_384, 65_536):
            bench.fill(PARKED, tokens)
            bench.memory_ready()
            speaker = Speaker(bench, rows)
            speaker.steps_ms(10)
            plain = speaker.steps_ms(40)
            begun = time.perf_counter()
            state = runner.save(PARKED)
            saving = (time.perf_counter() - begun) * 1e3
            assert isinstance(state, HostKV)
            runner.trim(PARKED, 0)
            out = speaker.steps_ms(60)
            bench.runner._flights.drop_all()
            bench.empty_pages()
            speaker.steps_ms(5)
            begun = time.perf_counter()
            runner.load(RESTORED, state)
            loading = (time.perf_counter() - begun) * 1e3
            into = speaker.steps_ms(60)
            runner.finish_loading(RESTORED)
            runner.trim(RESTORED, 0)
            state.free()
            shown = [f"{median(each):5.2f} {max(each):5.2f}" for each in (plain, out, into)]
            print(
                f"beside: {rows:4} {tokens:6} | {shown[0]} | {saving:5.2f} {shown[1]} | "
                f"{loading:5.2f} {shown[2]} ms",
                flush=True,
            )


def logits(bench: Bench) -> None:
    runner = bench.runner
    for rows in (2, ROWS):
        alone = {}
        for seq in range(SPEAKER, SPEAKER + rows):
            bench.fill(seq, FIRST)
            alone[seq] = runner.forward([Span(seq, FIRST, [seq], want=1)]).copy()
            runner.trim(seq, FIRST)
        asked = [DecodeRow(seq, FIRST, seq, None if seq % 2 else SamplingSpec()) for seq in alone]
        found = runner.decode_rows(asked, 1)
        same = 0
        for row, each in zip(asked, found, strict=True):
            wanted = alone[row.seq]
            same += each == [wanted.argmax()] if isinstance(each, list) else np.array_equal(each, wanted)  # type: ignore[arg-type]
        print(f"logits: {same} of {rows} rows are the same as alone", flush=True)
        runner._flights.drop_all()
    for share in (0, 2, 1):
        print(
            f"logits: {ROWS} rows, {share and ROWS // share} by the host: {host_rate(bench, share):.0f} tok/s"
        )


def host_rate(bench: Bench, share: int) -> float:
    """Return tok/s of all rows; every `share`-th is sampled by the host, which takes the best."""
    at = dict.fromkeys(range(SPEAKER, SPEAKER + ROWS), (FIRST, 5))
    for seq in at:
        bench.fill(seq, FIRST)
    said, begun = 0, time.perf_counter()
    for _ in range(100):
        asked = [
            DecodeRow(seq, *each, None if share and seq % share == 0 else SamplingSpec())
            for seq, each in at.items()
        ]
        for row, each in zip(asked, bench.runner.decode_rows(asked, 1), strict=True):
            if each is not None:
                said += 1
                at[row.seq] = (row.start + 1, each[-1] if isinstance(each, list) else int(each.argmax()))
    bench.runner._flights.drop_all()
    return said / (time.perf_counter() - begun)


STAGES: dict[str, Callable[[Bench], None]] = {
    "lock": lock,
    "copies": copies,
    "beside": beside,
    "logits": logits,
}


def main() -> None:
    bench = Bench()
    for stage in sys.argv[1:] or list(STAGES):
        begun = time.monotonic()
        try:
            STAGES[stage](bench)
        except Exception as error:  # noqa: BLE001 - one stage that fails must not cost the others their time
            traceback.print_exc(limit=-4)
            print(f"{stage}: FAILED {type(error).__name__}: {str(error)[:300]}", flush=True)
        print(f"== {stage}: {time.monotonic() - begun:.1f} s", flush=True)


if __name__ == "__main__":
    main()
