"""Decode one sequence at a time: steps ahead of the host, and drafts that the device verifies.

Owns the stream of steps in flight, and the pages that a pass writes to. Does not own which pass verifies a
draft, nor passes over rows of several sequences (`runner`, `rows`).
"""

from collections.abc import Callable

from vivace.engine.runners.base import SamplingSpec, Span, WhileRunning
from vivace.engine.runners.cuda.decode.graphs import Passes
from vivace.engine.runners.cuda.decode.stream import Stream
from vivace.engine.runners.cuda.kv.pages import Pages
from vivace.engine.runners.cuda.model.shape import PAGE_TOKENS

Verify = Callable[[Span, SamplingSpec, WhileRunning], list[int]]


class SequenceDecoder:
    def __init__(self, passes: Passes, pages: Pages) -> None:
        self._passes = passes
        self._pages = pages
        self._stream: Stream | None = None

    def continue_at(self, span: Span, sampling: SamplingSpec) -> None:
        """Keep the steps in flight if they continue there, else end them."""
        if self._stream and not self._stream.is_at(span.seq, span.start, span.tokens[0], sampling):
            self.synchronize()

    def make_room(self, span: Span, steps_ahead: int) -> None:
        """Reserve pages for the pass, and for the steps ahead of it if there are free ones."""
        end = span.start + len(span.tokens)
        self._pages.reserve(span.seq, span.start, end)
        table = self._pages.table(span.seq)
        has_room = self._pages.free_pages and len(table) < len(self._passes.pages)
        if len(table) * PAGE_TOKENS < end + steps_ahead and has_room:
            self._pages.reserve(span.seq, end, len(table) * PAGE_TOKENS + 1)
        self._passes.set_page_table(table)

    def decode(
        self,
        span: Span,
        sampling: SamplingSpec,
        steps_ahead: int,
        while_running: WhileRunning,
        verify: Verify,
    ) -> list[int]:
        """Return the accepted draft and one token more. Use the steps in flight first: they are valid."""
        (token, *draft), start = span.tokens, span.start
        chosen: list[int] = []
        while self._stream and self._stream.in_flight and draft:
            while_running()
            chosen.append(self._stream.next_token())
            if chosen[-1] != draft.pop(0) or chosen[-1] in sampling.stops:
                return chosen
        last = chosen[-1] if chosen else token
        # Without a step ahead a pass by itself is quicker than a stream of one: 0.7 ms and 0.9.
        if draft or not (steps_ahead or self._stream):
            self._stream = None  # nothing of it is in flight
            rest = Span(span.seq, start + len(chosen), [last, *draft])
            return chosen + verify(rest, sampling, while_running)
        next_token = self._step(span.seq, start + len(chosen), last, sampling, steps_ahead, while_running)
        return [*chosen, next_token]

    def verify(self, span: Span, sampling: SamplingSpec, while_running: WhileRunning) -> list[int]:
        """Return the draft behind the first token as far as the device samples it too, and one more."""
        tokens, start = span.tokens, span.start
        chosen: list[int] = []
        while True:
            fed = tokens[len(chosen) :]  # the first of them is the last said
            few = min(len(fed), self._passes.sizes[-1])
            alike = self._passes.same_split_length(start + len(chosen), few)
            for choice in self._passes.sample(fed[:alike], start + len(chosen), sampling, while_running):
                chosen.append(choice)
                if len(chosen) == len(tokens) or choice != tokens[len(chosen)] or choice in sampling.stops:
                    return chosen

    def _step(
        self,
        seq: int,
        start: int,
        token: int,
        sampling: SamplingSpec,
        steps_ahead: int,
        while_running: WhileRunning,
    ) -> int:
        room = len(self._pages.table(seq)) * PAGE_TOKENS - start  # steps that have a place to write to
        stream = self._stream
        if stream is None or not (stream.send(min(1 + steps_ahead, room)) or stream.in_flight):
            stream = self._stream = Stream(self._passes, seq, start, token, sampling)
            stream.send(min(1 + steps_ahead, room))
        while_running()
        return stream.next_token()

    def before_trim(self, seq: int, length: int) -> None:
        """End the steps in flight if they continue elsewhere, or write to pages that are freed then."""
        stream, kept = self._stream, -(-length // PAGE_TOKENS) * PAGE_TOKENS
        if stream and stream.seq == seq and not stream.start <= length <= stream.end <= kept:
            self.synchronize()

    def synchronize(self) -> None:
        """End the steps in flight: everything but `decode` needs the device for itself."""
        if self._stream:
            if self._stream.in_flight:
                self._passes.synchronize()
            self._stream = None
