"""A turn that generates nothing: the log-probability of each candidate after the log."""

from collections.abc import Callable

from vivace.engine.kv.session import Session
from vivace.engine.output.sampler import log_probability, log_total
from vivace.engine.runners.base import Logits, Span
from vivace.engine.turns.turn import Turn
from vivace.engine.wire.frames import Score

SCORE_TOKENS = 256  # candidate tokens in one pass


class ScoreTurn(Turn):
    """Log-probability of each candidate after the log; their KV lives in scratch sequences only."""

    def __init__(
        self,
        work: Score,
        session: Session,
        *,
        scratch: range,
        share: Callable[[int, int, int], int],
        clear: Callable[[int], int],
    ) -> None:
        super().__init__(work, session)
        self._candidates = work.candidates
        self._scratch = scratch
        self._share, self._clear = share, clear
        self._is_prefilled = False
        self._remaining = [i for i, candidate in enumerate(work.candidates) if len(candidate) > 1]
        self._group: list[int] = []
        self._group_size = len(scratch)  # candidates in a pass

    def spans(self, limit: int) -> list[Span]:
        self._group = []
        session = self.session
        if chunk := self._next_chunk(limit):
            return [chunk]
        if session.pending:
            return [Span(session.seq, session.kv, session.log[session.kv :], want=not self._is_prefilled)]
        return self._next_group(min(limit, SCORE_TOKENS))

    @property
    def needs_row(self) -> bool:  # type: ignore[override]
        return not self._is_prefilled

    @property
    def needs_own_pass(self) -> bool:  # type: ignore[override]  # a scratch sequence serves one turn at a time
        return self._is_prefilled

    def _next_group(self, limit: int) -> list[Span]:
        session, size = self.session, 0
        spans: list[Span] = []
        for seq, index in zip(self._scratch[: self._group_size], self._remaining, strict=False):
            tokens = self._candidates[index][:-1]
            size += len(tokens)
            if spans and size > limit:
                break
            self._share(session.seq, seq, session.kv)
            spans.append(Span(seq, session.kv, tokens, want=len(tokens)))
            self._group.append(index)
        return spans

    def apply_logits(self, rows: Logits) -> str:
        if not self._is_prefilled and len(rows):
            self._is_prefilled = True
            total = log_total(rows[0])
            self.scores = [float(rows[0][c[0]]) - total if c else 0.0 for c in self._candidates]
        elif self._group:
            each = iter(rows)
            for index in self._group:
                self.scores[index] += sum(log_probability(next(each), t) for t in self._candidates[index][1:])
            del self._remaining[: len(self._group)]
        return "scored" if self._is_prefilled and not self._remaining else ""

    def shrink(self) -> bool:
        if len(self._group) < 2:
            return False
        self._group_size = len(self._group) // 2
        return True

    def end_pass(self) -> None:
        for seq in self._scratch[: len(self._group)]:
            self._clear(seq)
