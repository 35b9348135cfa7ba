"""Propose the draft for a turn's next pass: its tokens, and how many of them are worth verifying.

Owns the choice between the prediction and the log, and the length of a draft. Does not own the log: after a
pass the engine first extends `History`, then calls `observe` with the same tokens.
"""

from collections.abc import Sequence
from itertools import accumulate
from operator import mul

from vivace.engine.common_length import common_length
from vivace.engine.speculation.acceptance import AcceptanceRates, DraftSource
from vivace.engine.speculation.costs import SIZES, StepCosts
from vivace.engine.speculation.cursor import MAX_CURSOR_MATCH, Cursor, DraftCandidate
from vivace.engine.speculation.suffix import History

MAX_DRAFT_TOKENS = SIZES[-1] - 1  # a pass also has the log's last token


class Drafter:
    """One a turn. In a loop: `propose` or `offer`, a pass that verifies, `History.extend`, `observe`."""

    def __init__(self, costs: StepCosts, history: History, prediction: Sequence[int] = ()) -> None:
        self._costs = costs
        self._history = history
        self._cursor = Cursor(prediction)
        self._acceptance = AcceptanceRates()
        self._candidates: list[DraftCandidate] = []

    def propose(self, limit: int) -> list[int]:
        """Return up to `limit` tokens to verify, or none if no draft is expected to save time."""
        self._candidates = self._find_candidates()
        draft: list[int] = []
        most_saved_ms = 0.0
        for candidate in self._candidates:
            length, saved_ms = self._best_length(candidate, limit)
            if saved_ms > most_saved_ms:
                draft, most_saved_ms = candidate.tokens[:length], saved_ms
        return draft

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
        for source, match_length, expected in self._candidates:
            right = common_length(expected, tokens)
            is_wrong = right < min(len(expected), len(tokens))
            self._acceptance.update(source, match_length, right, was_wrong=is_wrong)
        self._candidates = []
        self._cursor.follow(tokens)

    def _find_candidates(self) -> list[DraftCandidate]:
        candidate = self._cursor.propose(self._history.tail(MAX_CURSOR_MATCH), MAX_DRAFT_TOKENS)
        if candidate is not None and candidate.source in (DraftSource.START, DraftSource.FOLLOW):
            return [candidate]
        tokens, match_length = self._history.find_continuation(MAX_DRAFT_TOKENS)
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
        costs_ms = {size - 1: ms for size, ms in zip(SIZES, of_sizes, strict=True) if size <= most}
        costs_ms[most] = self._costs.ms(most + 1)
        price_ms = min(ms / yields[length] for length, ms in costs_ms.items())
        plain_ms = costs_ms.pop(0, of_sizes[0])
        saved_ms, length = max(
            (first * yields[length - 1] * price_ms - ms + plain_ms, length) for length, ms in costs_ms.items()
        )
        return length, saved_ms
