"""Captured passes over rows of several sequences: inputs over in one copy, tokens back in a ring.

Owns the compiled modules and graphs of each number of rows, the page tables of all sequences on the device,
and what the host writes for a pass. A pass may be started while one is in flight: a row can take its input
from what that one chooses. Does not own which rows are in a pass (`flights`).
"""

import functools
import struct
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import torch  # type: ignore[import-not-found,unused-ignore]

from vivace.engine.runners.base import Logits, SamplingSpec
from vivace.engine.runners.cuda.decode.graphs import (
    GREEDY,
    MAX_PASS_NUMBER,
    ROUNDS_BETWEEN_LOOKS,
    Launcher,
    MakeLauncher,
    Pool,
    capture_work,
)
from vivace.engine.runners.cuda.decode.launch import Launch
from vivace.engine.runners.cuda.decode.launches import Model
from vivace.engine.runners.cuda.decode.plan import BATCH_ROWS, SHARED_BYTES, Plan
from vivace.engine.runners.cuda.kernels.copies import Staged
from vivace.engine.runners.cuda.kv.pool import bits_of
from vivace.engine.runners.cuda.model.shape import Shape
from vivace.engine.runners.cuda.rows.launches import (
    MAX_LOGITS,
    MAX_ROWS,
    PAGES,
    POSITION,
    RING_WORDS,
    ROW_PARTS,
    ROW_WORDS,
    TOKEN,
    RowLaunch,
    make_row_buffers,
    row_launches,
)

ROW = struct.Struct("<6i2IfIII")  # `Row` in kernels/common.cuh
ROWS_IN_USE = 64  # of the largest pass
assert ROW.size == 4 * ROW_WORDS


class RowInput(NamedTuple):
    """One row of a pass. `source` is its row in the pass before, whose choice is its input, or None.

    Without `sampling` its logits go to the host. Rows of one sequence follow each other: a token and its
    draft, whose rows read what the rows before them write.
    """

    seq: int
    position: int
    token: int
    sampling: SamplingSpec | None
    source: int | None = None
    drafted: int = 0  # its place in the draft; 0: it is the token before it


def batch_plans(shape: Shape, bits: int, blocks: int, kv_bits: int, most: int = ROWS_IN_USE) -> list[Plan]:
    """Return a plan for each number of rows up to `most` that this shape has room for."""
    plans = [Plan(shape, bits, rows, blocks, kv_bits=kv_bits, is_batch=True) for rows in BATCH_ROWS]
    return [plan for plan in plans if plan.tokens <= most and plan.shared_bytes <= SHARED_BYTES]


class PassKind(NamedTuple):
    """What a captured pass is for."""

    size: int  # its rows
    parts: int  # the most that the attention of one of them has
    is_draft: bool = False  # whether they are of one sequence, and have the same parts


