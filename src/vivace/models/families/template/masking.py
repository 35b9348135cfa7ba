"""Text of users, tools and models, so written that no chat template can make a control token of it.

Owns one rule: before a template sees a value, each character of it that a marker could begin with is replaced
by a private-use character, one for one, so that lengths, trimming, splitting and JSON stay what they are.
A value that is itself a piece of a marker (`think` in `<think>`) is replaced whole. Afterwards only the
template's own text can contain a marker. Private-use characters of users are not touched: others are taken.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from vivace.models.families.token_writer import TemplateText

FIRST, LAST = 0xF0000, 0xFFFFD  # supplementary private use area A
_SCHEMA_WORDS = frozenset(
    {
        *(
            "type",
            "properties",
            "required",
            "items",
            "enum",
            "description",
            "default",
            "additionalProperties",
        ),
        *("title", "format", "anyOf", "oneOf", "allOf", "not", "const", "$ref", "$defs", "definitions"),
        *("minimum", "maximum", "minItems", "maxItems", "minLength", "maxLength", "pattern", "nullable"),
    }
)
_TYPES = frozenset({"string", "number", "integer", "boolean", "object", "array", "null", "function"})


class Markers:
    """The names of control tokens and of other markers, and where they stand in a text."""

    def __init__(self, names: Iterable[str]) -> None:
        self.names = tuple(sorted({name for name in names if name}, key=lambda name: (-len(name), name)))
        self.starts = frozenset(_start(name) for name in self.names)
        self._pattern = re.compile("|".join(map(re.escape, self.names)) or r"(?!)")

    @property
    def unsafe(self) -> tuple[str, ...]:
        """Return the names of letters alone: a user's text could not be told from them."""
        return tuple(name for name in self.names if _start(name).isalnum())

    def split(self, text: str) -> list[str]:
        """Return text and names in turn: text at even places, names at odd ones."""
        found, at = [], 0
        for match in self._pattern.finditer(text):
            found += [text[at : match.start()], match.group()]
            at = match.end()
        return [*found, text[at:]]

    def has_any(self, text: str) -> bool:
        return bool(self._pattern.search(text))

    def is_piece(self, value: str) -> bool:
        """Return whether a value is a piece of a marker without any character that is masked anyway."""
        return 0 < len(value) <= 40 and any(value in name and value != name for name in self.names)


def _start(name: str) -> str:
    """Return the first character of a name that is no letter, digit or space, or else its first."""
    return next(
        (char for char in name if not (char.isalnum() or char.isspace() or char in "\"'\\_")), name[0]
    )


class Mask:
    """The private-use characters of one conversation, and what they stand for."""

    def __init__(self, markers: Markers, taken: str) -> None:
        """`taken`: all text that the masks must differ from."""
        self._markers = markers
        self._taken = {char for char in taken if ord(char) >= FIRST}
        self._codes = iter(range(FIRST, LAST))
        self._masks: dict[str, str] = {}
        self._table = {ord(char): self._mask(char) for char in sorted(markers.starts)}
        self._back: dict[int, str] = {ord(mask): char for char, mask in self._masks.items()}

    def _mask(self, char: str) -> str:
        if char not in self._masks:
            code = next((code for code in self._codes if chr(code) not in self._taken), None)
            self._masks[char] = "\ufffd" if code is None else chr(code)  # someone wrote all 65,000 of them
            self._back = {ord(mask): char for char, mask in self._masks.items()}
        return self._masks[char]

    def text(self, value: str) -> str:
        if self._markers.is_piece(value):
            return "".join(map(self._mask, value))
        return value.translate(self._table)

    def value(self, value: Any) -> Any:
        """Return JSON with all its texts and names masked."""
        match value:
            case str():
                return self.text(value)
            case Mapping():
                return {self.text(str(key)): self.value(each) for key, each in value.items()}
            case list() | tuple():
                return [self.value(each) for each in value]
        return value

    def schema(self, value: Any) -> Any:
        """Return a JSON schema masked, but for the words of JSON schema that templates look for."""
        match value:
            case str():
                return value if value in _TYPES else self.text(value)
            case Mapping():
                keep = _SCHEMA_WORDS
                return {
                    key if key in keep else self.text(str(key)): self._part(key, v)
                    for key, v in value.items()
                }
            case list() | tuple():
                return [self.schema(each) for each in value]
        return value

    def _part(self, key: object, value: Any) -> Any:
        if key in ("properties", "$defs", "definitions") and isinstance(value, Mapping):
            return {self.text(str(name)): self.schema(each) for name, each in value.items()}
        return self.value(value) if key in ("default", "const", "enum") else self.schema(value)

    def pieces(self, rendered: str) -> list[str]:
        """Return a rendering as the template's markers (`TemplateText`) and everything between them."""
        parts = self._markers.split(rendered)
        return [
            TemplateText(part) if place % 2 else part.translate(self._back)
            for place, part in enumerate(parts)
        ]


def all_text(values: Sequence[Any]) -> str:
    """Return all text in these values, joined."""
    found: list[str] = []
    stack = list(values)
    while stack:
        match stack.pop():
            case str() as text:
                found.append(text)
            case Mapping() as mapping:
                stack += [*mapping.keys(), *mapping.values()]
            case list() | tuple() as items:
                stack += items
    return "".join(found)
