"""The runner for one NVIDIA GPU, with our own kernels.

Owns the KV pool, the pages of each sequence and which path a span takes: up to 32 tokens in one captured
pass, a longer draft as rows of one, a longer prompt through the dense prefill. Spans of one call run one
after the other: a pass over a few tokens is bound by the weights it reads, and the engine batches only where
candidates are scored. Does not own scheduling.
"""

import hashlib
import time
from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

import numpy as np
import torch  # type: ignore[import-not-found,unused-ignore]

from vivace.engine.runners.base import (
    DecodeRow,
    HeldKV,
    KVFull,
    KVState,
    Logits,
    ModelInfo,
    OutOfMemory,
    RowResult,
    SamplingSpec,
    ShouldStop,
    Span,
    Stopped,
    WhileRunning,
)
from vivace.engine.runners.cuda.decode.decoder import SequenceDecoder
from vivace.engine.runners.cuda.decode.experts import share_experts
from vivace.engine.runners.cuda.decode.graphs import MakeLauncher, Passes
from vivace.engine.runners.cuda.decode.launches import Model
from vivace.engine.runners.cuda.kernels.driver import Module
from vivace.engine.runners.cuda.kv.host_tier import HostTier
from vivace.engine.runners.cuda.kv.pool import make_pool, read_pages
from vivace.engine.runners.cuda.model.shape import HEAD_DIM, PAGE_TOKENS, Shape
from vivace.engine.runners.cuda.pass_choice import (
    OWN_READING,
    SHARED_READING,
    PassChoice,
    choose_passes,
)
from vivace.engine.runners.cuda.prefill.chunks import Prefill
from vivace.engine.runners.cuda.prefill.experts import ExpertPrefill
from vivace.engine.runners.cuda.prefill.fp8 import Fp8Prefill
from vivace.engine.runners.cuda.prefill.packed import PackedPrefill
from vivace.engine.runners.cuda.rows.flights import Flights
from vivace.engine.runners.cuda.rows.launches import MAX_LOGITS
from vivace.engine.runners.cuda.rows.passes import ROWS_IN_USE, RowPasses
from vivace.engine.runners.cuda.weights.build import Dense

SEQUENCES = 128  # twice the rows of the largest pass: for sessions that are idle, and for candidates
PREFILL_SIZES = (64, 512, 2048, 4096)  # whose costs are measured
CHECKED_PROMPTS = (100, 1000, 4000)  # tokens of prompts whose KV is looked at before anybody is served …
CHECKED_TOKENS = 20  # … and of these behind each
MAX_PINNED_ROWS = 64  # rows of logits in pinned memory; more are copied slower
MARK_BYTES = 16  # at the beginning of saved KV: whose it is
PREFILLS: dict[str, type[Prefill]] = {"bf16": Prefill, "fp8": Fp8Prefill, "packed": PackedPrefill}

T = TypeVar("T")


class Vocabulary(Protocol):
    end_tokens: frozenset[int]

    def token_bytes(self, token: int) -> bytes: ...


def prefill_class(shape: Shape, name: str) -> type[Prefill]:
    """Return how prompts are read: in "bf16", in "fp8", or out of the "packed" weights."""
    if shape.experts:
        return ExpertPrefill
    return PREFILLS[name]


