"""Propose the draft for a turn's next pass: its tokens, and how many of them are worth verifying.

Owns the choice between the prediction and the log, and the length of a draft; and the draft behind one that
is still verified, if all of that should be right. Does not own the log: after a pass the engine first extends
`History`, then calls `observe` with the same tokens.
"""

import copy
from collections.abc import Sequence
from itertools import accumulate
from operator import mul
from typing import NamedTuple

from vivace.engine.common_length import common_length
from vivace.engine.speculation.acceptance import AcceptanceRates, DraftSource
from vivace.engine.speculation.costs import SIZES, StepCosts
from vivace.engine.speculation.cursor import MAX_CURSOR_MATCH, Cursor, DraftCandidate
from vivace.engine.speculation.suffix import History

MAX_DRAFT_TOKENS = SIZES[-1] - 1  # a pass also has the log's last token


class Proposed(NamedTuple):
    """A draft that was proposed."""

    limit: int
    draft: list[int]
    expected: list[int]  # the draft, and what the model adds to it if it goes on as it was found


class Ahead(NamedTuple):
    """What `observe` would learn, and `propose` return, if the draft that is verified is right."""

    cursor: Cursor
    acceptance: AcceptanceRates
    candidates: list[DraftCandidate]
    after: list[int]  # what was expected
    proposed: Proposed


class Drafter:
    """One a turn. In a loop: `propose` or `offer`, a pass that verifies, `History.extend`, `observe`.

    While the pass runs there is time for `look_ahead`.
    """

    def __init__(
        self,
        costs: StepCosts,
        history: History,
        prediction: Sequence[int] = (),
        *,
        reads_again: bool = False,  # after a wrong draft the next pass reads what was right of it again
    ) -> None:
        self._costs = costs
        self._reads_again = reads_again
        self._history = history
        self._cursor = Cursor(prediction)
        self._acceptance = AcceptanceRates()
        self._candidates: list[DraftCandidate] = []
        self._proposed: Proposed | None = None  # the last draft
        self._ahead: Ahead | None = None

    def propose(self, limit: int) -> list[int]:
        """Return up to `limit` tokens to verify, or none if no draft is expected to save time."""
        if self._proposed and self._proposed.limit == limit:  # found ahead
            return self._proposed.draft
        self._candidates = self._find_candidates()
        self._proposed, most_saved_ms = None, 0.0
        for candidate in self._candidates:
            length, saved_ms = self._best_length(candidate, limit)
            if saved_ms > most_saved_ms:
                tokens, most_saved_ms = candidate.tokens, saved_ms
                self._proposed = Proposed(limit, tokens[:length], tokens[: length + 1])
        return self._proposed.draft if self._proposed else []

    def look_ahead(self) -> None:
        """Find the draft behind the one that is being verified, as if all of it were right."""
        proposed = self._proposed
        if proposed is None or len(proposed.expected) == len(proposed.draft):
            return
        kept = self._cursor, self._acceptance, self._candidates
        self._cursor, self._acceptance = copy.copy(self._cursor), self._acceptance.copy()
        length = len(self._history)
        self._history.extend(proposed.expected)
        try:
            self.observe(proposed.expected)
            self.propose(proposed.limit)
            if self._proposed:
                self._ahead = Ahead(
                    self._cursor, self._acceptance, self._candidates, proposed.expected, self._proposed
                )
        finally:
            self._history.truncate(length)
            (self._cursor, self._acceptance, self._candidates), self._proposed = kept, None

    def offer(self, limit: int) -> tuple[list[int], list[float]]:
        """Return the draft that promises the most tokens, and how likely all up to each of them are right."""
        self._candidates = self._find_candidates()
        best: tuple[list[int], list[float]] = ([], [])
        for source, match_length, tokens in self._candidates:
            rates = self._acceptance.estimate(source, match_length, min(limit, len(tokens)))
            chances = list(accumulate(rates, mul))
            if sum(chances) > sum(best[1]):
                best = (tokens[: len(chances)], chances)
        return best

    def observe(self, tokens: Sequence[int]) -> None:
        """Learn from tokens added to the log: accepted drafts, and tokens that the model chose itself.

        Candidates that were not proposed are judged too, so that their rates can recover.
        """
        ahead, self._ahead, self._proposed = self._ahead, None, None
        if ahead and ahead.after == tokens:
            self._cursor, self._acceptance, self._candidates, _, self._proposed = ahead
            return
        for source, match_length, expected in self._candidates:
            right = common_length(expected, tokens)
            is_wrong = right < min(len(expected), len(tokens))
            self._acceptance.update(source, match_length, right, was_wrong=is_wrong)
        self._candidates = []
        self._cursor.follow(tokens)

    def _find_candidates(self) -> list[DraftCandidate]:
        candidate = self._cursor.propose(self._history.tail(MAX_CURSOR_MATCH), MAX_DRAFT_TOKENS + 1)
        if candidate is not None and candidate.source in (DraftSource.START, DraftSource.FOLLOW):
            return [candidate]
        tokens, match_length = self._history.find_continuation(MAX_DRAFT_TOKENS + 1)
        remembered = [DraftCandidate(DraftSource.SUFFIX, match_length, tokens)] if tokens else []
        return [candidate, *remembered] if candidate is not None else remembered

    def _best_length(self, candidate: DraftCandidate, limit: int) -> tuple[int, float]:
        """Return the draft length that saves the most time, and the milliseconds saved.

        Compare with a plain pass first: it shows whether the candidate's first token is right, and the other
        tokens can then be drafted at the best price. So each accepted token is worth that price, and a draft
        must be worth more than its pass costs beyond a plain one.
        """
        most = min(limit, len(candidate.tokens))
        if most <= 0:
            return 0, 0.0
        first, yields = self._acceptance.yields(candidate.source, candidate.match_length, most)
        of_sizes = self._costs.of_sizes
        # By draft length: a pass has one token more. All but the last fill a size that is measured.
        costs_ms = {size - 1: ms for size, ms in zip(SIZES, of_sizes, strict=False) if size <= most}
        costs_ms[most] = self._costs.ms(most + 1)
        if self._reads_again:
            token_ms = {length: (ms - of_sizes[0]) / max(1, length) for length, ms in costs_ms.items()}
            costs_ms |= {
                length: ms + token_ms[length] * _read_again(first, yields, length)
                for length, ms in costs_ms.items()
            }
        price_ms = min(ms / yields[length] for length, ms in costs_ms.items())
        plain_ms = costs_ms.pop(0, of_sizes[0])
        saved_ms, length = max(
            (first * yields[length - 1] * price_ms - ms + plain_ms, length) for length, ms in costs_ms.items()
        )
        return length, saved_ms


def _read_again(first: float, yields: Sequence[float], length: int) -> float:
    """Return how many right tokens of a draft to expect that are read again, since a later one is wrong."""
    if not length:
        return 0.0
    all_right = first * (yields[length - 1] - yields[length - 2] if length > 1 else 1.0)
    return max(0.0, first * yields[length - 1] - all_right * length)
