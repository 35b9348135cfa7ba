"""Which text of a file is read for a completion, and where it is divided into before, behind and begun.

Owns how much is read, and that this stays the same while the user types on: a prompt that begins like the
last one is not prefilled again. Does not own tokens (`infill_prompt`) or sessions (`infill_sessions`).
"""

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from vivace.protocol.shapes.requests import Infill

# The last word before the cursor, cut off as vocabularies do: with one mark or space before it. A token that
# the cursor divides must be chosen anew: " " and "self" are not what a model knows as " self".
LAST_WORD = re.compile(r"(?:[^\w\r\n]|_)?[^\W\d_]+\Z| ?(?:[^\w\s]|_)+\Z|[ \t]+\Z")
MOST_REPEATED_CHARS = 32  # more than a word
HEAD_CHARS = 256  # by which the first line of an earlier window is found again


class Window(NamedTuple):
    """How many characters are read."""

    cold: int  # before the cursor, at a place where nothing was read yet: somebody waits for it
    most: int  # before the cursor, after typing on from there
    behind: int
    is_line_begun: bool  # whether the cursor's line begins the middle; see `Gap`


# A CPU reads about 80 tokens a second, which are 300 characters. A GPU reads all of this in milliseconds, and
# is quickest without a grammar.
CPU_WINDOW = Window(cold=1024, most=4096, behind=160, is_line_begun=True)
GPU_WINDOW = Window(cold=16_384, most=24_576, behind=4096, is_line_begun=False)


class Gap(NamedTuple):
    """Text around a gap: before, behind, and the beginning of the middle that is there already.

    In the prompt `begun` stands last, so that a letter that is typed costs a token or two: neither `before`
    nor `behind` is read again.
    """

    before: str
    behind: str | None  # None: there is no gap, the text goes on
    begun: str = ""  # whole lines that were typed since `before`, and the cursor's line
    repeated: str = ""  # the end of that line: not in the prompt, but what the answer must begin with

    @property
    def read(self) -> str:
        """Return what is read of the text before the cursor."""
        return self.before + self.begun

    @property
    def prefix(self) -> str:
        """Return the same up to the cursor."""
        return self.read + self.repeated


def gap_of(infill: Infill, window: Window, earlier: Iterable[Gap], stops: Sequence[str] = ()) -> Gap:
    """Return what to read for a completion, divided as one of the `earlier` ones where that is possible.

    Of a prompt without a gap nothing is left out.
    """
    prefix = infill.prefix
    if infill.suffix is None:
        return Gap(prefix, None)
    behind = beginning_of(infill.suffix, window.behind)
    known = list(earlier)
    start = _known_start(prefix, window, known)
    if start is None:
        start = len(prefix) - len(end_of(prefix, window.cold))
    if not window.is_line_begun:
        return Gap(prefix[start:], behind)
    for gap in known:
        at = _start_of(gap.before, prefix)
        if gap.behind == behind and at is not None and len(prefix) - at <= window.most:
            return _divided(gap.before, behind, prefix[at + len(gap.before) :], stops)
    line = max(start, prefix.rfind("\n") + 1)
    return _divided(prefix[start:line], behind, prefix[line:], stops)


def _divided(before: str, behind: str, begun: str, stops: Sequence[str]) -> Gap:
    """Return a gap whose answer repeats the last word before the cursor, unless a stop text may be in that.

    Then the cursor's line is read before the gap, where a model expects half a word.
    """
    found = LAST_WORD.search(begun, max(0, len(begun) - MOST_REPEATED_CHARS))
    word = found[0] if found else ""
    if any(_touches(word, stop) for stop in stops):
        return Gap(before + begun, behind)
    return Gap(before, behind, begun[: len(begun) - len(word)], word)


def _touches(word: str, stop: str) -> bool:
    """Return whether a stop text may begin in the word."""
    return any(stop.startswith(word[at : at + len(stop)]) for at in range(len(word)))


def _known_start(prefix: str, window: Window, known: Iterable[Gap]) -> int | None:
    """Return where an earlier window of the same file begins, if it holds this place and enough before it."""
    for gap in known:
        start = _start_of(gap.before[:HEAD_CHARS], prefix)
        if start is None or not gap.before:
            continue
        length = len(prefix) - start
        if length <= window.most and (start == 0 or 2 * length >= window.cold):
            return start
    return None


def _start_of(text: str, prefix: str) -> int | None:
    """Return where a text stands in the prefix if it begins a line there. No text stands at the beginning."""
    at = prefix.rfind(text) if text else 0
    return at if at == 0 or (at > 0 and prefix[at - 1] == "\n") else None


def end_of(text: str, most_chars: int) -> str:
    """Return the whole lines that a text ends with, or as much of its last line as is allowed."""
    if len(text) <= most_chars:
        return text
    start = len(text) - most_chars
    line = text.find("\n", start - 1) + 1
    return text[line or start :]


def beginning_of(text: str, most_chars: int) -> str:
    """Return the whole lines that a text begins with, or as much of its first line as is allowed."""
    if len(text) <= most_chars:
        return text
    end = text.rfind("\n", 0, most_chars)
    return text[: end + 1] if end > 0 else text[:most_chars]
