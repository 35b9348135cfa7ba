"""A call as tags: `<function=NAME><parameter=KEY>VALUE</parameter>…</function>` (Qwen3-Coder, GLM …).

Owns how such a call becomes JSON while it comes: values of string parameters go on as they are written, all
others when they are whole. A value ends at a closing tag behind which the call goes on; any other one is
part of it. What the tags are is data (`Tags`). A custom tool's free text is its parameter `input`, as it is.
"""

import functools
import re
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from vivace.models.families.base import Tool
from vivace.models.families.calls.call_reader import PartialCall
from vivace.models.families.calls.json_call import INPUT
from vivace.models.families.calls.json_reading import decoded
from vivace.models.families.calls.loose_values import CONSTANTS, python_json
from vivace.models.families.calls.scanning import begun, is_begun, past_space

FUNCTION = "<function="
CDATA, END_CDATA = "<![CDATA[", "]]>"
MAX_NAME = 256  # characters; what is longer is no name
_TYPES: dict[type, str] = {
    bool: "boolean", int: "integer", float: "number", str: "string",
    list: "array", dict: "object", type(None): "null",
}  # fmt: skip


class Tags(msgspec.Struct, frozen=True):
    """The tags of a call."""

    function: str = FUNCTION  # before the tool's name; "": the opener of the call is that
    end_name: tuple[str, ...] = (">",)  # behind it; a tag that follows anyway is left for the next step
    parameter: str = "<parameter="
    end_key: str = ">"
    end_value: str = "</parameter>"
    end_function: str = "</function>"
    closer: str = ""  # where `end_function` was forgotten
    cut: str = ""  # in a name or key: what follows is none of it
    has_lines: bool = False  # line breaks around a value are the template's
    has_cdata: bool = False  # values may stand in a CDATA section

    @property
    def behind_value(self) -> tuple[str, ...]:
        return (self.parameter, self.end_function, *([self.closer] if self.closer else ()))

    def named(self, head: str) -> tuple[str, bool | None]:
        """Return the name in the text of a tag, and whether the tag says that its value is a string."""
        name, _, rest = head.partition(self.cut) if self.cut else (head, "", "")
        if 'string="' not in rest and 'type="' not in rest:
            return name.strip(), None
        return name.strip(), 'string="true"' in rest or 'type="string"' in rest


QWEN_TAGS = Tags(closer="</tool_call>", has_lines=True)