class CudaRunner:
    def __init__(
        self,
        name: str,
        model: Model,
        dense: list[Dense],
        vocabulary: Vocabulary,
        *,
        bits: int,
        kv_bits: int = 16,
        context_tokens: int,
        identity: str = "",  # of the file: saved KV belongs to it
        yarn_factor: float = 1.0,
        make_launcher: MakeLauncher = Module,
        blocks: int = 132,
        prefill: str = "bf16",  # or another that `prefill_class` knows
        max_rows: int = ROWS_IN_USE,
        host_bytes: int = 1 << 30,  # for saved KV
    ) -> None:
        shape, device = model.shape, model.embedding.device
        pages = -(-context_tokens // PAGE_TOKENS)
        max_pages = min(pages, model.rotation.shape[0] // PAGE_TOKENS)
        self._kv = make_pool(shape, pages, kv_bits, device)
        if shape.experts:
            make_launcher = share_experts(make_launcher)
        self._passes = Passes(model, bits, self._kv, max_pages, blocks, make_launcher)
        launcher = self._passes.pass_of_size(1).launcher
        self._prefill = prefill_class(shape, prefill)(model, dense, self._kv, self._passes.pages, launcher)
        self._lengths = [0] * SEQUENCES  # tokens of each sequence that are in its pages
        self._choice = PassChoice(self._passes.sizes[-1])
        self._row_passes = RowPasses(
            model, bits, self._kv, max_pages, SEQUENCES, blocks, make_launcher, max_rows
        )
        self._flights = Flights(self._row_passes)
        self.max_rows, self.max_logits_rows = self._row_passes.max_rows, MAX_LOGITS
        self._vocabulary = vocabulary
        rows = torch.empty(MAX_PINNED_ROWS, shape.vocab, dtype=torch.float32)
        self._rows = rows.pin_memory() if device.type == "cuda" else rows
        self.info = ModelInfo(
            name=name,
            context_tokens=pages * PAGE_TOKENS,
            trained_tokens=shape.trained_tokens,
            sequences=SEQUENCES,
            vocab_size=shape.vocab,
            end_tokens=vocabulary.end_tokens,
            threads=1,
            yarn_factor=yarn_factor,
            can_stop=True,
            kv_format=f"vivace cuda 4 {name} {identity} {shape.layers}x{shape.kv_heads}x{HEAD_DIM} "
            f"{kv_bits}-bit {bits}-bit weights yarn {yarn_factor:g}",
            device="cuda",
            pass_tokens=self._prefill.chunk_tokens,
            draft_tokens=max([self._passes.sizes[-1], *self._row_passes.wide_sizes]) - 1,
            shares_passes=False,
            page_tokens=PAGE_TOKENS,
            stoppable_ms=8.0,
        )
        mark = hashlib.blake2b(self.info.kv_format.encode(), digest_size=MARK_BYTES).digest()
        self._host = HostTier(self._kv, SEQUENCES, self._copy_page, mark, host_bytes)
        self._pages = self._host.pages
        self._decoder = SequenceDecoder(self._passes, self._pages)

    def forward(self, spans: Sequence[Span], should_stop: ShouldStop | None = None) -> Logits:
        def run() -> list[Logits]:
            found = [self._forward_span(span, should_stop).copy() for span in spans[:-1]]
            return [*found, self._forward_span(spans[-1], should_stop)]  # in place: valid until the next call

        found = self._with_pages(spans, run)
        return np.concatenate(found) if len(found) > 1 else found[0]

    def prefill(self, span: Span, sampling: SamplingSpec, should_stop: ShouldStop | None = None) -> int:
        """Compute a span and sample behind it. See `base.DecodingRunner`."""
        return self._with_pages([span], lambda: self._sample_behind(span, sampling, should_stop))

    def _with_pages(self, spans: Sequence[Span], run: Callable[[], T]) -> T:
        """Return what `run` returns, which computes the spans: all of them or none."""
        self._decoder.synchronize()
        try:
            for span in spans:
                self._flights.forget(span.seq)
                self._host.arrive(span.seq)
                self._pages.reserve(span.seq, span.start, span.start + len(span.tokens))
            found = run()
        except (KVFull, Stopped, torch.OutOfMemoryError) as error:
            self._passes.synchronize()  # what was begun writes to pages that are free in a moment
            for span in spans:
                self._pages.trim(span.seq, span.start)
            if isinstance(error, torch.OutOfMemoryError):
                torch.cuda.empty_cache()
                raise OutOfMemory from error
            raise
        for span in spans:
            self._lengths[span.seq] = span.start + len(span.tokens)
        return found

    def _sample_behind(self, span: Span, sampling: SamplingSpec, should_stop: ShouldStop | None) -> int:
        self._passes.set_page_table(self._pages.table(span.seq))
        tokens, start, at, choice = span.tokens, span.start, 0, -1
        if self._is_prompt(span):
            x = self._prefill.run(tokens, start, 1, should_stop)
            return self._passes.sample_behind(x, start + len(tokens) - 1, sampling)
        while at < len(tokens):
            if should_stop and should_stop():
                raise Stopped
            alike = self._passes.same_split_length(start + at, len(tokens) - at)
            *_, choice = self._passes.sample(tokens[at : at + alike], start + at, sampling, lambda: None)
            at += alike
        return choice

    def _is_prompt(self, span: Span) -> bool:
        return len(span.tokens) > self._choice.most_decoded and span.want <= 1

    def _forward_span(self, span: Span, should_stop: ShouldStop | None) -> Logits:
        """Compute one span. Rows that verify a draft come from decode passes, so that they never differ."""
        self._passes.set_page_table(self._pages.table(span.seq))
        few, count = self._passes.sizes[-1], len(span.tokens)
        if self._is_prompt(span):
            x = self._prefill.run(span.tokens, span.start, span.want, should_stop)
            rows = self._passes.logits_behind(x) if span.want else x.new_empty(0, self.info.vocab_size)
            return self._to_host(rows)
        found: list[Logits] = []
        at = max(0, count - max(span.want, few))
        if at:
            self._prefill.run(span.tokens[:at], span.start, 0, should_stop)
        while at < count:
            if should_stop and should_stop():
                raise Stopped
            alike = self._passes.same_split_length(span.start + at, min(few, count - at))
            logits = self._passes.run(span.tokens[at : at + alike], span.start + at).logits[:alike]
            wanted = self._to_host(logits[max(0, count - span.want - at) :])
            at += alike
            found.append(wanted if alike == count else wanted.copy())
        return np.concatenate(found) if len(found) > 1 else found[0]

    def _to_host(self, rows: torch.Tensor) -> Logits:
        """Copy rows to the host and wait for them. One row is 600 KB: 25 µs over the bus."""
        out = (
            self._rows[: len(rows)] if len(rows) <= MAX_PINNED_ROWS else torch.empty_like(rows, device="cpu")
        )
        self._passes.enqueue(lambda: out.copy_(rows, non_blocking=True))
        self._passes.synchronize()
        found: Logits = out.numpy()
        return found

    def decode(
        self,
        span: Span,
        sampling: SamplingSpec,
        steps_ahead: int = 0,
        while_running: WhileRunning = lambda: None,
    ) -> list[int]:
        """Run one pass over a token and a draft. See `base.DecodingRunner`."""
        assert len(span.tokens) <= 1 + self.info.draft_tokens
        self._decoder.continue_at(span, sampling)
        self._host.arrive(span.seq)
        self._decoder.make_room(span, steps_ahead)
        self._lengths[span.seq] = span.start + len(span.tokens)
        return self._decoder.decode(span, sampling, steps_ahead, while_running, self._verify)

    def _verify(self, span: Span, sampling: SamplingSpec, while_running: WhileRunning) -> list[int]:
        """Verify a draft in a decode pass, or as rows of one sequence where that is quicker."""
        if not self._choice.are_rows_quicker(span.start, len(span.tokens)):
            return self._decoder.verify(span, sampling, while_running)
        token, *draft = span.tokens
        self._row_passes.set_page_table(span.seq, self._pages.table(span.seq))
        row = DecodeRow(span.seq, span.start, token, sampling, tuple(draft))
        return self._flights.verify(row, min(self._row_passes.wide_sizes), while_running)

    def decode_rows(
        self,
        rows: Sequence[DecodeRow],
        steps_ahead: int = 0,
        while_running: WhileRunning = lambda: None,
    ) -> list[RowResult]:
        """Run one pass over several sequences. See `base.BatchDecodingRunner`."""
        assert 0 < sum(1 + len(row.draft) for row in rows) <= self.max_rows
        self._decoder.synchronize()
        for row in rows:  # a page that is reserved for nothing is given back by the next `trim`
            self._host.arrive(row.seq)
            self._reserve_row(row.seq, row.start, 1 + len(row.draft))
        found = self._flights.decode(
            rows, self._has_room, goes_ahead=steps_ahead > 0, while_running=while_running
        )
        for row, each in zip(rows, found, strict=True):
            if each is not None:
                self._lengths[row.seq] = row.start + 1 + len(row.draft)
        return found

    def _reserve_row(self, seq: int, at: int, tokens: int = 1) -> None:
        self._pages.reserve(seq, at, at + tokens)
        self._row_passes.set_page_table(seq, self._pages.table(seq))

    def _has_room(self, seq: int, at: int) -> bool:
        """Make a position writable that no token is known for yet, if there is room."""
        if at >= self.info.limit_tokens:
            return False
        try:
            self._reserve_row(seq, at)
        except KVFull:
            return False
        return True

    def trim(self, seq: int, length: int) -> int:
        self._decoder.before_trim(seq, length)
        self._flights.forget(seq)
        self._lengths[seq] = min(self._lengths[seq], length)
        self._pages.trim(seq, length)
        return self._lengths[seq]

    def share(self, source: int, target: int, length: int) -> int:
        self._decoder.synchronize()
        self._flights.forget(target)
        self._lengths[target] = min(self._lengths[source], length)
        self._host.share(source, target, length)
        return self._lengths[target]

    def save(self, seq: int) -> HeldKV:
        """Copy a sequence's pages to host memory, beside the passes. What is in flight is not waited for."""
        return self._host.save(seq, -(-self._lengths[seq] // PAGE_TOKENS))

    def load(self, seq: int, state: KVState) -> None:
        """Copy saved pages back, beside the passes. A pass over the sequence waits for them."""
        self._flights.forget(seq)
        self._lengths[seq] = self._host.load(seq, state) * PAGE_TOKENS

    def allocate(self, size_bytes: int) -> HeldKV:
        return self._host.allocate(size_bytes)

    def is_loading(self, seq: int) -> bool:
        return self._host.is_loading(seq)

    def finish_loading(self, seq: int) -> None:
        self._host.finish_loading(seq)

    @property
    def host_bytes_used(self) -> int:
        return self._host.used_bytes

    def warm_up(self) -> None:
        """Capture all graphs, and load what torch loads at its first use."""
        self._passes.warm_up(self.info.limit_tokens)
        self._row_passes.warm_up(self.info.limit_tokens)
        self._prefill.warm_up()

    def check_numbers(self) -> None:
        """Raise if a prompt, or what follows it, leaves anything in the KV that is no number.

        Kernels are compiled here, by compilers that nobody may have tried them with. The words of an answer
        would not show it: where sums of integers follow, what is no number counts as 0.
        """
        for count in CHECKED_PROMPTS:
            end = count + CHECKED_TOKENS
            if end > self.info.limit_tokens:
                break
            tokens = self._unlike(end)
            self.forward([Span(0, 0, tokens[:count])])
            self.forward([Span(0, count, tokens[count:], want=CHECKED_TOKENS)])
            pages = self._pages.table(0)
            for layer, kv in enumerate(self._kv):
                rows = read_pages(kv[pages]).transpose(1, 3).flatten(0, 1)[:end].flatten(1)
                wrong = (~rows.isfinite().all(1)).nonzero()
                if len(wrong):
                    place = f"layer {layer}, token {int(wrong[0])} of {end}"
                    raise RuntimeError(f"its kernels have left what is no number in the KV ({place})")
            self.trim(0, 0)

    def known_costs(self) -> dict[int, float]:
        """Measure passes without their logits: verifying a draft does not copy them, `forward` would."""
        limit, wide = self.info.limit_tokens, self._row_passes.wide_sizes
        few = {size: self._measured(self._pass_ms, size) for size in self._passes.sizes}
        sizes = [size for size in PREFILL_SIZES if max(few) < size <= limit]
        many = {size: self._measured(self._pass_ms, size) for size in sizes}
        rows = {size: self._measured(self._row_pass_ms, size) for size in wide if size <= limit}
        kind = SHARED_READING if self._row_passes.shares_reading else OWN_READING
        self._choice, costs = choose_passes(few, many, rows, kind)
        return costs

    def known_row_costs(self) -> dict[int, float]:
        """Measure passes of each size, over a draft: a row costs the same whose ever it is."""
        sizes = [size for size in self._row_passes.sizes if size <= self.info.limit_tokens]
        return {size: self._measured(self._row_pass_ms, size) for size in sizes}

    def _unlike(self, count: int) -> list[int]:
        """Return tokens that are unlike each other: those of a mixture choose experts of their own."""
        return [at * 7919 % self.info.vocab_size for at in range(count)]

    def _measured(self, pass_ms: Callable[[int], float], size: int) -> float:
        quickest = min(pass_ms(size) for _ in range(3))
        self.trim(0, 0)
        return quickest

    def _row_pass_ms(self, rows: int) -> float:
        self.trim(0, 0)
        token, *draft = self._unlike(rows)
        begun = time.perf_counter()
        self.decode_rows([DecodeRow(0, 0, token, SamplingSpec(), tuple(draft))])
        return (time.perf_counter() - begun) * 1e3

    def _pass_ms(self, tokens: int) -> float:
        self.trim(0, 0)
        span = Span(0, 0, self._unlike(tokens), want=1)
        begun = time.perf_counter()
        if tokens > self._passes.sizes[-1]:
            self.forward([span])
        else:
            self._decoder.make_room(span, 0)
            self._decoder.verify(span, SamplingSpec(), lambda: None)
            self._passes.synchronize()
        return (time.perf_counter() - begun) * 1e3

    def token_bytes(self, token: int) -> bytes:
        return self._vocabulary.token_bytes(token)

    def close(self) -> None:
        self._decoder.synchronize()
        self._host.close()

    def _copy_page(self, source: int, target: int) -> None:
        """Copy behind all that is in flight: it may write to the source still."""
        self._row_passes.enqueue(lambda: self._kv[:, target].copy_(self._kv[:, source]))
