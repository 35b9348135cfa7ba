"""Capture passes over a few tokens as CUDA graphs and replay them: one call of the host for a whole pass.

Owns the compiled modules, the buffers of each pass size and which graph serves which context. Does not own
what a pass computes (`launches`) or which sequence it is for (`runner`).
"""

import functools
import gc
import struct
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import torch  # type: ignore[import-not-found,unused-ignore]

from vivace.engine.runners.base import SamplingSpec, WhileRunning
from vivace.engine.runners.cuda.decode.clusters import MOST_PARTS
from vivace.engine.runners.cuda.decode.launch import Launch
from vivace.engine.runners.cuda.decode.launches import (
    ACTIVE,
    COUNT,
    MAX_STOPS,
    POSITION,
    REMAINING,
    RING_WORDS,
    SEED,
    SEED_HIGH,
    STATE_WORDS,
    STEP,
    STOP,
    STOPS,
    TEMPERATURE,
    Buffers,
    Model,
    embedding,
    ending_launches,
    make_buffers,
    pass_launches,
)
from vivace.engine.runners.cuda.decode.plan import Plan, fitting_passes
from vivace.engine.runners.cuda.kernels.copies import Staged
from vivace.engine.runners.cuda.kv.pool import bits_of

GREEDY = SamplingSpec()
CAPTURING = threading.Lock()  # held while a graph is captured
MAX_PASS_NUMBER = 1 << 30
ROUNDS_BETWEEN_LOOKS = 1 << 14  # of waiting: about 3 ms, longer than a step


class Launcher(Protocol):
    """What runs a launch: a compiled module on the GPU, or the emulator of the tests."""

    def run(self, launch: Launch) -> None: ...


MakeLauncher = Callable[[Plan], Launcher]


Pool: TypeAlias = tuple[int, int]


def capture_work(work: Callable[[], None], pool: Pool) -> torch.cuda.CUDAGraph:
    """Capture what `work` puts on the stream as one graph. Graphs of one pool must not overlap."""
    work()  # loads the code and sets the attributes, which may not happen while capturing
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    gc.disable()  # an old graph that is freed while this one is captured would spoil it
    try:
        # Other threads wait for copies and lock memory meanwhile, which would spoil a capture by default.
        mode = "thread_local"
        with CAPTURING, torch.cuda.graph(graph, pool=pool, capture_error_mode=mode):  # type: ignore[arg-type,unused-ignore]
            work()
    finally:
        gc.enable()
    return graph


def capture(launcher: Launcher, launches: Iterable[Launch], pool: Pool) -> torch.cuda.CUDAGraph:
    """Capture all launches as one graph."""
    once = list(launches)

    def work() -> None:
        for launch in once:
            launcher.run(launch)

    return capture_work(work, pool)


@dataclass
class Pass:
    """All that one size of pass needs."""

    plan: Plan
    launcher: Launcher
    buffers: Buffers
    inputs: Staged  # state, then tokens
    near: "tuple[Plan, Launcher] | None" = None  # for short contexts: the same numbers, sooner

    def way(self, parts: int) -> "tuple[Plan, Launcher]":
        """Return what runs the pass where its attention has so many parts."""
        return self.near if self.near and parts <= MOST_PARTS else (self.plan, self.launcher)


