"""Passes over a few tokens, captured once as CUDA graphs and replayed: one call of the host for a whole pass.

Owns the compiled modules, the buffers of each size of pass and which graph serves which context. What a pass
computes is `chain`'s; whose tokens they are is the runner's.
"""

import gc
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch  # type: ignore[import-not-found,unused-ignore]

from vivace.engine.runners.cuda.chain import (
    COUNT,
    POSITION,
    RING_WORDS,
    STATE_WORDS,
    Buffers,
    Launch,
    Model,
    embedding,
    make_buffers,
    pass_launches,
)
from vivace.engine.runners.cuda.plan import PASS_TOKENS, Plan


class Machine(Protocol):
    """What runs a launch: a compiled module on the GPU, or the emulator of the tests."""

    def run(self, launch: Launch) -> None: ...


MakeMachine = Callable[[Plan], Machine]


def capture(machine: Machine, launches: Iterable[Launch], *, repeat: int = 1) -> torch.cuda.CUDAGraph:
    """One graph of all launches, `repeat` times over."""
    once = list(launches)
    for launch in once:  # loads the code and sets the attributes, which may not happen while capturing
        machine.run(launch)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    gc.collect()
    gc.disable()  # an old graph that is freed while this one is captured would spoil it
    try:
        with torch.cuda.graph(graph):
            for _ in range(repeat):
                for launch in once:
                    machine.run(launch)
    finally:
        gc.enable()
    return graph


@dataclass
class Pass:
    """All that one size of pass needs."""

    plan: Plan
    machine: Machine
    buffers: Buffers
    staging: torch.Tensor  # what the host writes and one copy brings over: state, then tokens


class Passes:
    def __init__(
        self,
        model: Model,
        bits: int,
        kv: torch.Tensor,
        most_pages: int,
        blocks: int,
        make_machine: MakeMachine,
    ) -> None:
        self._model, self._bits, self._kv, self._blocks = model, bits, kv, blocks
        self._is_real = kv.is_cuda
        self._make_machine = make_machine
        self.pages = torch.zeros(most_pages, dtype=torch.int32, device=kv.device)
        self.ring = self._host(RING_WORDS, torch.int64)
        self._page_staging = self._host(most_pages, torch.int32)
        self._passes: dict[int, Pass] = {}
        self._graphs: dict[tuple[int, int, bool], torch.cuda.CUDAGraph] = {}

    def _host(self, size: int, dtype: torch.dtype) -> torch.Tensor:
        tensor = torch.zeros(size, dtype=dtype)
        return tensor.pin_memory() if self._is_real else tensor

    def sized(self, tokens: int) -> Pass:
        """The pass of exactly this size, made on first use."""
        if tokens not in self._passes:
            plan = Plan(self._model.shape, self._bits, tokens, self._blocks)
            buffers = make_buffers(plan, self._kv, len(self.pages), self.ring, self.pages)
            staging = self._host(STATE_WORDS + tokens, torch.int32)
            self._passes[tokens] = Pass(plan, self._make_machine(plan), buffers, staging)
        return self._passes[tokens]

    def use_table(self, table: Sequence[int]) -> torch.Tensor:
        """The pages that the next passes read and write; they are given back as the device has them."""
        self._page_staging[: len(table)] = torch.tensor(table, dtype=torch.int32)
        pages = self.pages[: len(table)]
        return pages.copy_(self._page_staging[: len(table)], non_blocking=True)

    def run(self, tokens: Sequence[int], start: int) -> Buffers:
        """One pass over 1 … 32 tokens; its logits are in the buffers once the stream has come so far."""
        size = next(each for each in PASS_TOKENS if each >= len(tokens))
        chosen = self.sized(size)
        staging = chosen.staging
        staging.zero_()
        staging[POSITION], staging[COUNT] = start, len(tokens)
        staging[STATE_WORDS : STATE_WORDS + len(tokens)] = torch.tensor(tokens, dtype=torch.int32)
        chosen.buffers.inputs.copy_(staging, non_blocking=True)
        self.replay(chosen, start + len(tokens), streams=False)
        return chosen.buffers

    def replay(self, chosen: Pass, length: int, *, streams: bool) -> None:
        """Put the pass on the stream; `length` is the context that it ends with."""
        parts = chosen.plan.parts_for(length)
        if self._is_real:
            self.prepare(chosen, parts, streams=streams)
            self._graphs[chosen.plan.tokens, parts, streams].replay()
        else:
            for launch in self._launches(chosen, parts, streams):
                chosen.machine.run(launch)

    def prepare(self, chosen: Pass, parts: int, *, streams: bool) -> None:
        """Capture a graph if need be. It overwrites the pass's scratch, so not within a stream."""
        key = (chosen.plan.tokens, parts, streams)
        if key in self._graphs:
            return
        before = chosen.buffers.inputs.clone()
        chosen.buffers.inputs.zero_()  # no real token: the trial run writes nothing that lasts
        self._graphs[key] = capture(chosen.machine, self._launches(chosen, parts, streams))
        chosen.buffers.inputs.copy_(before)

    def _launches(self, chosen: Pass, parts: int, streams: bool) -> Iterator[Launch]:
        return pass_launches(chosen.plan, self._model, chosen.buffers, parts=parts, streams=streams)

    def embed(self, chosen: Pass) -> None:
        """Lay out the first input of a stream."""
        chosen.machine.run(embedding(chosen.plan, self._model, chosen.buffers))
