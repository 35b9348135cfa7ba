"""The place in the prediction that the output has reached, found again whenever the output goes its own way.

It starts at the first token, without any warm-up. After a divergence `home` stays where the output left the
prediction until the output has followed it elsewhere for a while: one false match must not carry the search
away. Owns the place. Does not choose how much to draft from there.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from vivace.engine.common_length import common_length
from vivace.engine.speculation.chances import PROVEN, Kind
from vivace.engine.speculation.suffix import MANY, Places, Tokens

DEEP = 8  # matches longer than this count as this long
NEAR = 4  # tokens of the prediction that an edit may well skip
DISTANCE_PRICE = 0.5  # tokens of match that it takes to believe in a place twice as far from home
BACKWARD_PRICE = 3.0  # and in one that the output has passed already


class Lead(NamedTuple):
    """Tokens that may come next, and how much there is to say for them."""

    kind: Kind
    run: int  # tokens before them that matched
    tokens: list[int]


class Cursor:
    def __init__(self, prediction: Sequence[int]) -> None:
        self._tokens = list(prediction)
        self._text: Tokens = np.array(self._tokens, np.int32)
        self._kind = Kind.START
        self._home = self._at = self._run = 0
        self._is_lost = False

    def follow(self, tokens: Sequence[int]) -> None:
        """Follow what was added to the log, as far as it is what was predicted."""
        if self._is_lost:
            return
        right = common_length(self._tokens[self._at : self._at + len(tokens)], tokens)
        self._is_lost = right < len(tokens)
        self._at += right
        self._run += right
        if self._kind is not Kind.START and self._run >= PROVEN:
            self._kind = Kind.FOLLOW
        if self._kind in (Kind.START, Kind.FOLLOW):
            self._home = self._at

    def lead(self, tail: Sequence[int], count: int) -> Lead | None:
        """At most `count` tokens from where the output is, or seems to be: `tail` is the end of the log.

        The last token of the prediction is left out: it will end the turn, so nothing is gained by a pass
        that verifies it. The model says it by itself in the pass before.
        """
        if self._is_lost:
            self._find(tail)
        if self._is_lost or self._at >= len(self._tokens):
            return None
        end = min(self._at + count, len(self._tokens) - 1)
        return Lead(self._kind, self._run, self._tokens[self._at : end])

    def _find(self, tail: Sequence[int]) -> None:
        """Go to the place with the longest match for its distance from home."""
        places: Places = np.flatnonzero(self._text[:-1] == tail[-1]) + 1 if tail else np.empty(0, np.intp)
        if len(places) > MANY:
            first = int(np.searchsorted(places, self._home)) - MANY // 2
            places = places[max(0, min(first, len(places) - MANY)) :][:MANY]
        if not len(places):
            return
        lengths, skipped = self._match_lengths(places, tail), places - self._home
        best = int(np.argmax(lengths - _price(skipped)))
        self._at, self._run = int(places[best]), int(lengths[best])
        self._kind = Kind.NEAR if 0 <= skipped[best] <= NEAR else Kind.FAR
        self._is_lost = False

    def _match_lengths(self, places: Places, tail: Sequence[int]) -> Places:
        """How many tokens before each place are the end of `tail`: 1 to DEEP."""
        lengths = np.ones(len(places), np.intp)
        alive = np.arange(len(places))
        for depth in range(1, min(DEEP, len(tail))):
            alive = alive[places[alive] > depth]
            alive = alive[self._text[places[alive] - 1 - depth] == tail[-1 - depth]]
            if not len(alive):
                break
            lengths[alive] += 1
        return lengths


def _price(skipped: Places) -> NDArray[np.float64]:
    """Tokens of match that a place must have for its distance; 0 where the prediction was left."""
    price = DISTANCE_PRICE * np.log2(1.0 + np.abs(skipped))
    return np.where(skipped >= 0, price, price + BACKWARD_PRICE)
