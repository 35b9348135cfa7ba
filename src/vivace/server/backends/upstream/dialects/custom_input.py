"""The free text of a custom tool that had to be offered as a function with one argument, `input`.

Owns wrapping it, and taking it out again while it comes: what the client sees grow is the text, not its
JSON. Where the model writes anything but that argument first, all of it is looked at when the call is
whole.
"""

import json
import re
from typing import Any

from vivace.server.backends.upstream.dialects.reader import decode, mapping

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"input": {"type": "string", "description": "The whole input of the tool, as plain text."}},
    "required": ["input"],
    "additionalProperties": False,
}

_OPENING = re.compile(r'\s*\{\s*"input"\s*:\s*"')
_LONGEST_OPENING = 256
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", '"': '"', "\\": "\\", "/": "/"}
_PLAIN = re.compile(r'[^"\\]*')


def wrapped(text: str) -> str:
    return json.dumps({"input": text}, ensure_ascii=False)


class InputText:
    """Takes JSON in parts; gives the text of `input` as it grows."""

    def __init__(self) -> None:
        self._all: list[str] = []  # until it is clear whether it begins with the argument
        self._held = ""  # the beginning of an escape
        self._high = ""  # the first half of a character that JSON writes in two
        self._state = "opening"  # then: inside, after; or other

    @property
    def is_open(self) -> bool:
        """Return whether the text has begun and has not ended."""
        return self._state == "inside"

    def feed(self, piece: str) -> str:
        if self._state in ("opening", "other") and piece:
            self._all.append(piece)
        if self._state == "opening":
            start = "".join(self._all)
            if opening := _OPENING.match(start):
                self._state, piece, self._all = "inside", start[opening.end() :], []
            elif len(start) > _LONGEST_OPENING:
                self._state = "other"
        return self._inside(piece) if self._state == "inside" else ""

    def finish(self) -> str:
        """Return what is left to send when the call is whole."""
        rest, self._high = ("\ufffd" if self._high else ""), ""
        if self._state not in ("opening", "other"):
            return rest
        text, self._state = "".join(self._all), "after"
        try:
            found = decode(text)
        except ValueError:
            return text
        given = mapping(found)
        only = next(iter(given.values())) if len(given) == 1 else None
        chosen = given.get("input", only)
        if isinstance(found, str):
            chosen = found
        return chosen if isinstance(chosen, str) else text

    def _inside(self, piece: str) -> str:
        text, self._held = self._held + piece, ""
        said: list[str] = []
        at = 0
        while at < len(text):
            plain = _PLAIN.match(text, at)
            assert plain is not None
            if plain[0]:
                said.append(self._whole(plain[0]))
            at = plain.end()
            if at == len(text):
                break
            if text[at] == '"':
                self._state = "after"
                break
            escape = text[at : at + 6] if text[at + 1 : at + 2] == "u" else text[at : at + 2]
            if len(escape) < (6 if escape[1:2] == "u" else 2):
                self._held = text[at:]
                break
            said.append(self._unescaped(escape))
            at += len(escape)
        return "".join(said)

    def _unescaped(self, escape: str) -> str:
        if escape[1] != "u":
            return self._whole(_ESCAPES.get(escape[1], escape))
        try:
            code = int(escape[2:], 16)
        except ValueError:
            return self._whole(escape)
        if 0xD800 <= code < 0xDC00:
            before, self._high = ("\ufffd" if self._high else ""), chr(code)
            return before
        if 0xDC00 <= code < 0xE000:
            high, self._high = self._high, ""
            pair = (high + chr(code)).encode("utf-16", "surrogatepass")
            return pair.decode("utf-16", "replace")
        return self._whole(chr(code))

    def _whole(self, text: str) -> str:
        """Return text that does not complete a surrogate pair; a first half before it becomes U+FFFD."""
        before, self._high = ("\ufffd" if self._high else ""), ""
        return before + text
