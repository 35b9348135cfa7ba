"""One session's log as a text to find drafts in: where its end occurred before, and what followed there.

Owns a copy of the log's tokens, 4 bytes each, and no index: a scan of 131,072 tokens takes numpy less than
0.1 ms, and a rewind costs nothing. Whoever owns the log extends and truncates this with it; nobody else does.
"""

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from vivace.engine.common_length import common_length

Tokens = NDArray[np.int32]
Places = NDArray[np.intp]  # ascending; at place p, text[p] is what would come next

LONGEST = 32  # a match is not followed back further
MANY = 512  # of more places than this, only the latest are looked at
DENSE = 16  # MANY places among the last MANY times this many tokens: no need to look further back
ROOM = 16  # a place with this much text behind it is better than a later one with less


class History:
    def __init__(self, tokens: Iterable[int] = ()) -> None:
        self._tokens: Tokens = np.empty(1024, np.int32)
        self._length = 0
        self.extend(tokens)

    def __len__(self) -> int:
        return self._length

    def extend(self, tokens: Iterable[int]) -> None:
        added = np.fromiter(tokens, np.int32)
        end = self._length + len(added)
        if end > len(self._tokens):
            grown: Tokens = np.empty(max(end, 2 * len(self._tokens)), np.int32)
            grown[: self._length] = self._tokens[: self._length]
            self._tokens = grown
        self._tokens[self._length : end] = added
        self._length = end

    def truncate(self, length: int) -> None:
        assert 0 <= length <= self._length
        self._length = length

    def tail(self, count: int) -> list[int]:
        """The last `count` tokens, or all if there are fewer."""
        tail: list[int] = self._tokens[max(0, self._length - count) : self._length].tolist()
        return tail

    def recall(self, count: int) -> tuple[list[int], int]:
        """At most `count` tokens that followed where the log's end occurred before, and the match's length.

        The longest match wins; of equally long ones the latest that has enough text behind it.
        """
        text = self._tokens[: self._length]
        places, length = longest_matches(text, self.tail(LONGEST))
        if not len(places):
            return [], 0
        roomy = places[: np.searchsorted(places, self._length - ROOM, side="right")]
        place = int(roomy[-1] if len(roomy) else places[0])
        following: list[int] = text[place : place + count].tolist()
        is_clear = bool((text[places] == text[place]).all())
        return following, length if is_clear else 0


def longest_matches(text: Tokens, tail: Sequence[int]) -> tuple[Places, int]:
    """The places in `text` that the longest end of `tail` stands before, and how long that end is."""
    places, length = _first_matches(text, tail)
    while len(places) > 1 and length < len(tail):
        narrowed = places[np.searchsorted(places, length, side="right") :]  # the others begin too early
        narrowed = narrowed[text[narrowed - 1 - length] == tail[-1 - length]]
        if not len(narrowed):
            break
        places, length = narrowed, length + 1
    if len(places) == 1:
        before: list[int] = text[max(0, places[0] - len(tail)) : places[0]].tolist()
        length = common_length(before[::-1], tail[::-1])
    return places, length


def _first_matches(text: Tokens, tail: Sequence[int]) -> tuple[Places, int]:
    """The latest places that the last two tokens of `tail` stand before, or else the last one.

    Comparing the whole text twice is faster than gathering from thousands of places with one common token.
    """
    if not tail or len(text) < 2:
        return np.empty(0, np.intp), 0
    lasts = text[:-1] == tail[-1]
    if len(tail) > 1:
        pairs = _latest(lasts[1:] & (text[:-2] == tail[-2]))
        if len(pairs):
            return pairs + 2, 2
    return _latest(lasts) + 1, 1


def _latest(mask: NDArray[np.bool_]) -> Places:
    """Where `mask` is true, the last MANY of them."""
    start = max(0, len(mask) - DENSE * MANY)
    ends = np.flatnonzero(mask[start:]) + start
    return (ends if start == 0 or len(ends) >= MANY else np.flatnonzero(mask))[-MANY:]
