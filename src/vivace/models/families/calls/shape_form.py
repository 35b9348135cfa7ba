"""Grammars of calls between markers: as JSON behind a name, or as tags around keys and values.

Owns how such calls stand in a group, and in free text. Before a marker a line break may come: where only one
text can follow, its tokens would not be the model's own (see `lark_grammar`).
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from vivace.models.families.base import Tool
from vivace.models.families.calls.lark_grammar import TEXT, arguments_rule, json_rule, literal, pattern
from vivace.models.families.calls.xml_call import Tags, types_of

_JSON_TYPES = {"integer": "number"}  # as a tag says it


class ShapeForm(msgspec.Struct, frozen=True):
    """Calls as `HEAD arguments TAIL`, with text between them and behind the last one."""

    begin: str  # what stands before the first call: a marker, and perhaps white space
    head: str  # pattern of what a call begins with; NAME stands for the tool's
    tail: str = ""  # pattern of what stands behind the arguments
    separator: str = ""  # pattern of what stands between two calls
    end: str = ""  # pattern of what may stand behind the last call
    is_group: bool = True  # calls follow each other behind one marker; or else each has its own

    def holds(self, tool: Tool) -> bool:
        return bool(tool.syntax == "regex" and tool.definition) if tool.is_custom else tool.is_strict

    def opener(self) -> str:
        return pattern(rf"\n{{0,3}}{re.escape(self.begin)}")

    def calls(self, tools: Sequence[Tool], *, is_parallel: bool) -> list[str]:
        more = f"(?:{self.end})?" if self.end else ""
        separator = self.separator if self.is_group else rf"{more}\n?{re.escape(self.begin)}"
        group, rules = _group(separator, is_parallel=is_parallel)
        return [
            f"calls: {group}{' END?' if self.end else ''}",
            *rules,
            *([f"END: {pattern(self.end)}"] if self.end else []),
            *self._call(tools, is_free=False),
        ]

    def free(self, tools: Sequence[Tool], *, is_parallel: bool) -> list[str]:
        marker = self.begin.rstrip()
        rest = f"{literal(self.begin[len(marker) :])} " if marker != self.begin else ""
        group, rules = _group(self.separator, is_parallel=is_parallel and self.is_group)
        more = f"(head {rest}{group})* TEXT" if is_parallel else "END?" if self.end else ""
        return [
            f"free: TEXT | head {rest}{group} {more}",
            TEXT,
            f"head[lazy]: TEXT {literal(marker)}",
            *rules,
            *([f"END: {pattern(self.end)}"] if self.end and not is_parallel else []),
            *self._call(tools, is_free=True),
        ]

    def _call(self, tools: Sequence[Tool], *, is_free: bool) -> list[str]:
        tail = " TAIL" if self.tail else ""
        ways = " | ".join(f"HEAD_{i} args_{i}{tail}" for i in range(len(tools)))
        rules = [f"HEAD_{i}: {self._head(tool)}" for i, tool in enumerate(tools)]
        rules += [f"args_{i}: {arguments_rule(tool, is_free=is_free)}" for i, tool in enumerate(tools)]
        return [f"call: {ways}", *([f"TAIL: {pattern(self.tail)}"] if tail else []), *rules]

    def _head(self, tool: Tool) -> str:
        return pattern(self.head.replace("NAME", re.escape(literal(tool.name)[1:-1])))


class TagForm(ShapeForm, frozen=True):
    """Calls as tags. `key` is the tag of a parameter: KEY, STRING (true or false) and TYPE are filled in."""

    key: str = ""
    tags: Tags = Tags()

    def holds(self, tool: Tool) -> bool:
        return bool(tool.definition and tool.syntax != "text") if tool.is_custom else tool.is_strict

    def _call(self, tools: Sequence[Tool], *, is_free: bool) -> list[str]:
        ways = " | ".join(f"HEAD_{i} body_{i}" for i in range(len(tools)))
        rules = [f"HEAD_{i}: {self._head(tool)}" for i, tool in enumerate(tools)]
        rules += [rule for i, tool in enumerate(tools) for rule in self._body(i, tool, is_free=is_free)]
        return [
            f"call: {ways}",
            f"value[lazy]: {pattern(f'(?s:.*){re.escape(self.tags.end_value)}')}",
            f"anything[lazy]: {pattern(f'(?s:.*){re.escape(self.tags.end_function)}')}",
            "END_VALUE: " + pattern(rf"\n?{re.escape(self.tags.end_value)}"),
            "END_FUNCTION: " + pattern(rf"\n?{re.escape(self.tags.end_function)}"),
            *rules,
        ]

    def _body(self, index: int, tool: Tool, *, is_free: bool) -> list[str]:
        if tool.is_custom:
            value, *rules = self._free_text(index, tool)
            key = f"KEY_{index}: {self._key('input', {'string'})}"
            return [f"body_{index}: KEY_{index} {value} END_FUNCTION", key, *rules]
        properties = (tool.parameters or {}).get("properties")
        if (is_free and not tool.is_strict) or (tool.parameters and not isinstance(properties, Mapping)):
            return [f"body_{index}: anything"]
        required = (tool.parameters or {}).get("required") or []
        names, rules = [], []
        for place, key in enumerate(properties or {}):
            names.append(f"value_{index}_{place}{'' if key in required else '?'}")
            types = types_of(tool.parameters or {}, key)
            rules.append(f"KEY_{index}_{place}: {self._key(key, types)}")
            rules.append(f"value_{index}_{place}: KEY_{index}_{place} {self._value(tool, key)}")
        return [f"body_{index}: {' '.join(names)} END_FUNCTION", *rules]

    def _key(self, key: str, types: set[str]) -> str:
        """Return the pattern of a tag before a value. A line break of the template's may be missing."""
        kinds = "|".join(sorted(_JSON_TYPES.get(name, name) for name in types)) or "[a-z]+"
        is_string = (
            "true" if types == {"string"} else "(?:true|false)" if "string" in types or not types else "false"
        )
        shape = re.escape(self.key).replace("\\\n", "\\n?").replace("\n", "\\n?")
        shape = shape.replace("KEY", re.escape(key)).replace("STRING", is_string)
        return pattern(rf"\n?{shape.replace('TYPE', f'(?:{kinds})')}")

    def _value(self, tool: Tool, key: str) -> str:
        """Return the rule of a parameter's value and its closing tag."""
        parameters: dict[str, Any] = tool.parameters or {}
        schema = parameters["properties"][key]
        types = types_of(parameters, key)
        if types == {"string"} or not isinstance(schema, dict):
            values = schema.get("enum") if isinstance(schema, dict) else None
            return f"({' | '.join(map(literal, values))}) END_VALUE" if values else "value"
        if "string" in types or not types & {"integer", "number", "boolean", "array", "object", "null"}:
            return "value"  # text or something else: only its tags say where it ends
        shared = {name: parameters[name] for name in ("$defs", "definitions") if name in parameters}
        return f"{json_rule({**shared, **schema}, is_lenient=not tool.is_strict)} END_VALUE"

    def _free_text(self, index: int, tool: Tool) -> list[str]:
        """Return the rule of a custom tool's text and its closing tag, and the rules it needs."""
        if not tool.definition or tool.syntax == "text":
            return ["value"]
        if tool.syntax == "regex":
            return [f"TEXT_{index} END_VALUE", f"TEXT_{index}: {pattern(tool.definition)}"]
        return [f"text_{index} END_VALUE", f"text_{index}: %lark {{\n{tool.definition}\n}}"]


def _group(separator: str, *, is_parallel: bool) -> tuple[str, list[str]]:
    """Return the rule of calls that follow each other, and the rules it needs."""
    if not is_parallel:
        return "call", []
    return ("call (SEPARATOR call)*", [f"SEPARATOR: {pattern(separator)}"]) if separator else ("call+", [])