class XmlCall(PartialCall):
    def __init__(self, tools: Mapping[str, Tool], tags: Tags = QWEN_TAGS) -> None:
        super().__init__(tools)
        self._tags = tags
        self._behind = tags.behind_value
        self._stop = ""  # of the value that is read
        self._waits = False  # for more text, at what may be the beginning of a tag
        self._name: list[str] = []  # of the function or parameter, what has come of it
        self._count = 0  # of parameters so far
        self._key = ""
        self._types: set[str] = set()  # of the parameter's values; none: unknown
        self._value: list[str] = []  # of a parameter that is told when it is whole
        self._closing: list[str] = []  # an end of the value that is none if the call does not go on
        self._state: Callable[[str, int], int] = self._open

    def feed(self, text: str, at: int) -> int:
        start, self._waits = at, False
        while at < len(text) and not (self.is_over or self.is_wrong or self._waits):
            at = self._state(text, at)
        self._raw.append(text[start:at])
        return at

    def finish(self) -> None:
        self.is_wrong = not self.has_ended

    # ---- states ----------------------------------------------------------------------------------

    def _open(self, text: str, at: int) -> int:
        return self._expect(text, past_space(text, at), {self._tags.function: self._function})

    def _function(self, text: str, at: int) -> int:
        at, head = self._read_head(text, at, self._tags.end_name)
        if head is not None:
            self._tool = self._tools.get(self._tags.named(head)[0])
            self.is_wrong = self._tool is None
            if self._tool:
                self._begin()
                self._grow("" if self._tool.is_custom else "{")
                self._state = self._inside
        return at

    def _inside(self, text: str, at: int) -> int:
        at, tags = past_space(text, at), self._tags
        if tags.closer and text.startswith(tags.closer, at):
            self._close()
            return at
        steps: dict[str, Callable[[str, int], int] | None]
        steps = {tags.parameter: self._parameter, tags.end_function: None}
        return self._expect(text, at, {**steps, tags.closer: self._inside} if tags.closer else steps)

    def _parameter(self, text: str, at: int) -> int:
        at, head = self._read_head(text, at, (self._tags.end_key,))
        if head is not None:
            self._key, is_string = self._tags.named(head)
            self._stop = self._tags.end_value
            self._begin_value(is_string)
            self._state = self._value_first
        return at

    def _value_first(self, text: str, at: int) -> int:
        if self._tags.has_cdata:
            if text.startswith(CDATA, at):
                self._stop = END_CDATA + self._tags.end_value
                self._state = self._in_value
                return at + len(CDATA)
            self._waits = is_begun(text, at, CDATA)
        if not self._waits:
            self._state = self._in_value
            at += self._tags.has_lines and text[at] == "\n"
        return at

    def _in_value(self, text: str, at: int) -> int:
        found = text.find(self._stop, at)
        if found < 0:
            ends = (self._stop, "\n" + self._stop) if self._tags.has_lines else (self._stop,)
            keep = begun(text, at, ends)
            self._grow_value(text[at : len(text) - keep])
            self._waits = keep > 0
            return len(text) - keep
        end = found - (self._tags.has_lines and found > at and text[found - 1] == "\n")
        self._grow_value(text[at:end])
        self._closing = [text[end : found + len(self._stop)]]
        self._state = self._behind_value
        return found + len(self._stop)

    def _behind_value(self, text: str, at: int) -> int:
        """Read behind a closing tag. It ended the value only if the call goes on."""
        end = past_space(text, at)
        self._closing.append(text[at:end])
        if end == len(text):
            return end
        if text.startswith(self._behind, end):
            self._end_value()
            self._state = self._inside
        elif is_begun(text, end, *self._behind):
            self._waits = True
        else:
            self._grow_value("".join(self._closing))
            self._state = self._in_value
        return end

    # ---- small steps -----------------------------------------------------------------------------

    def _expect(self, text: str, at: int, tags: "dict[str, Callable[[str, int], int] | None]") -> int:
        """Read one of the tags and change to its state. A state of None ends the call."""
        for tag, state in tags.items():
            if text.startswith(tag, at):
                if state:
                    self._state = state
                else:
                    self._close()
                return at + len(tag)
        self._waits = is_begun(text, at, *tags)
        self.is_wrong = not self._waits
        return at

    def _read_head(self, text: str, at: int, ends: tuple[str, ...]) -> tuple[int, str | None]:
        """Read what stands before one of the ends; None if that is not whole."""
        last = at + MAX_NAME - sum(map(len, self._name))  # where the end must begin
        found = _any_of(ends).search(text, at)
        end = found.start() if found else len(text) - begun(text, at, ends)
        self.is_wrong = end > last
        self._name.append(text[at : min(end, last)])
        if self.is_wrong or not found:
            self._waits = end < len(text)
            return min(end, last), None
        head, self._name = "".join(self._name), []
        return end if found.group() in self._behind else found.end(), head

    def _close(self) -> None:
        assert self._tool is not None
        self.is_wrong = self._tool.is_custom and not self._count
        if not self.is_wrong:
            self._grow("" if self._tool.is_custom else "}")
            self._end()
            self.is_over = True

    # ---- values ----------------------------------------------------------------------------------

    def _begin_value(self, is_string: bool | None) -> None:
        assert self._tool is not None
        self._value = []
        if not self._tool.is_custom:
            self._types = types_of(self._tool.parameters or {}, self._key)
            if is_string and (not self._types or "string" in self._types):
                self._types = {"string"}
            elif is_string is False and len(self._types) > 1:
                self._types -= {"string"}
            self._grow(f"{', ' if self._count else ''}{_json(self._key)}: ")
            self._grow('"' if self._types == {"string"} else "")
        self._count += not self._tool.is_custom or self._key == INPUT

    def _grow_value(self, text: str) -> None:
        assert self._tool is not None
        if self._tool.is_custom:
            self._grow(text if self._key == INPUT else "")
        elif self._types == {"string"}:
            self._grow(_json(text)[1:-1])
        else:
            self._value.append(text)

    def _end_value(self) -> None:
        assert self._tool is not None
        if not self._tool.is_custom:
            is_told = self._types == {"string"}
            self._grow('"' if is_told else json_value("".join(self._value), self._types))


@functools.cache
def _any_of(texts: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile("|".join(map(re.escape, texts)))


def types_of(parameters: dict[str, Any], key: str) -> set[str]:
    """Return the JSON types that a schema allows for a parameter; empty if it names none."""
    properties = parameters.get("properties")
    schema = properties.get(key) if isinstance(properties, dict) else None
    if not isinstance(schema, dict):
        return set()
    if isinstance(values := schema.get("enum"), list):
        return {_TYPES.get(type(value), "") for value in values}
    named = schema.get("type")
    types = named if isinstance(named, list) else [named]
    return {name for name in types if isinstance(name, str)}


def json_value(text: str, types: set[str]) -> str:
    """Return a parameter's text as JSON: the value it spells if the types allow it, else a string."""
    plain = text.strip()
    plain = CONSTANTS.get(plain, plain)
    value = decoded(plain)
    if value is None and plain[:1] in ("{", "[", "(") and types & {"object", "array"}:
        plain = python_json(plain) or plain
        value = decoded(plain)
    kind = _TYPES.get(type(value), "")
    is_named = not types or kind in types or (kind == "integer" and "number" in types)
    is_valid = plain == "null" if value is None else True
    return plain if is_valid and (is_named or "string" not in types) else _json(text)


def _json(text: str) -> str:
    return msgspec.json.encode(text.encode("utf-8", "replace").decode()).decode()