class RowPasses:
    def __init__(
        self,
        model: Model,
        bits: int,
        kv: torch.Tensor,
        max_pages: int,
        sequences: int,
        blocks: int,
        make_launcher: MakeLauncher,
        most: int,
    ) -> None:
        self._model, self._make_launcher, self._is_on_gpu = model, make_launcher, kv.is_cuda
        plans = batch_plans(model.shape, bits, blocks, bits_of(kv), most)
        self._plans = {plan.tokens: plan for plan in plans}
        self.sizes = list(self._plans)  # a pass has as many rows: those that nobody needs are padding
        self.max_rows = max(self.sizes, default=0)
        self.wide_sizes = [plan.tokens for plan in plans if plan.is_wide]
        self.shares_reading = any(plan.draft_tiles for plan in plans)  # by the rows of a draft
        self._launchers: dict[int, Launcher] = {}
        self._graphs: dict[PassKind, torch.cuda.CUDAGraph] = {}
        self._pool: Pool = torch.cuda.graph_pool_handle() if kv.is_cuda else (0, 0)
        pages = torch.zeros(sequences, max_pages, dtype=torch.int32, device=kv.device)
        self._tables: list[list[int]] = [[] for _ in range(sequences)]  # as the device has them
        self._page_numbers = Staged(pages)
        self._ring = self._host((2 * RING_WORDS,), torch.int64)
        self._ring_words = self._ring.numpy()
        self._buffers = make_row_buffers(model.shape, kv, pages, self._ring, blocks, plans)
        # Two: the copy of one may not have happened when the next is written.
        self._staged = [Staged(self._buffers.inputs) for _ in range(2)]
        self._staged_words = [each.words.reshape(-1, ROW_WORDS) for each in self._staged]
        self._staged_bytes = [each.words.view(np.uint8).data for each in self._staged]
        self._logits = self._host((2 * MAX_LOGITS, model.shape.vocab), torch.float32)
        self._logits_copied: list[torch.cuda.Event | None] = [None, None]
        self._every_row = np.arange(MAX_ROWS, dtype=np.int32)
        self._number = 0

    def _host(self, size: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        tensor = torch.zeros(size, dtype=dtype)
        return tensor.pin_memory() if self._is_on_gpu else tensor

    def enqueue(self, work: Callable[[], object]) -> None:
        """Put work behind all that is in flight. The GPU's stream is the queue; a test may have its own."""
        work()

    def synchronize(self) -> None:
        """Wait until nothing is in flight."""
        if self._is_on_gpu:
            torch.cuda.current_stream().synchronize()

    def set_page_table(self, seq: int, table: Sequence[int]) -> None:
        """Let later passes find the pages of a sequence."""
        known = self._tables[seq]
        if table == known:
            return
        first = len(known) if table[: len(known)] == known else 0
        if not first:
            self.synchronize()  # what a copy in flight reads must not change
        self._tables[seq] = list(table)
        at = seq * self._buffers.pages.shape[1] + first
        count = len(table) - first
        self._page_numbers.words[at : at + count] = table[first:]
        self.enqueue(lambda: self._page_numbers.send(count, at))

    def start(self, rows: Sequence[RowInput]) -> int:
        """Start a pass. Return its number. Before a third one, the first must have been collected."""
        number, size, plan = self._next_pass(len(rows))
        kind = PassKind(size, max(plan.parts_for(row.position + 1) for row in rows))
        self._prepare(kind)
        self._write(number, size, plan, rows)
        self._replay(kind)
        if count := sum(row.sampling is None for row in rows):
            self._copy_logits(number, count)
        return number

    def start_draft(
        self, seq: int, start: int, tokens: Sequence[int], sampling: SamplingSpec, least: int = 0
    ) -> int:
        """Start a pass over a token and its draft alone. Return its number.

        As `start` with a row for each, but nothing of 64 rows is done one by one: the device waits for it.
        """
        count = len(tokens)
        number, size, plan = self._next_pass(max(count, least))
        least_parts, most = plan.parts_for(start + 1), plan.parts_for(start + count)
        kind = PassKind(size, most, is_draft=least_parts == most and plan.shares_reading(most))
        self._prepare(kind)
        words, stride = self._staged_words[number % 2], self._buffers.pages.shape[1]
        alike = (start, start, seq * stride, 0, number, most, *_words_of(sampling), count, 0, 0)
        words[:count] = np.frombuffer(ROW.pack(*alike), np.int32)
        words[:count, POSITION] += self._every_row[:count]
        words[:count, TOKEN] = tokens
        if least_parts != most:
            words[:count, ROW_PARTS] = [plan.parts_for(start + place + 1) for place in range(count)]
        words[count:size] = np.frombuffer(self._padding(number), np.int32)
        self._enqueue_inputs(number, size)
        self._replay(kind)
        return number

    def _next_pass(self, least: int) -> tuple[int, int, Plan]:
        """Return the number of the next pass, its rows and its plan."""
        self._number = self._number % MAX_PASS_NUMBER + 1
        size = next(size for size in self._plans if size >= least)
        return self._number, size, self._plans[size]

    def _copy_logits(self, number: int, count: int) -> None:
        first = number % 2 * MAX_LOGITS
        source, target = (each[first : first + count] for each in (self._buffers.logits, self._logits))
        self.enqueue(lambda: target.copy_(source, non_blocking=True))
        if self._is_on_gpu:
            self._logits_copied[number % 2] = torch.cuda.current_stream().record_event()

    def logits(self, number: int) -> Logits:
        """Wait for the logits of a pass. Its rows that asked for them are there in their order."""
        if copied := self._logits_copied[number % 2]:
            copied.synchronize()
        elif not self._is_on_gpu:
            self.synchronize()
        found: Logits = self._logits.numpy()[number % 2 * MAX_LOGITS :][:MAX_LOGITS]
        return found

    def _write(self, number: int, size: int, plan: Plan, rows: Sequence[RowInput]) -> None:
        view, stride = self._staged_bytes[number % 2], self._buffers.pages.shape[1]
        logits_at = 1 + number % 2 * MAX_LOGITS
        for index, (seq, position, token, asked, source, drafted) in enumerate(rows):
            sampling, logits_row = (asked, 0) if asked else (GREEDY, logits_at)
            logits_at += bool(logits_row)
            ROW.pack_into(
                view, index * ROW.size, position, position - drafted, seq * stride,
                token if source is None else -1 - source, number, plan.parts_for(position + 1),
                *_words_of(sampling), len(rows), logits_row, 0,
            )  # fmt: skip
        padding = self._padding(number)
        for index in range(len(rows), size):
            view[index * ROW.size : (index + 1) * ROW.size] = padding
        self._enqueue_inputs(number, size)

    def _padding(self, number: int) -> bytes:
        """Return a row that nobody needs. Its word goes to this pass's ring."""
        return ROW.pack(0, 0, -1, 0, number, 0, 0, 0, 0.0, 0, 0, 0)

    def _enqueue_inputs(self, number: int, size: int) -> None:
        self.enqueue(lambda: self._staged[number % 2].send(size * ROW_WORDS))

    def collect(self, number: int, rows: int) -> list[int]:
        """Wait for a pass and return the tokens of its first `rows` rows."""
        begin, rounds = number % 2 * RING_WORDS, 0
        words = self._ring_words[begin : begin + rows]
        while not bool((words >> 32 == number).all()):
            rounds += 1
            if rounds % ROUNDS_BETWEEN_LOOKS == 0 and self._is_over() and (words >> 32 != number).any():
                raise RuntimeError("The GPU has ended its work without giving the tokens that it owes.")
        found: list[int] = (words & 0xFFFFFFFF).tolist()
        return found

    def _is_over(self) -> bool:
        """Return whether nothing is in flight. Raise if work on the device has failed."""
        return not self._is_on_gpu or torch.cuda.current_stream().query()

    def warm_up(self, most_tokens: int) -> None:
        """Capture every pass up to this context, so that no turn waits for it."""
        for size, plan in self._plans.items():
            for parts in sorted({plan.parts_for(length) for length in range(1, most_tokens + 1, 64)}):
                self._prepare(PassKind(size, parts))
                if plan.shares_reading(parts):
                    self._prepare(PassKind(size, parts, is_draft=True))

    def _prepare(self, kind: PassKind) -> None:
        """Capture a graph if need be. Its trial run has no real row, and its choices are put back."""
        if not self._is_on_gpu or kind in self._graphs:
            return
        self.synchronize()
        chosen, ring = self._buffers.chosen.clone(), self._ring_words.copy()
        self._buffers.inputs.zero_().view(-1, ROW_WORDS)[:, PAGES] = -1
        self._graphs[kind] = capture_work(functools.partial(self._run, kind), self._pool)
        self._buffers.chosen.copy_(chosen)
        self._ring_words[:] = ring  # a pass that nobody has collected yet

    def _replay(self, kind: PassKind) -> None:
        if self._is_on_gpu:
            self._graphs[kind].replay()
        else:
            self.enqueue(functools.partial(self._run, kind))

    def _run(self, kind: PassKind) -> None:
        size, parts, is_draft = kind
        plan = self._plans[size]
        if size not in self._launchers:
            self._launchers[size] = self._make_launcher(plan)
        for launch in row_launches(plan, self._model, self._buffers, parts, is_draft=is_draft):
            self._run_launch(self._launchers[size], launch)

    def _run_launch(self, launcher: Launcher, launch: RowLaunch) -> None:
        if isinstance(launch, Launch):
            launcher.run(launch)
        else:
            from vivace.engine.runners.cuda.rows.product import multiply, tile_for

            _, rows, columns = launch.digits.shape
            multiply(*launch[1:], tile_for(launch.name, rows, columns, launch.sums.shape[2]))


def _words_of(sampling: SamplingSpec) -> tuple[int, int, float]:
    return sampling.seed & 0xFFFFFFFF, sampling.seed >> 32 & 0xFFFFFFFF, sampling.temperature
