"""A scripted runner that works as one on a GPU does: it samples by itself, many sequences in one pass.

Owns what is in flight: who joins while a pass runs is in the next one. Does not own the replies (`scripted`).
"""

from collections.abc import Sequence

from vivace.engine.runners.base import (
    DecodeRow,
    KVFull,
    RowResult,
    SamplingSpec,
    ShouldStop,
    Span,
    TellRead,
    WhileRunning,
)
from vivace.testing.scripted import Script, ScriptedRunner

LOGITS_SHARE = 4  # one in so many rows may be sampled by the host


class ScriptedRowsRunner(ScriptedRunner):
    def __init__(self, script: Script, tell: TellRead = lambda _read, _total: None) -> None:
        super().__init__(script, tell)
        self.max_rows, self.max_logits_rows = script.rows, max(1, script.rows // LOGITS_SHARE)
        self._in_flight: dict[int, tuple[int, int]] = {}  # position and input of each sequence

    def prefill(self, span: Span, sampling: SamplingSpec, should_stop: ShouldStop | None) -> int:
        del sampling
        (row,) = self.forward([span], should_stop)
        return int(row.argmax())

    def decode(
        self, span: Span, sampling: SamplingSpec, steps_ahead: int, while_running: WhileRunning
    ) -> list[int]:
        del steps_ahead  # what would be begun ahead is made when it is asked for
        self._begin(len(span.tokens), while_running)
        return self._say(span, sampling.stops)

    def decode_rows(
        self, rows: Sequence[DecodeRow], steps_ahead: int, while_running: WhileRunning
    ) -> list[RowResult]:
        count = sum(1 + len(row.draft) for row in rows)
        if count > self.max_rows or len({row.seq for row in rows}) < len(rows):
            raise SystemExit(f"{count} rows in a pass of {self.max_rows}, or a sequence twice")
        if sum(row.sampling is None for row in rows) > self.max_logits_rows:
            raise SystemExit("more rows with logits than a pass has")
        self._begin(count, while_running)
        if any(row.draft for row in rows):
            self._in_flight.clear()
        running = [row for row in rows if self._in_flight.get(row.seq) == (row.start, row.token)] or rows
        found: list[RowResult] = []
        for row in rows:
            if row not in running:
                found.append(None)
                self._in_flight[row.seq] = (row.start, row.token)
                continue
            self._in_flight.pop(row.seq, None)
            span = Span(row.seq, row.start, [row.token, *row.draft], want=1)
            if row.sampling is None:
                found.append(self.logits([span]))
                continue
            said = self._say(span, row.sampling.stops)
            found.append(said)
            if steps_ahead:
                self._in_flight[row.seq] = (row.start + 1, said[-1])
        return found

    def known_row_costs(self) -> dict[int, float]:
        return {self.max_rows: max(self._script.step_ms, 0.01)}

    def _begin(self, tokens: int, while_running: WhileRunning) -> None:
        if not self.has_room(tokens):
            raise KVFull
        while_running()
        self._pass(self._script.step_ms / 1e3, None)

    def _say(self, span: Span, stops: frozenset[int]) -> list[int]:
        """Return the accepted draft and one token more."""
        held = self.held_for(span)
        said: list[int] = []
        for token, following in zip(span.tokens, [*span.tokens[1:], -1], strict=True):
            held.append(token)
            said.append(self._next(span.seq, held))
            if said[-1] != following or said[-1] in stops:
                break
        held += span.tokens[len(said) :]  # the engine takes back what was drafted wrong
        return said
