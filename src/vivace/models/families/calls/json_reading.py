"""JSON as it streams, in pieces of any size: each reader reads its value and says when it has ended.

Owns the scanning of values, strings and objects, each character once. Small models write line breaks and
backslashes into strings as they are; these are escaped, so that what goes on is JSON. Whether a value is
JSON as a whole is for its user to see (`is_json_object`). Does not know tools.
"""

import re
from collections.abc import Callable
from typing import Any, Protocol

import msgspec

from vivace.models.families.calls.scanning import past_space

Sink = Callable[[str], None]

_STRING_MARK = re.compile(r'["\\]')
_STRING_MARK_OR_CONTROL = re.compile(r'["\\\x00-\x1f]')
_BRACKET_OR_QUOTE = re.compile(r'["{}\[\]]')
_SCALAR_END = re.compile(r'[\s,:"{}\[\]<`]')
_SIMPLE = {'"': '"', "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_HEX = frozenset("0123456789abcdefABCDEF")


class Reader(Protocol):
    is_over: bool  # it has all it wanted
    is_wrong: bool  # the next character cannot be

    def feed(self, text: str, at: int) -> int:
        """Read from `text` at `at` on; return where reading stopped."""
        ...


def decoded(text: str) -> Any:
    """Return the value of a JSON text; None if it is not JSON (or `null`)."""
    try:
        return msgspec.json.decode(text.encode("utf-8", "replace"))
    except (msgspec.DecodeError, RecursionError):
        return None


def is_json_object(text: str) -> bool:
    return isinstance(decoded(text), dict)


class StringReader:
    """Reads a string from behind its first quote, and decodes its escapes."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._escape = ""  # of an escape, what has come so far
        self._high = 0  # the first half of a pair of surrogates
        self.is_over = self.is_wrong = False

    def feed(self, text: str, at: int) -> int:
        while at < len(text) and not self.is_over:
            if self._escape:
                at = self._unescape(text, at)
                continue
            found = _STRING_MARK.search(text, at)
            end = found.start() if found else len(text)
            self._say(text[at:end])
            at = end
            if found:
                at += 1
                if text[end] == "\\":
                    self._escape = "\\"
                else:
                    self._flush()
                    self.is_over = True
        return at

    def _unescape(self, text: str, at: int) -> int:
        """Read one character of an escape. An unknown escape is kept as text."""
        letter = text[at]
        if self._escape == "\\":
            if letter in _SIMPLE:
                self._say(_SIMPLE[letter])
            elif letter == "u":
                self._escape += letter
                return at + 1
            else:
                self._say("\\")
                at -= 1
        elif letter in _HEX:
            self._escape += letter
            if len(self._escape) < 6:
                return at + 1
            self._say_code(int(self._escape[2:], 16))
        else:
            self._say(self._escape)
            at -= 1
        self._escape = ""
        return at + 1

    def _say(self, text: str) -> None:
        if text:
            self._flush()
            self._sink(text)

    def _say_code(self, code: int) -> None:
        if 0xDC00 <= code < 0xE000 and self._high:
            code, self._high = 0x10000 + (self._high - 0xD800) * 0x400 + code - 0xDC00, 0
        if 0xD800 <= code < 0xDC00:
            self._flush()
            self._high = code
        else:
            self._say("�" if 0xDC00 <= code < 0xE000 else chr(code))

    def _flush(self) -> None:
        """Write a surrogate whose second half never came."""
        if self._high:
            self._high = 0
            self._sink("�")


class ValueReader:
    """Reads any value as it is written, and escapes what JSON strings must escape."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._depth = 0
        self._is_in_string = self._is_scalar = False
        self._escape = ""
        self.is_over = self.is_wrong = False

    def feed(self, text: str, at: int) -> int:
        taken: list[str] = []
        while at < len(text) and not self.is_over:
            if self._escape:
                at = self._in_escape(text, at, taken)
            elif self._is_in_string:
                at = self._in_string(text, at, taken)
            elif self._is_scalar or (not self._depth and text[at] not in '"{['):
                at = self._in_scalar(text, at, taken)
            else:
                at = self._between(text, at, taken)
        if taken:
            self._sink("".join(taken))
        return at

    def _between(self, text: str, at: int, taken: list[str]) -> int:
        found = _BRACKET_OR_QUOTE.search(text, at)
        if not found:
            taken.append(text[at:])
            return len(text)
        end = found.end()
        taken.append(text[at:end])
        match text[end - 1]:
            case '"':
                self._is_in_string = True
            case "{" | "[":
                self._depth += 1
            case _:
                self._depth -= 1
                self.is_over = not self._depth
        return end

    def _in_string(self, text: str, at: int, taken: list[str]) -> int:
        found = _STRING_MARK_OR_CONTROL.search(text, at)
        if not found:
            taken.append(text[at:])
            return len(text)
        end = found.start()
        taken.append(text[at:end])
        match text[end]:
            case '"':
                taken.append('"')
                self._is_in_string = False
                self.is_over = not self._depth
            case "\\":
                self._escape = "\\"
            case control:
                taken.append(msgspec.json.encode(control).decode()[1:-1])
        return end + 1

    def _in_escape(self, text: str, at: int, taken: list[str]) -> int:
        """Read one character of an escape. The backslash of an unknown escape is escaped."""
        letter = text[at]
        is_first = self._escape == "\\"
        if letter in _SIMPLE if is_first else letter in _HEX:
            self._escape += letter
            if not is_first and len(self._escape) < 6:
                return at + 1
            taken.append(self._escape)
        elif is_first and letter == "u":
            self._escape += letter
            return at + 1
        else:
            taken.append("\\" + self._escape)
            at -= 1
        self._escape = ""
        return at + 1

    def _in_scalar(self, text: str, at: int, taken: list[str]) -> int:
        self._is_scalar = True
        found = _SCALAR_END.search(text, at)
        end = found.start() if found else len(text)
        taken.append(text[at:end])
        self.is_over = found is not None
        return end


class StringValue:
    """Reads a value that must be a string."""

    def __init__(self, sink: Sink) -> None:
        self._reader = StringReader(sink)
        self._has_quote = False
        self.is_over = self.is_wrong = False

    def feed(self, text: str, at: int) -> int:
        if not self._has_quote:
            if text[at] != '"':
                self.is_wrong = True
                return at
            self._has_quote = True
            at += 1
        at = self._reader.feed(text, at)
        self.is_over = self._reader.is_over
        return at


class ObjectReader:
    """Reads an object. `choose` returns the reader of a key's value; `close` is called behind the value."""

    def __init__(self, choose: Callable[[str], Reader | None], close: Callable[[str], bool]) -> None:
        self._choose, self._close = choose, close
        self._key: list[str] = []
        self._reader: Reader | None = None
        self._expects = "{"
        self.is_doubled = False  # it began with two braces, as some templates teach
        self.is_over = self.is_wrong = False

    def begin_at(self, key: str) -> None:
        """Begin at the value of this key."""
        self._key, self._expects = [key], "value"

    @property
    def is_between(self) -> bool:
        """Return whether a value has ended, and no other has begun."""
        return self._expects == ","

    def feed(self, text: str, at: int) -> int:
        while at < len(text) and not (self.is_over or self.is_wrong):
            at = self._read(text, at) if self._reader else self._step(text, at)
        return at

    def _step(self, text: str, at: int) -> int:
        """Read one character between keys and values, and the white space before it."""
        at = past_space(text, at)
        if at == len(text):
            return at
        match self._expects, text[at]:
            case "{", "{":
                self._expects = "key"
            case "key", "{" if not self.is_doubled and not self._key:
                self.is_doubled = True
            case "key", '"':
                self._key = []
                self._reader = StringReader(self._key.append)
            case ":", ":":
                self._expects = "value"
                return at + 1
            case "value", _:
                self._reader = self._choose("".join(self._key))
                self.is_wrong = self._reader is None
                return at
            case ",", ",":
                self._expects = "key"
            case (("key" | ","), "}"):
                self.is_over = True
            case _:
                self.is_wrong = True
                return at
        return at + 1

    def _read(self, text: str, at: int) -> int:
        assert self._reader is not None
        at = self._reader.feed(text, at)
        self.is_wrong = self._reader.is_wrong
        if self._reader.is_over:
            self._reader = None
            if self._expects == "key":
                self._expects = ":"
            else:
                self._expects = ","
                self.is_wrong = not self._close("".join(self._key))
        return at
