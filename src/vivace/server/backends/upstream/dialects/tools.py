"""Tools as an upstream knows them, and what it calls them back by.

Owns names on the wire: servers know no namespaces and fewer characters than we do, so each tool gets a name
of its own there, and a call is given back under its true one. Does not own parsing (`protocol.tools`).
"""

import re
from collections.abc import Sequence
from typing import Any, Literal

from vivace.protocol.shapes.items import InputItem
from vivace.protocol.shapes.outcomes import CallBegun
from vivace.protocol.shapes.requests import ResponseCreate
from vivace.protocol.shapes.tools import Choice, Tool, parse_choice, parse_tools, tools_in_items

MAX_NAME = 64


class Toolbox:
    """The tools of one request."""

    def __init__(self, tools: Sequence[Tool], choice: Choice) -> None:
        self.mode: Literal["auto", "none", "required"] = choice.mode
        names = [tool.name for tool in tools]
        self._by_wire: dict[str, Tool] = {}
        for tool in tools:
            is_shared = names.count(tool.name) > 1
            wanted = f"{tool.namespace}__{tool.name}" if is_shared and tool.namespace else tool.name
            self._by_wire[_unused(wanted, self._by_wire)] = tool
        self._by_name = {(tool.namespace, tool.name): wire for wire, tool in self._by_wire.items()}
        self.allowed = {
            wire: tool
            for wire, tool in self._by_wire.items()
            if choice.names is None or tool.name in choice.names
        }

    @property
    def only(self) -> tuple[str, Tool] | None:
        """Return the one tool that must be called, if there is exactly one."""
        must = self.mode == "required" and len(self.allowed) == 1
        return next(iter(self.allowed.items())) if must else None

    def wire_name(self, name: str, namespace: str) -> str:
        """Return the wire name of a tool that was called, also if it is no longer offered."""
        known = self._by_name.get((namespace, name)) or self._by_name.get(("", name))
        return known or next(
            (wire for wire, tool in self._by_wire.items() if tool.name == name), _plain(name)
        )

    def begun(self, wire_name: str, call_id: str, *, is_custom: bool) -> CallBegun:
        """Return the call that the upstream begins. The client refuses tools that it does not know."""
        tool = self._by_wire.get(wire_name)
        if tool is None:
            return CallBegun(wire_name, is_custom=is_custom, call_id=call_id)
        return CallBegun(tool.name, tool.namespace, tool.is_custom, call_id)


def toolbox(request: ResponseCreate, items: Sequence[InputItem]) -> Toolbox:
    """Collect the tools of the request and of all items of the conversation."""
    found: dict[tuple[str, str], Tool] = {}
    for tool in [*tools_in_items(list(items)), *parse_tools(request.tools or [])]:
        found[tool.namespace, tool.name] = tool  # who says it again means the later one
    tools = list(found.values())
    return Toolbox(tools, parse_choice(request.tool_choice, tools))


def is_strictly_closed(schema: Any) -> bool:
    """Return whether strict mode takes the schema: every object requires all that it names.

    `strict` is on by default here and off by default in chat; sending it for other schemas is an error there.
    """
    if isinstance(schema, list):
        return all(map(is_strictly_closed, schema))
    if not isinstance(schema, dict):
        return True
    properties = schema.get("properties")
    if schema.get("type") == "object" or properties is not None:
        required = schema.get("required")
        is_closed = schema.get("additionalProperties") is False and isinstance(properties, dict)
        if (
            not is_closed
            or not isinstance(required, list)
            or not set(properties or ()) <= set(map(str, required))
        ):
            return False
    within = [*(properties or {}).values()] if isinstance(properties, dict) else []
    for name in ("$defs", "definitions"):
        within += schema[name].values() if isinstance(schema.get(name), dict) else []
    return all(map(is_strictly_closed, [*within, schema.get("items"), schema.get("anyOf")]))


def _plain(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_-]", "_", name)[:MAX_NAME] or "_"


def _unused(wanted: str, taken: dict[str, Tool]) -> str:
    """Return a name that no other tool has on the wire."""
    name, number = _plain(wanted), 2
    while name in taken:
        name = f"{_plain(wanted)[: MAX_NAME - 4]}_{number}"
        number += 1
    return name
