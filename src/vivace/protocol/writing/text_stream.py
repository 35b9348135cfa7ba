"""Bytes of tokens to text that may be sent: whole characters only, and nothing of a stop string.

Owns UTF-8 across tokens and holding back what may become a stop string. Does not know tokens or events.
Without stop strings, all text together is `bytes.decode("utf-8", "replace")` of all bytes together.
"""

import codecs
from collections.abc import Sequence


class TextStream:
    def __init__(self, stops: Sequence[str] = ()) -> None:
        assert all(stops), "an empty stop string is everywhere"
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._stops = stops
        self._held = ""  # sent by the model, not by us yet: it may be the beginning of a stop string
        self.stop_starts = frozenset(stop[0] for stop in stops)
        self.stop_text = ""  # the stop string that ended the text

    @property
    def is_stopped(self) -> bool:
        return bool(self.stop_text)

    @property
    def is_clear(self) -> bool:
        """Return whether nothing is held back, so that `feed` gives text without `stop_starts` as it is."""
        return not (self.is_stopped or self._held or self._decoder.getstate()[0])

    def feed(self, piece: bytes) -> str:
        """Return the text that may be sent now."""
        return self._cut(self._decoder.decode(piece))

    def flush(self) -> str:
        """Return what is held back, since something that is not text follows: no stop string spans that."""
        rest, self._held = self._held, ""
        return "" if self.is_stopped else rest

    def finish(self) -> str:
        """Return the rest, when no more bytes will come."""
        text = self._cut(self._decoder.decode(b"", final=True))
        rest, self._held = self._held, ""
        return text if self.is_stopped else text + rest

    def _cut(self, text: str) -> str:
        if self.is_stopped or not text:
            return ""
        if not self._stops:
            return text
        text = self._held + text
        ends = [(at + len(stop), at, stop) for stop in self._stops if (at := text.find(stop)) >= 0]
        if ends:
            _, at, self.stop_text = min(ends)
            self._held = ""
            return text[:at]
        cut = len(text) - self._stop_begun_in(text)
        self._held = text[cut:]
        return text[:cut]

    def _stop_begun_in(self, text: str) -> int:
        """Return the length of the longest end of `text` that a stop string begins with."""
        longest = max(map(len, self._stops)) - 1
        for length in range(min(longest, len(text)), 0, -1):
            if text.endswith(tuple(stop[:length] for stop in self._stops if len(stop) > length)):
                return length
        return 0
