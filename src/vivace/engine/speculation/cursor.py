"""Track the position in the prediction that the output has reached, and find it again after a divergence.

The cursor starts at the first token. After a divergence `home` stays at the position where the output left
the prediction, until the output has followed it elsewhere for PROVEN_MATCH tokens: one false match must not
move the search. Owns the position. Does not choose how many tokens to draft from it.
"""

import bisect
import math
from collections.abc import Sequence
from typing import NamedTuple

from vivace.engine.common_length import common_length
from vivace.engine.speculation.acceptance import PROVEN_MATCH, DraftSource

MAX_PLACES = 64  # consider only the nearest of more places than this
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
        self._places: dict[int, list[int]] = {}  # behind each token; ascending
        for place, token in enumerate(self._tokens[:-1], 1):
            self._places.setdefault(token, []).append(place)
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
        places = self._places.get(tail[-1], []) if tail else []
        if len(places) > MAX_PLACES:
            first = bisect.bisect_left(places, self._home) - MAX_PLACES // 2
            places = places[max(0, min(first, len(places) - MAX_PLACES)) :][:MAX_PLACES]
        most = -math.inf
        for place in places:
            length, skipped = self._match_length_at(place, tail), place - self._home
            worth = length - DISTANCE_PRICE * math.log2(1 + abs(skipped)) - BACKWARD_PRICE * (skipped < 0)
            if worth > most:
                most, self._at, self._match_length, self._is_lost = worth, place, length, False
                self._source = DraftSource.NEAR if 0 <= skipped <= NEAR_TOKENS else DraftSource.FAR

    def _match_length_at(self, place: int, tail: Sequence[int]) -> int:
        """Return how many tokens before a place equal the end of `tail`: 1 to MAX_CURSOR_MATCH."""
        tokens, most = self._tokens, min(MAX_CURSOR_MATCH, len(tail), place)
        length = 1
        while length < most and tokens[place - 1 - length] == tail[-1 - length]:
            length += 1
        return length
