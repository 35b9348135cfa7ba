"""Long texts that were encoded before, with their tokens.

Clients send instructions, tools and all that was said with every turn, and the first token would wait for
them to be encoded again. Owns the memory of recent texts. Does not own how a text is encoded.
"""

import threading
from array import array
from collections import OrderedDict
from collections.abc import Callable

LONG_CHARS = 512  # encoding less takes no longer than finding it
MOST_CHARS = 4 * 1024 * 1024  # of all texts together


class EncodedTexts:
    """Encodes texts, each long one once. May be called from several threads."""

    def __init__(self, encode: Callable[[str], list[int]], most_chars: int = MOST_CHARS) -> None:
        self._encode = encode
        self._most_chars = most_chars
        self._known: OrderedDict[str, array[int]] = OrderedDict()  # the one used last at the end
        self._chars = 0
        self._lock = threading.Lock()

    def __call__(self, text: str) -> list[int]:
        if len(text) < LONG_CHARS:
            return self._encode(text)
        with self._lock:
            if (known := self._known.get(text)) is not None:
                self._known.move_to_end(text)
                return known.tolist()
        tokens = self._encode(text)
        with self._lock:
            self._remember(text, array("i", tokens))
        return tokens

    def _remember(self, text: str, tokens: "array[int]") -> None:
        if text not in self._known:
            self._chars += len(text)
        self._known[text] = tokens
        while self._chars > self._most_chars:
            oldest, _ = self._known.popitem(last=False)
            self._chars -= len(oldest)
