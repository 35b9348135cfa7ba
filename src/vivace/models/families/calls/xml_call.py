"""A call as tags: `<function=NAME><parameter=KEY>VALUE</parameter>…</function>` (Qwen3-Coder).

Owns how such a call becomes JSON while it comes: values of string parameters go on as they are written, all
others when they are whole. A value ends at a `</parameter>` behind which the call goes on; any other one is
part of it. A custom tool's free text is its parameter `input`, as it is.
"""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from vivace.models.families.base import Tool
from vivace.models.families.calls.call_reader import PartialCall
from vivace.models.families.calls.json_call import INPUT
from vivace.models.families.calls.json_reading import decoded
from vivace.models.families.calls.scanning import begun, is_begun, past_space

FUNCTION, END_FUNCTION = "<function=", "</function>"
PARAMETER, END_PARAMETER = "<parameter=", "</parameter>"
END_CALL = "</tool_call>"  # where `</function>` was forgotten
MAX_NAME = 256  # characters; what is longer is no name
_CONSTANTS = {"True": "true", "False": "false", "None": "null"}  # as Python, and Qwen's template, write them
_TYPES: dict[type, str] = {
    bool: "boolean", int: "integer", float: "number", str: "string",
    list: "array", dict: "object", type(None): "null",
}  # fmt: skip


class XmlCall(PartialCall):
    def __init__(self, tools: Mapping[str, Tool]) -> None:
        super().__init__(tools)
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
        return self._expect(text, past_space(text, at), {FUNCTION: self._function})

    def _function(self, text: str, at: int) -> int:
        at, name = self._read_name(text, at)
        if name is not None:
            self._tool = self._tools.get(name)
            self.is_wrong = self._tool is None
            if self._tool:
                self._begin()
                self._grow("" if self._tool.is_custom else "{")
                self._state = self._inside
        return at

    def _inside(self, text: str, at: int) -> int:
        at = past_space(text, at)
        if text.startswith(END_CALL, at):
            self._close()
            return at
        return self._expect(
            text, at, {PARAMETER: self._parameter, END_FUNCTION: None, END_CALL: self._inside}
        )

    def _parameter(self, text: str, at: int) -> int:
        at, name = self._read_name(text, at)
        if name is not None:
            self._key = name
            self._begin_value()
            self._state = self._value_first
        return at

    def _value_first(self, text: str, at: int) -> int:
        self._state = self._in_value
        return at + (text[at] == "\n")

    def _in_value(self, text: str, at: int) -> int:
        found = text.find(END_PARAMETER, at)
        if found < 0:
            keep = begun(text, at, (END_PARAMETER, "\n" + END_PARAMETER))
            self._grow_value(text[at : len(text) - keep])
            self._waits = keep > 0
            return len(text) - keep
        end = found - (found > at and text[found - 1] == "\n")
        self._grow_value(text[at:end])
        self._closing = [text[end : found + len(END_PARAMETER)]]
        self._state = self._behind_value
        return found + len(END_PARAMETER)

    def _behind_value(self, text: str, at: int) -> int:
        """Read behind a closing tag. It ended the value only if the call goes on."""
        end = past_space(text, at)
        self._closing.append(text[at:end])
        if end == len(text):
            return end
        tags = (PARAMETER, END_FUNCTION, END_CALL)
        if text.startswith(tags, end):
            self._end_value()
            self._state = self._inside
        elif is_begun(text, end, *tags):
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

    def _read_name(self, text: str, at: int) -> tuple[int, str | None]:
        end = text.find(">", at)
        self._name.append(text[at : end if end >= 0 else len(text)])
        if end < 0:
            self.is_wrong = sum(map(len, self._name)) > MAX_NAME
            return len(text), None
        name, self._name = "".join(self._name).strip(), []
        return end + 1, name

    def _close(self) -> None:
        assert self._tool is not None
        self.is_wrong = self._tool.is_custom and not self._count
        if not self.is_wrong:
            self._grow("" if self._tool.is_custom else "}")
            self._end()
            self.is_over = True

    # ---- values ----------------------------------------------------------------------------------

    def _begin_value(self) -> None:
        assert self._tool is not None
        self._value = []
        if not self._tool.is_custom:
            self._types = types_of(self._tool.parameters or {}, self._key)
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
    plain = _CONSTANTS.get(plain, plain)
    value = decoded(plain)
    kind = _TYPES.get(type(value), "")
    is_named = not types or kind in types or (kind == "integer" and "number" in types)
    is_valid = plain == "null" if value is None else True
    return plain if is_valid and (is_named or "string" not in types) else _json(text)


def _json(text: str) -> str:
    return msgspec.json.encode(text.encode("utf-8", "replace").decode()).decode()