class Passes:
    def __init__(
        self,
        model: Model,
        bits: int,
        kv: torch.Tensor,
        max_pages: int,
        blocks: int,
        make_launcher: MakeLauncher,
    ) -> None:
        self._model, self._bits, self._kv, self._blocks = model, bits, kv, blocks
        self._is_on_gpu = kv.is_cuda
        self._pool: Pool = torch.cuda.graph_pool_handle() if kv.is_cuda else (0, 0)
        self._make_launcher = make_launcher
        self.pages = torch.zeros(max_pages, dtype=torch.int32, device=kv.device)
        self.ring = self._host(RING_WORDS, torch.int64)
        self._page_numbers = Staged(self.pages)
        self._ring_words = self.ring.numpy()
        self._table: list[int] = []  # as the device has it
        self.sizes = fitting_passes(model.shape, bits)
        self._passes: dict[int, Pass] = {}
        self._graphs: dict[tuple[int, int, bool], torch.cuda.CUDAGraph] = {}
        self._number = 0  # of the last pass that chose

    def _host(self, size: int, dtype: torch.dtype) -> torch.Tensor:
        tensor = torch.zeros(size, dtype=dtype)
        return tensor.pin_memory() if self._is_on_gpu else tensor

    def pass_of_size(self, tokens: int) -> Pass:
        """Return the pass of exactly this size, made on first use."""
        if tokens not in self._passes:
            plan = Plan(self._model.shape, self._bits, tokens, self._blocks, kv_bits=bits_of(self._kv))
            buffers = make_buffers(plan, self._kv, len(self.pages), self.ring, self.pages)
            near = (plan.near, self._make_launcher(plan.near)) if plan.near else None
            launcher = self._make_launcher(plan)
            self._passes[tokens] = Pass(plan, launcher, buffers, Staged(buffers.inputs), near)
        return self._passes[tokens]

    def enqueue(self, work: Callable[[], object]) -> None:
        """Put work behind all that is in flight. The GPU's stream is the queue; a test may have its own."""
        work()

    def set_page_table(self, table: Sequence[int]) -> None:
        """Set the pages that the next passes use."""
        if table == self._table:
            return
        self._table = list(table)
        self._page_numbers.words[: len(table)] = table
        self.enqueue(lambda: self._page_numbers.send(len(table)))

    def write(
        self,
        chosen: Pass,
        start: int,
        tokens: Sequence[int],
        sampling: SamplingSpec = GREEDY,
        *,
        step: int = 0,
        streams: bool = False,
    ) -> None:
        """Write state and tokens of the next pass in one copy. Nothing that reads them may be in flight."""
        words = chosen.inputs.words
        words[:] = 0
        words[POSITION], words[COUNT], words[STEP] = start, len(tokens), step
        words[SEED], words[SEED_HIGH] = _signed(sampling.seed), _signed(sampling.seed >> 32)
        words[TEMPERATURE] = struct.unpack("<i", struct.pack("<f", sampling.temperature))[0]
        if streams:
            stops = sorted(sampling.stops)[
                :MAX_STOPS
            ]  # the device saves itself work; the host sees all of them
            words[ACTIVE], words[REMAINING], words[STOPS] = 1, 2**31 - 1, len(stops)
            words[STOP : STOP + len(stops)] = stops
        words[STATE_WORDS : STATE_WORDS + len(tokens)] = tokens
        self.enqueue(lambda: chosen.inputs.send(len(words)))

    def run(
        self, tokens: Sequence[int], start: int, sampling: SamplingSpec = GREEDY, *, number: int = 0
    ) -> Buffers:
        """Start one pass over a few tokens. Its logits are in the buffers when the stream is done with it."""
        chosen = self._prepared(len(tokens), start)
        self.write(chosen, start, tokens, sampling, step=number)
        self.replay(chosen, start + len(tokens), streams=False)
        return chosen.buffers

    def same_split_length(self, start: int, tokens: int) -> int:
        """Return how many of these tokens may share a pass with the results that each has alone."""
        return self.pass_of_size(1).plan.same_split_length(start, tokens)

    def sample(
        self, tokens: Sequence[int], start: int, sampling: SamplingSpec, while_running: WhileRunning
    ) -> Iterator[int]:
        """Run one pass over a few tokens. Yield the token sampled after each. Logits stay on the device."""
        self._prepared(len(tokens), start)  # a trial run writes to the ring, too
        self.clear_ring(len(tokens))
        self._number = self._number % MAX_PASS_NUMBER + 1  # an earlier pass may write what nobody waited for
        self.run(tokens, start, sampling, number=self._number)
        while_running()
        for index in range(len(tokens)):
            yield self.wait_for(index, self._number + 1)

    def logits_behind(self, x: torch.Tensor) -> torch.Tensor:
        """Start the end of a pass for a token whose layers another pass has computed. Return [1, vocab]."""
        return self._end(x, 0, GREEDY).logits

    def sample_behind(self, x: torch.Tensor, position: int, sampling: SamplingSpec) -> int:
        """Return the token that is sampled behind the one at `position`, which `x` is of."""
        self.clear_ring(1)
        self._number = self._number % MAX_PASS_NUMBER + 1
        self._end(x, position, sampling)
        return self.wait_for(0, self._number + 1)

    def _end(self, x: torch.Tensor, position: int, sampling: SamplingSpec) -> Buffers:
        chosen = self.pass_of_size(1)
        self.write(chosen, position, [0], sampling, step=self._number)
        self.enqueue(lambda: chosen.buffers.x.copy_(x))
        for launch in ending_launches(chosen.plan, self._model, chosen.buffers, streams=False):
            self.enqueue(functools.partial(chosen.launcher.run, launch._replace(overlaps=False)))
        return chosen.buffers

    def _prepared(self, tokens: int, start: int) -> Pass:
        chosen = self.pass_of_size(next(each for each in self.sizes if each >= tokens))
        self.prepare(chosen, chosen.plan.parts_for(start + tokens), streams=False)
        return chosen

    def clear_ring(self, words: int) -> None:
        self._ring_words[:words] = 0

    def wait_for(self, index: int, step: int) -> int:
        """Wait for the token of a step in the ring. A word has its step number, so old ones are ignored."""
        words, rounds = self._ring_words, 0
        while True:
            word = int(words[index])
            if word >> 32 == step:
                return word & 0xFFFFFFFF
            rounds += 1
            if rounds % ROUNDS_BETWEEN_LOOKS == 0 and self._is_over() and int(words[index]) >> 32 != step:
                raise RuntimeError("The GPU has ended its work without giving the token that it owes.")

    def _is_over(self) -> bool:
        """Return whether nothing is in flight. Raise if work on the device has failed."""
        return not self._is_on_gpu or torch.cuda.current_stream().query()

    def warm_up(self, most_tokens: int) -> None:
        """Capture every pass up to this context, so that no turn waits for it."""
        for size in self.sizes:
            chosen = self.pass_of_size(size)
            for parts in {chosen.plan.parts_for(length) for length in range(size, most_tokens + 1, 64)}:
                self.prepare(chosen, parts, streams=False)
                if size == 1:
                    self.prepare(chosen, parts, streams=True)

    def synchronize(self) -> None:
        """Wait until nothing is in flight."""
        if self._is_on_gpu:
            torch.cuda.current_stream().synchronize()

    def is_ready(self, chosen: Pass, length: int, *, streams: bool) -> bool:
        """Return whether the pass that ends with a context of `length` was captured."""
        return not self._is_on_gpu or (
            (chosen.plan.tokens, chosen.plan.parts_for(length), streams) in self._graphs
        )

    def replay(self, chosen: Pass, length: int, *, streams: bool) -> None:
        """Put the pass on the stream; `length` is the context that it ends with."""
        parts = chosen.plan.parts_for(length)
        if self._is_on_gpu:
            self._graphs[chosen.plan.tokens, parts, streams].replay()
        else:
            for launch in self._launches(chosen, parts, streams):
                self.enqueue(functools.partial(chosen.way(parts)[1].run, launch))

    def prepare(self, chosen: Pass, parts: int, *, streams: bool) -> None:
        """Capture a graph if need be. It overwrites the pass's scratch, so not within a stream."""
        key = (chosen.plan.tokens, parts, streams)
        if not self._is_on_gpu or key in self._graphs:
            return
        before = chosen.buffers.inputs.clone()
        chosen.buffers.inputs.zero_()  # no real token: the trial run writes nothing that lasts
        self._graphs[key] = capture(chosen.way(parts)[1], self._launches(chosen, parts, streams), self._pool)
        chosen.buffers.inputs.copy_(before)

    def _launches(self, chosen: Pass, parts: int, streams: bool) -> Iterator[Launch]:
        plan = chosen.way(parts)[0]
        return pass_launches(plan, self._model, chosen.buffers, parts=parts, streams=streams)

    def embed(self, chosen: Pass) -> None:
        """Lay out the first input of a stream."""
        self.enqueue(lambda: chosen.launcher.run(embedding(chosen.plan, self._model, chosen.buffers)))


def _signed(word: int) -> int:
    word &= 0xFFFFFFFF
    return word - (1 << 32) if word >> 31 else word
