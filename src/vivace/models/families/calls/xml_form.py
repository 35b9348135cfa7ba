"""Grammars of calls as tags (Qwen3-Coder): each parameter between its tags, under its own schema.

Owns what such a call may look like. Text between tags is free up to its end tag; anything but text is JSON.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from vivace.models.families.base import Tool
from vivace.models.families.calls.lark_grammar import TEXT, json_rule, literal, pattern
from vivace.models.families.calls.xml_call import types_of

_LINES = r"lines[lazy]: /(?s:.*)\n<\/parameter>\n/"
_ANYTHING = r"anything[lazy]: /(?s:.*)<\/function>/"
_BEGIN_INPUT, _END_VALUE = literal("\n<parameter=input>\n"), literal("\n</parameter>\n")
_LINE, _END_FUNCTION = literal("\n"), literal("</function>")
_SEPARATOR = "SEPARATOR: " + pattern(r"\n</tool_call>\n<tool_call>\n")
_END = "END: " + pattern(r"\n(?:</tool_call>\n?)?")


class XmlForm:
    def holds(self, tool: Tool) -> bool:
        return bool(tool.definition and tool.syntax != "text") if tool.is_custom else tool.is_strict

    def opener(self) -> str:
        return pattern(r"\n{0,3}<tool_call>\n")

    def calls(self, tools: Sequence[Tool], *, is_parallel: bool) -> list[str]:
        more = '(SEPARATOR "<function=" call)*' if is_parallel else ""
        return [
            f'calls: "<function=" call {more} END?',
            *([_SEPARATOR] if is_parallel else []),
            _END,
            *_call(tools, is_free=False),
        ]

    def free(self, tools: Sequence[Tool], *, is_parallel: bool) -> list[str]:
        more = "(head call)* TEXT" if is_parallel else "END?"
        return [
            f"free: TEXT | head call {more}",
            TEXT,
            'head[lazy]: TEXT "<function="',
            *([] if is_parallel else [_END]),
            *_call(tools, is_free=True),
        ]


def _call(tools: Sequence[Tool], *, is_free: bool) -> list[str]:
    """Return the rule of a call from behind `<function=`."""
    ways = " | ".join(f"{literal(tool.name + '>')} body_{i}" for i, tool in enumerate(tools))
    rules = [rule for i, tool in enumerate(tools) for rule in _body(i, tool, is_free=is_free)]
    return [f"call: {ways}", _LINES, _ANYTHING, *rules]


def _body(index: int, tool: Tool, *, is_free: bool) -> list[str]:
    if tool.is_custom:
        value, *rules = _free_text(index, tool)
        return [f"body_{index}: {_BEGIN_INPUT} {value} {_END_FUNCTION}", *rules]
    properties = (tool.parameters or {}).get("properties")
    if (is_free and not tool.is_strict) or (tool.parameters and not isinstance(properties, Mapping)):
        return [f"body_{index}: anything"]
    required = (tool.parameters or {}).get("required") or []
    names, rules = [], []
    for place, key in enumerate(properties or {}):
        names.append(f"value_{index}_{place}{'' if key in required else '?'}")
        tag = literal(f"<parameter={key}>\n")
        rules.append(f"value_{index}_{place}: {tag} {_value(tool, key)}")
    return [f"body_{index}: {_LINE} {' '.join(names)} {_END_FUNCTION}", *rules]


def _value(tool: Tool, key: str) -> str:
    """Return the rule of a parameter's value and its closing tag."""
    parameters: dict[str, Any] = tool.parameters or {}
    schema = parameters["properties"][key]
    types = types_of(parameters, key)
    if types == {"string"} or not isinstance(schema, dict):
        values = schema.get("enum") if isinstance(schema, dict) else None
        return f"({' | '.join(map(literal, values))}) {_END_VALUE}" if values else "lines"
    if "string" in types or not types & {"integer", "number", "boolean", "array", "object", "null"}:
        return "lines"  # text or something else: only its tags say where it ends
    shared = {name: parameters[name] for name in ("$defs", "definitions") if name in parameters}
    return f"{json_rule({**shared, **schema}, is_lenient=not tool.is_strict)} {_END_VALUE}"


def _free_text(index: int, tool: Tool) -> list[str]:
    """Return the rule of a custom tool's text and its closing tag, and the rules it needs."""
    if not tool.definition or tool.syntax == "text":
        return ["lines"]
    if tool.syntax == "regex":
        return [f"TEXT_{index} {_END_VALUE}", f"TEXT_{index}: {pattern(tool.definition)}"]
    return [f"text_{index} {_END_VALUE}", f"text_{index}: %lark {{\n{tool.definition}\n}}"]
