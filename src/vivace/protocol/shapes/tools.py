"""The tools of a request, and which of them may be called, from every shape in which clients give them.

Owns `tools`, the lite shape's `additional_tools` item, namespaces, and `tool_choice`. Does not own how a
model is told of them or how its calls are read (`models.families`).
"""

from typing import Annotated, Any, Literal

import msgspec

from vivace.protocol.shapes.items import InputItem, missing
from vivace.protocol.shapes.refusal import Refusal

MAX_TOOLS = 128
Name = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9_.-]{1,128}\Z")]


class Tool(msgspec.Struct, frozen=True):
    name: str
    description: str = ""
    parameters: dict[str, Any] | None = None
    is_custom: bool = False
    is_strict: bool = False
    syntax: Literal["text", "lark", "regex"] = "text"
    definition: str = ""
    namespace: str = ""


class Choice(msgspec.Struct, frozen=True):
    mode: Literal["auto", "none", "required"] = "auto"
    names: frozenset[str] | None = None  # only these; None: any


class _Format(msgspec.Struct):
    type: Literal["text", "grammar"] = "text"
    syntax: Literal["lark", "regex"] = "lark"
    definition: str = ""


class _Given(msgspec.Struct):
    type: str
    name: Name | None = None
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None
    format: _Format | None = None
    tools: list[Any] | None = None


def parse_tools(given: list[Any], where: str = "tools") -> list[Tool]:
    """Return functions and custom tools, also those of namespaces; refuse what cannot be called."""
    tools: list[Tool] = []
    _check_count(given, where)
    for index, one in enumerate(given):
        tools += _parse(one, f"{where}[{index}]")
        _check_count(tools, where)
    names = [(tool.namespace, tool.name) for tool in tools]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise Refusal(f"There are two tools called {twice[1]!r}.", code="invalid_value", param=where)
    return tools


def _parse(given: Any, where: str, namespace: str = "") -> list[Tool]:
    tool = _convert(given, _Given, where)
    if tool.type == "namespace" and not namespace:
        if not tool.name:
            raise missing("A namespace needs a name.", f"{where}.name")
        _check_count(tool.tools or [], f"{where}.tools")
        inner = enumerate(tool.tools or [])
        return [each for index, one in inner for each in _parse(one, f"{where}.tools[{index}]", tool.name)]
    if tool.type not in ("function", "custom"):
        raise Refusal(
            f"Tools of type {tool.type!r} are not supported: this server offers function and custom tools.",
            code="unsupported_parameter",
            param=f"{where}.type",
        )
    if not tool.name:
        raise missing("A tool needs a name.", f"{where}.name")
    has_grammar = tool.format is not None and tool.format.type == "grammar"
    return [
        Tool(
            name=tool.name,
            description=tool.description or "",
            parameters=tool.parameters,
            is_custom=tool.type == "custom",
            is_strict=tool.type == "function" and tool.strict is not False,
            syntax=tool.format.syntax if tool.format and has_grammar else "text",
            definition=tool.format.definition if tool.format and has_grammar else "",
            namespace=namespace,
        )
    ]


def _check_count(tools: list[Any], where: str) -> None:
    """Refuse too many tools before they are looked at one by one."""
    if len(tools) > MAX_TOOLS:
        raise Refusal(f"At most {MAX_TOOLS} tools can be given.", code="invalid_value", param=where)


def tools_in_items(items: list[InputItem]) -> list[Tool]:
    """Return the tools that come as input items."""
    given = [(f"input[{index}].tools", item.tools or []) for index, item in enumerate(items) if item.tools]
    _check_count([tool for _, tools in given for tool in tools], "input")
    tools = [tool for where, tools in given for tool in parse_tools(tools, where)]
    _check_count(tools, "input")
    return tools


class _Named(msgspec.Struct):
    type: str
    name: str | None = None
    mode: Literal["auto", "required"] = "auto"
    tools: list[dict[str, Any]] = []


def parse_choice(given: Any, tools: list[Tool]) -> Choice:
    if given is None:
        return Choice()
    if isinstance(given, str):
        if given not in ("auto", "none", "required"):
            raise Refusal(
                "tool_choice is auto, none, required or a tool.", code="invalid_value", param="tool_choice"
            )
        choice = Choice(given)  # type: ignore[arg-type]
    else:
        named = _convert(given, _Named, "tool_choice")
        if named.type == "allowed_tools":
            names = frozenset(str(tool.get("name")) for tool in named.tools)
            choice = Choice(named.mode, names)
        elif named.type in ("function", "custom") and named.name:
            choice = Choice("required", frozenset({named.name}))
        else:
            message = f"tool_choice of type {named.type!r} is not supported."
            raise Refusal(message, code="unsupported_parameter", param="tool_choice")
    unknown = sorted((choice.names or frozenset()) - {tool.name for tool in tools})
    if unknown:
        raise Refusal(
            f"tool_choice names {unknown[0]!r}, which is not among the tools.",
            code="invalid_value",
            param="tool_choice",
        )
    if choice.mode == "required" and (not tools or choice.names == frozenset()):
        raise Refusal(
            "tool_choice requires a call, but there are no tools.", code="invalid_value", param="tool_choice"
        )
    return choice


def _convert(given: Any, kind: type[Any], where: str) -> Any:
    try:
        return msgspec.convert(given, kind)
    except msgspec.ValidationError as error:
        raise Refusal(f"{error} in {where}.", code="invalid_value", param=where) from error
