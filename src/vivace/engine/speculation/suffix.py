"""Find drafts in a session's own log: where its last tokens occurred before, and what followed them there.

Owns a copy of the log's tokens, 4 bytes each, and no index: numpy scans 131,072 tokens in less than 0.1 ms,
and a rewind costs nothing. The owner of the log extends and truncates this copy with it.
"""

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from vivace.engine.common_length import common_length

Tokens = NDArray[np.int32]
Places = NDArray[np.intp]  # ascending; at place p, text[p] is what would come next

MAX_MATCH = 32  # longer matches count as this long
MAX_PLACES = 512  # consider only the latest of more places than this
SCAN_FACTOR = 16  # scan the last MAX_PLACES * SCAN_FACTOR tokens first, and all only if places are missing
MIN_CONTINUATION = 16  # prefer an earlier place with this many tokens behind it to a later one with fewer


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
        """Return the last `count` tokens, or all if there are fewer."""
        tail: list[int] = self._tokens[max(0, self._length - count) : self._length].tolist()
        return tail

    def find_continuation(self, count: int) -> tuple[list[int], int]:
        """Return up to `count` tokens that followed the longest match of the log's end, and its length.

        Of equally long matches take the latest that has MIN_CONTINUATION tokens behind it. If matches of this
        length continue differently, return 0 as the length.
        """
        text = self._tokens[: self._length]
        places, length = longest_matches(text, self.tail(MAX_MATCH))
        if not len(places):
            return [], 0
        roomy = places[: places.searchsorted(self._length - MIN_CONTINUATION, side="right")]
        place = int(roomy[-1] if len(roomy) else places[0])
        following: list[int] = text[place : place + count].tolist()
        is_clear = bool((text[places] == text[place]).all())
        return following, length if is_clear else 0


def longest_matches(text: Tokens, tail: Sequence[int]) -> tuple[Places, int]:
    """Return the places in `text` behind the longest match of the end of `tail`, and its length."""
    places, length = _first_matches(text, tail)
    while len(places) > 1 and length < len(tail):
        early = places.searchsorted(length, side="right") if places[0] <= length else 0
        narrowed = places[early:]  # the others begin too early
        narrowed = narrowed[text[narrowed - 1 - length] == tail[-1 - length]]
        if not len(narrowed):
            break
        places, length = narrowed, length + 1
    if len(places) == 1:
        before: list[int] = text[max(0, places[0] - len(tail)) : places[0]].tolist()
        length = common_length(before[::-1], tail[::-1])
    return places, length


def _first_matches(text: Tokens, tail: Sequence[int]) -> tuple[Places, int]:
    """Return the latest places behind a match of the last 2 tokens of `tail`, or else of the last one.

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
    """Return the last MAX_PLACES indices where `mask` is true."""
    start = max(0, len(mask) - SCAN_FACTOR * MAX_PLACES)
    if start == 0:
        return mask.nonzero()[0][-MAX_PLACES:]
    ends = mask[start:].nonzero()[0] + start
    return (ends if len(ends) >= MAX_PLACES else mask.nonzero()[0])[-MAX_PLACES:]
