"""Grammars of calls as Gemma 4 writes them: `NAME{key:<|"|>text<|"|>,other:[1,2]}` under the tool's schema.

Owns those rules: types, required keys, enums and nested values; all other keywords of a schema hold nothing.
Keys come in the order of the schema.
"""

from collections.abc import Sequence
from typing import Any

from vivace.models.families.base import Tool
from vivace.models.families.calls.definitions import parameters
from vivace.models.families.calls.lark_grammar import literal, pattern
from vivace.models.families.calls.python_call import GEMMA_QUOTE
from vivace.models.families.calls.shape_form import ShapeForm

_QUOTE = literal(GEMMA_QUOTE)
_SIMPLE = {"string": "text", "integer": "INTEGER", "number": "NUMBER", "boolean": "BOOLEAN", "null": '"null"'}
_RULES = (
    f"text: {_QUOTE} rest",
    "rest[lazy]: " + pattern(rf"(?s:.*){GEMMA_QUOTE.replace('|', chr(92) + '|')}"),
    "INTEGER: /-?(?:0|[1-9][0-9]{0,18})/",
    r"NUMBER: /-?(?:0|[1-9][0-9]{0,18})(?:\.[0-9]{1,18})?(?:[eE][+-]?[0-9]{1,3})?/",
    "BOOLEAN: /true|false/",
    "KEY: /[^:{}\\[\\],<]{1,128}:/",
    'any: text | NUMBER | BOOLEAN | "null" | any_object | any_list',
    'any_object: "{" (KEY any ("," KEY any)*)? "}"',
    'any_list: "[" (any ("," any)*)? "]"',
)


class GemmaForm(ShapeForm, frozen=True):
    """Calls as `call:NAME{…}`; what stands between and behind them is `ShapeForm`'s."""

    def _call(self, tools: Sequence[Tool], *, is_free: bool) -> list[str]:
        ways = " | ".join(f"{literal(f'call:{tool.name}')} args_{i}" for i, tool in enumerate(tools))
        rules: list[str] = []
        for place, tool in enumerate(tools):
            is_any = is_free and not tool.is_strict and not tool.is_custom
            schema = {"type": "object"} if is_any else {"type": "object", **parameters(tool)}
            rules.append(f"args_{place}: {Values(f'v{place}', rules).rule(schema)}")
        return [f"call: {ways}", *_RULES, *rules]


class Values:
    """Writes the rules of one tool's values."""

    def __init__(self, name: str, rules: list[str]) -> None:
        self._name, self._rules = name, rules
        self._count = 0

    def rule(self, schema: Any) -> str:
        """Return the rule of a value under a schema."""
        if not isinstance(schema, dict):
            return "any"
        if isinstance(values := schema.get("enum"), list) and values:
            return f"({' | '.join(literal(spelled(value)) for value in values)})"
        named = schema.get("type")
        types = named if isinstance(named, list) else [named]
        return f"({' | '.join(self._of_type(name, schema) for name in types)})"

    def _of_type(self, name: Any, schema: dict[str, Any]) -> str:
        if name == "array":
            item = self.rule(schema.get("items"))
            return f'"[" ({item} ("," {item})*)? "]"'
        if name == "object":
            properties = schema.get("properties")
            if isinstance(properties, dict) and (properties or schema.get("additionalProperties") is False):
                return f'"{{" {self._members(properties, schema.get("required"))} "}}"'
            return "any_object"
        return _SIMPLE.get(name, "any")

    def _members(self, properties: dict[str, Any], required: Any) -> str:
        """Return the rule of all members, each with a comma before it if another one came first."""
        first = later = '""'
        for key, schema in reversed(properties.items()):
            member = f"{literal(f'{key}:')} {self.rule(schema)} {later}"
            is_required = isinstance(required, list) and key in required
            later = self._new(f'"," {member}' + ("" if is_required else f" | {later}"))
            first = self._new(member + ("" if is_required else f" | {first}"))
        return first

    def _new(self, body: str) -> str:
        self._count += 1
        name = f"{self._name}_{self._count}"
        self._rules.append(f"{name}: {body}")
        return name


def spelled(value: Any) -> str:
    """Return a value as Gemma writes it."""
    match value:
        case str():
            return f"{GEMMA_QUOTE}{value}{GEMMA_QUOTE}"
        case dict():
            return "{" + ",".join(f"{key}:{spelled(inner)}" for key, inner in value.items()) + "}"
        case list():
            return "[" + ",".join(map(spelled, value)) + "]"
        case bool():
            return str(value).lower()
        case _:
            return "null" if value is None else str(value)
