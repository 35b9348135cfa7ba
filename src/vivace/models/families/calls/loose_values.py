"""Values that are nearly JSON, as Python and Gemma write them: read as they stream, and told as JSON.

Owns quotes other than JSON's, keys without quotes, Python's constants and tuples. Whether the whole is JSON
in the end is for its user to see.
"""

import re
import sys

import msgspec

from vivace.models.families.calls.json_reading import Sink
from vivace.models.families.calls.scanning import is_begun, past_space

CONSTANTS = {"True": "true", "False": "false", "None": "null"}
PYTHON_QUOTES = ('"', "'")
_WORD_END = re.compile(r"""[\s,:=(){}\[\]"'<]""")
_LITERAL = re.compile(r"true|false|null|-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?")
_ESCAPE = re.compile(r"""\\(?:x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|[^xuU])|\\[xuU]""", re.DOTALL)
_PARTIAL_ESCAPE = re.compile(r"\\(?:x[0-9a-fA-F]?|u[0-9a-fA-F]{0,3}|U[0-9a-fA-F]{0,7})?")
_JSON_ESCAPES = frozenset('"\\/bfnrtu')
_OPENERS, _CLOSERS = {"{": "{", "[": "[", "(": "["}, {"}": "}", "]": "]", ")": "]"}
MAX_WORD = 256  # characters; what is longer is neither a key nor a number


def quoted(text: str) -> str:
    """Return text as it stands in a JSON string."""
    return msgspec.json.encode(text.encode("utf-8", "replace").decode()).decode()[1:-1]


def escape_at(text: str, at: int) -> tuple[int, str]:
    """Return the end of the escape at a backslash, and it as JSON; `at` itself if more text must come."""
    partial = _PARTIAL_ESCAPE.match(text, at)
    if partial and partial.end() == len(text):
        return at, ""
    found = _ESCAPE.match(text, at)
    assert found is not None
    escape = found.group()
    if escape[1] in _JSON_ESCAPES and escape != "\\u":
        return found.end(), escape
    if escape[1] == "x" and len(escape) > 2:
        return found.end(), f"\\u00{escape[2:]}"
    if escape[1] == "U" and len(escape) > 2 and int(escape[2:], 16) <= sys.maxunicode:
        return found.end(), quoted(chr(int(escape[2:], 16)))
    return found.end(), "'" if escape[1] == "'" else quoted(escape)


class LooseReader:
    """Reads one value from its first character on."""

    def __init__(
        self, sink: Sink, quotes: tuple[str, ...] = PYTHON_QUOTES, *, has_escapes: bool = True
    ) -> None:
        self._sink = sink
        self._quotes = quotes
        self._has_escapes = has_escapes
        self._stack: list[str] = []  # the brackets that are open
        self._quote = ""  # of the open string
        self._is_at_key = False
        self._out: list[str] = []
        self._waits = False
        self.is_over = self.is_wrong = False

    def feed(self, text: str, at: int) -> int:
        self._waits = False
        while at < len(text) and not (self.is_over or self.is_wrong or self._waits):
            at = self._in_string(text, at) if self._quote else self._between(text, at)
        if self._out:
            self._sink("".join(self._out))
            self._out = []
        return at

    def _between(self, text: str, at: int) -> int:
        at = past_space(text, at)
        if at == len(text):
            return at
        for quote in self._quotes:
            if text.startswith(quote, at):
                self._quote = quote
                self._out.append('"')
                return at + len(quote)
        if is_begun(text, at, *self._quotes):
            self._waits = True
            return at
        letter = text[at]
        if letter in _OPENERS:
            self._open(letter)
        elif letter in _CLOSERS:
            return self._close(text, at)
        elif letter in ",:":
            self._out.append(f"{letter} ")
            self._is_at_key = letter == "," and self._stack[-1:] == ["{"]
            self.is_wrong = not self._stack
        else:
            return self._word(text, at)
        return at + 1

    def _open(self, letter: str) -> None:
        self._stack.append(_OPENERS[letter])
        self._out.append(_OPENERS[letter])
        self._is_at_key = letter == "{"

    def _close(self, text: str, at: int) -> int:
        if not self._stack:
            self.is_wrong = True
            return at
        self._stack.pop()
        self._out.append(_CLOSERS[text[at]])
        self._is_at_key = False
        self.is_over = not self._stack
        return at + 1

    def _word(self, text: str, at: int) -> int:
        """Read a key, a number or a constant. It is told when it is whole."""
        found = _WORD_END.search(text, at)
        end = found.start() if found else len(text)
        if end - at > MAX_WORD or end == at:
            self.is_wrong = True
        elif not found:
            self._waits = True
        else:
            self._say_word(text[at:end])
            return end
        return at

    def _say_word(self, word: str) -> None:
        if self._is_at_key:
            self._out.append(f'"{quoted(word)}"')
            self._is_at_key = False
            return
        word = CONSTANTS.get(word, word)
        self.is_wrong = not _LITERAL.fullmatch(word)
        if not self.is_wrong:
            self._out.append(word)
            self.is_over = not self._stack

    def _in_string(self, text: str, at: int) -> int:
        end = text.find(self._quote, at)
        stop = end if end >= 0 else len(text)
        escape = text.find("\\", at, stop) if self._has_escapes else -1
        if escape >= 0:
            behind, meant = escape_at(text, escape)
            self._waits = behind == escape
            self._out += [quoted(text[at:escape]), meant]
            return behind
        if end < 0:
            stop = len(text) - next(
                (n for n in range(len(self._quote) - 1, 0, -1) if text.endswith(self._quote[:n], at)), 0
            )
            self._waits = stop < len(text)
            self._out.append(quoted(text[at:stop]))
            return stop
        self._out.append(quoted(text[at:end]) + '"')
        end += len(self._quote)
        self._quote, self._is_at_key = "", False
        self.is_over = not self._stack
        return end


def python_json(text: str) -> str | None:
    """Return a Python literal as JSON; None if it is none."""
    pieces: list[str] = []
    reader = LooseReader(pieces.append)
    end = reader.feed(f"{text.strip()} ", 0)
    return "".join(pieces) if reader.is_over and end >= len(text.strip()) else None
