"""What a turn will probably say next, and how much of it is worth a try.

Owns the choice between the prediction and the log, and the length of a draft. Does not own the log: after a
pass the engine first extends `History`, then tells `observe` the same tokens.
"""

from collections.abc import Sequence
from itertools import accumulate
from operator import mul

from vivace.engine.common_length import common_length
from vivace.engine.speculation.chances import Chances, Kind
from vivace.engine.speculation.costs import SIZES, StepCosts
from vivace.engine.speculation.cursor import DEEP, Cursor, Lead
from vivace.engine.speculation.suffix import History

MOST = SIZES[-1] - 1  # tokens of a draft: the pass takes the log's last token, too


class Drafter:
    """One a turn. In a loop: `propose`, a pass that verifies, `History.extend`, `observe`."""

    def __init__(self, costs: StepCosts, history: History, prediction: Sequence[int] = ()) -> None:
        self._costs = costs
        self._history = history
        self._cursor = Cursor(prediction)
        self._chances = Chances()
        self._leads: list[Lead] = []

    def propose(self, limit: int) -> list[int]:
        """At most `limit` tokens that are expected next; none where the attempt would not pay."""
        self._leads = self._find_leads()
        draft: list[int] = []
        most_saved_ms = 0.0
        for lead in self._leads:
            length, saved_ms = self._best_length(lead, limit)
            if saved_ms > most_saved_ms:
                draft, most_saved_ms = lead.tokens[:length], saved_ms
        return draft

    def observe(self, tokens: Sequence[int]) -> None:
        """Learn from tokens added to the log: accepted drafts, and what the model chose itself.

        Leads that were not proposed are judged all the same: that is how drafts come back.
        """
        for kind, run, expected in self._leads:
            right = common_length(expected, tokens)
            is_wrong = right < min(len(expected), len(tokens))
            self._chances.learn(kind, run, right, was_wrong=is_wrong)
        self._leads = []
        self._cursor.follow(tokens)

    def _find_leads(self) -> list[Lead]:
        lead = self._cursor.lead(self._history.tail(DEEP), MOST)
        if lead is not None and lead.kind in (Kind.START, Kind.FOLLOW):
            return [lead]
        tokens, run = self._history.recall(MOST)
        remembered = [Lead(Kind.SUFFIX, run, tokens)] if tokens else []
        return [lead, *remembered] if lead is not None else remembered

    def _best_length(self, lead: Lead, limit: int) -> tuple[int, float]:
        """The length that saves the most time, and how much.

        The rival is to wait: one plain pass later it is known whether the lead's first token is right, and
        the others come from there at the best price. So each accepted token is worth that price, and a draft
        must be worth more than its pass costs beyond a plain one.
        """
        most = max(0, min(limit, len(lead.tokens)))
        first, *later = self._chances.ahead(lead.kind, lead.run, most + 1)
        # yields[n]: tokens to expect of a pass with n drafts once the first is known to be right
        yields = list(accumulate(accumulate(later, mul), initial=1.0))
        lengths = [size - 1 for size in SIZES if size <= most] + [most]
        plain_ms, costs_ms = self._costs.ms(1), [self._costs.ms(length + 1) for length in lengths]
        price_ms = min(ms / yields[length] for ms, length in zip(costs_ms, lengths, strict=True))
        saved = [
            (first * yields[n - 1] * price_ms - ms + plain_ms, n)
            for ms, n in zip(costs_ms, lengths, strict=True)
            if n > 0
        ]
        saved_ms, length = max(saved, default=(0.0, 0))
        return length, saved_ms
