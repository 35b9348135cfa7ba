"""Tools as gpt-oss sees them: a namespace of TypeScript-like function types, with comments.

Owns the way from JSON schemas to such types, as OpenAI's harmony library writes them. What has no type
there is `any`; a schema that nests too deep is too.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from vivace.models.families.base import Tool
from vivace.models.families.calls.definitions import described

FUNCTIONS = "functions"  # the namespace of tools that have none
MAX_DEPTH = 12
_NAMES = {"string": "string", "number": "number", "integer": "number", "boolean": "boolean", "null": "null"}


def namespaces(tools: Sequence[Tool]) -> str:
    """Return the section of a developer message that describes all tools."""
    names = dict.fromkeys(tool.namespace or FUNCTIONS for tool in tools)
    sections = [_namespace(name, [t for t in tools if (t.namespace or FUNCTIONS) == name]) for name in names]
    return "\n\n".join(["# Tools", *sections])


def recipient(tool: Tool) -> str:
    """Return the recipient of calls of the tool."""
    return f"{tool.namespace or FUNCTIONS}.{tool.name}"


def _namespace(name: str, tools: Sequence[Tool]) -> str:
    lines = [f"## {name}", "", f"namespace {name} {{", ""]
    for tool in tools:
        lines += [*_comment(described(tool), ""), f"type {tool.name} = ({_argument(tool)}) => any;", ""]
    return "\n".join([*lines, f"}} // namespace {name}"])


def _argument(tool: Tool) -> str:
    if tool.is_custom:
        return "FREEFORM"
    has_some = tool.parameters and (tool.parameters.get("properties") or "properties" not in tool.parameters)
    return f"_: {type_of(tool.parameters)}" if has_some else ""


def type_of(schema: Any, indent: str = "", depth: int = 0) -> str:
    if not isinstance(schema, Mapping) or depth > MAX_DEPTH:
        return "any"
    for key in ("oneOf", "anyOf"):
        if isinstance(variants := schema.get(key), list) and variants:
            return " | ".join(dict.fromkeys(type_of(each, indent, depth + 1) for each in variants))
    if isinstance(values := schema.get("enum"), list) and values:
        return " | ".join(json.dumps(value, ensure_ascii=False) for value in values)
    match schema.get("type"):
        case list() as types:
            return " | ".join(dict.fromkeys(_NAMES.get(str(name), str(name)) for name in types)) or "any"
        case "object":
            return _object(schema, indent, depth)
        case "array":
            has_items = isinstance(schema.get("items"), Mapping)
            return f"{type_of(schema['items'], indent, depth + 1)}[]" if has_items else "Array<any>"
        case str() as name:
            return _NAMES.get(name, "any")
    return "any"


def _object(schema: Mapping[str, Any], indent: str, depth: int) -> str:
    lines = [*_comment(schema.get("description"), indent), "{"]
    required = schema.get("required")
    needed = set(map(str, required)) if isinstance(required, list) else set()
    properties = schema.get("properties")
    for name, each in properties.items() if isinstance(properties, Mapping) else ():
        lines += _property(name, each, indent, depth, is_needed=name in needed)
    return "\n".join([*lines, f"{indent}}}"])


def _property(name: str, schema: Any, indent: str, depth: int, *, is_needed: bool) -> Iterable[str]:
    mark = "" if is_needed else "?"
    fields = schema if isinstance(schema, Mapping) else {}
    yield from _comment(fields.get("description"), indent)
    kind = type_of(schema, f"{indent}    ", depth + 1)
    if fields.get("nullable") is True and "null" not in kind:
        kind += " | null"
    default = ""
    if "default" in fields:
        is_bare = isinstance(fields["default"], str) and "enum" in fields
        shown = fields["default"] if is_bare else json.dumps(fields["default"], ensure_ascii=False)
        default = f" // default: {shown}"
    yield f"{indent}{name}{mark}: {kind},{default}"


def _comment(text: Any, indent: str) -> list[str]:
    return [f"{indent}// {line}" for line in text.splitlines()] if isinstance(text, str) else []
