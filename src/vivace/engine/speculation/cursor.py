"""Track the position in the prediction that the output has reached, and find it again after a divergence.

The cursor starts at the first token. After a divergence `home` stays at the position where the output left
the prediction, until the output has followed it elsewhere for PROVEN_MATCH tokens: one false match must not
move the search. Owns the position. Does not choose how many tokens to draft from it.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from vivace.engine.common_length import common_length
from vivace.engine.speculation.acceptance import PROVEN_MATCH, DraftSource
from vivace.engine.speculation.suffix import MAX_PLACES, Places, Tokens

MAX_CURSOR_MATCH = 8  # longer matches count as this long
NEAR_TOKENS = 4  # a place up to this far behind home counts as near
DISTANCE_PRICE = 0.5  # tokens of match that doubling the distance from home costs
BACKWARD_PRICE = 3.0  # tokens of match that a place before home costs


class DraftCandidate(NamedTuple):
    """Tokens that may come next, where they come from, and the length of the match before them."""

    source: DraftSource
    match_length: int
    tokens: list[int]


class Cursor:
    def __init__(self, prediction: Sequence[int]) -> None:
        self._tokens = list(prediction)
        self._text: Tokens = np.array(self._tokens, np.int32)
        self._source = DraftSource.START
        self._home = self._at = self._match_length = 0
        self._is_lost = False

    def follow(self, tokens: Sequence[int]) -> None:
        """Advance over tokens added to the log, as far as they equal the prediction."""
        if self._is_lost:
            return
        right = common_length(self._tokens[self._at : self._at + len(tokens)], tokens)
        self._is_lost = right < len(tokens)
        self._at += right
        self._match_length += right
        if self._source is not DraftSource.START and self._match_length >= PROVEN_MATCH:
            self._source = DraftSource.FOLLOW
        if self._source in (DraftSource.START, DraftSource.FOLLOW):
            self._home = self._at

    def propose(self, tail: Sequence[int], count: int) -> DraftCandidate | None:
        """Return up to `count` tokens from the cursor on, or None. `tail` is the end of the log.

        Leave out the last token of the prediction. It ends the turn, and the pass before it yields it anyway.
        """
        if self._is_lost:
            self._find(tail)
        if self._is_lost or self._at >= len(self._tokens):
            return None
        end = min(self._at + count, len(self._tokens) - 1)
        return DraftCandidate(self._source, self._match_length, self._tokens[self._at : end])

    def _find(self, tail: Sequence[int]) -> None:
        """Move to the place whose match is the longest, less a price for its distance from home."""
        places: Places = np.flatnonzero(self._text[:-1] == tail[-1]) + 1 if tail else np.empty(0, np.intp)
        if len(places) > MAX_PLACES:
            first = int(np.searchsorted(places, self._home)) - MAX_PLACES // 2
            places = places[max(0, min(first, len(places) - MAX_PLACES)) :][:MAX_PLACES]
        if not len(places):
            return
        lengths, skipped = self._match_lengths(places, tail), places - self._home
        best = int(np.argmax(lengths - _price(skipped)))
        self._at, self._match_length = int(places[best]), int(lengths[best])
        self._source = DraftSource.NEAR if 0 <= skipped[best] <= NEAR_TOKENS else DraftSource.FAR
        self._is_lost = False

    def _match_lengths(self, places: Places, tail: Sequence[int]) -> Places:
        """Return for each place how many tokens before it equal the end of `tail`: 1 to MAX_CURSOR_MATCH."""
        lengths = np.ones(len(places), np.intp)
        alive = np.arange(len(places))
        for depth in range(1, min(MAX_CURSOR_MATCH, len(tail))):
            alive = alive[places[alive] > depth]
            alive = alive[self._text[places[alive] - 1 - depth] == tail[-1 - depth]]
            if not len(alive):
                break
            lengths[alive] += 1
        return lengths


def _price(skipped: Places) -> NDArray[np.float64]:
    """Return the tokens of match that a place must exceed for its distance; 0 at home."""
    price = DISTANCE_PRICE * np.log2(1.0 + np.abs(skipped))
    return np.where(skipped >= 0, price, price + BACKWARD_PRICE)
