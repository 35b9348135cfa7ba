"""The tools of a request, from every shape in which clients give them, and which may be called."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vivace.protocol.shapes.items import InputItem
from vivace.protocol.shapes.refusal import Refusal
from vivace.protocol.shapes.tools import MAX_TOOLS, Choice, Tool, parse_choice, parse_tools, tools_in_items

SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
READ = {"type": "function", "name": "read", "description": "Reads.", "parameters": SCHEMA}


def refused(tools: list[Any]) -> Refusal:
    with pytest.raises(Refusal) as caught:
        parse_tools(tools)
    return caught.value


def test_a_function_has_parameters() -> None:
    """Name, description and schema; strict unless it says that it is not."""
    (tool,) = parse_tools([READ])
    assert tool == Tool("read", "Reads.", SCHEMA, is_strict=True)
    assert parse_tools([READ | {"strict": None}]) == [tool]
    assert not parse_tools([READ | {"strict": False}])[0].is_strict


def test_a_custom_tool_takes_text() -> None:
    """Free text, or text in a grammar."""
    (tool,) = parse_tools([{"type": "custom", "name": "patch", "format": {"type": "text"}}])
    assert (tool.is_custom, tool.is_strict, tool.syntax, tool.definition) == (True, False, "text", "")
    grammar = {"type": "grammar", "syntax": "lark", "definition": 'start: "x"'}
    (tool,) = parse_tools([{"type": "custom", "name": "patch", "format": grammar}])
    assert (tool.syntax, tool.definition) == ("lark", 'start: "x"')


def test_a_namespace_holds_tools() -> None:
    """They are called by their own names; the namespace goes with the call."""
    given = [{"type": "namespace", "name": "files", "tools": [READ, {"type": "custom", "name": "patch"}]}]
    assert [(tool.namespace, tool.name) for tool in parse_tools(given)] == [
        ("files", "read"),
        ("files", "patch"),
    ]


def test_the_same_name_may_be_in_two_namespaces() -> None:
    """But not twice in one."""
    spaces = [{"type": "namespace", "name": name, "tools": [READ]} for name in ("a", "b")]
    assert len(parse_tools([READ, *spaces])) == 3
    assert "read" in refused([READ, READ]).message


def test_tools_may_come_as_an_input_item() -> None:
    """The lite shape; other items have none."""
    items = [InputItem(type="additional_tools", tools=[READ]), InputItem(role="user", content="x")]
    assert [tool.name for tool in tools_in_items(items)] == ["read"]


@pytest.mark.parametrize(
    ("tool", "param", "code"),
    [
        ({"type": "web_search"}, "tools[0].type", "unsupported_parameter"),
        ({"type": "mcp", "server_label": "x"}, "tools[0].type", "unsupported_parameter"),
        ({"type": "function"}, "tools[0].name", "missing_required_parameter"),
        ({"type": "namespace", "tools": [READ]}, "tools[0].name", "missing_required_parameter"),
        ({"type": "function", "name": "a b"}, "tools[0]", "invalid_value"),
        ({"type": "function", "name": "a\n"}, "tools[0]", "invalid_value"),
        ({"type": "function", "name": ""}, "tools[0]", "invalid_value"),
        ({"type": "function", "name": "x" * 129}, "tools[0]", "invalid_value"),
        ({"type": "function", "name": "f", "parameters": "{}"}, "tools[0]", "invalid_value"),
        (
            {"type": "custom", "name": "f", "format": {"type": "grammar", "syntax": "ebnf"}},
            "tools[0]",
            "invalid_value",
        ),
        ("read", "tools[0]", "invalid_value"),
        ({"name": "read"}, "tools[0]", "invalid_value"),
        (
            {"type": "namespace", "name": "a", "tools": [{"type": "namespace", "name": "b", "tools": []}]},
            "tools[0].tools[0].type",
            "unsupported_parameter",
        ),
    ],
)
def test_a_tool_that_cannot_be_called_is_refused_by_its_place(tool: Any, param: str, code: str) -> None:
    """Hosted tools, names that are none, schemas that are none."""
    error = refused([tool])
    assert (error.param, error.code, error.status) == (param, code, 400)


def named(count: int) -> list[dict[str, Any]]:
    return [{"type": "function", "name": f"f{number}"} for number in range(count)]


def test_there_are_at_most_128_tools() -> None:
    """However they are given."""
    assert len(parse_tools(named(MAX_TOOLS))) == MAX_TOOLS
    halves = [{"type": "namespace", "name": name, "tools": named(MAX_TOOLS // 2 + 1)} for name in ("a", "b")]
    empty = [{"type": "namespace", "name": "a", "tools": []}] * (MAX_TOOLS + 1)
    whole = [{"type": "namespace", "name": "a", "tools": named(MAX_TOOLS + 1)}]
    for tools in (named(MAX_TOOLS + 1), halves, empty, whole):
        assert "At most 128" in refused(tools).message


def test_too_many_tools_are_refused_before_they_are_looked_at() -> None:
    """What is in them does not matter any more, and costs nothing."""
    assert "At most 128" in refused([None] * 1_000_000).message
    given = [{"type": "namespace", "name": "a", "tools": [None] * 1_000_000}]
    assert "At most 128" in refused(given).message


# ---- tool_choice ------------------------------------------------------------------------------------

TOOLS = [Tool("read"), Tool("patch", is_custom=True)]


@pytest.mark.parametrize(
    ("given", "choice"),
    [
        (None, Choice("auto")),
        ("auto", Choice("auto")),
        ("none", Choice("none")),
        ("required", Choice("required")),
        ({"type": "function", "name": "read"}, Choice("required", frozenset({"read"}))),
        ({"type": "custom", "name": "patch"}, Choice("required", frozenset({"patch"}))),
        (
            {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "read"}]},
            Choice("auto", frozenset({"read"})),
        ),
        (
            {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "read"}]},
            Choice("required", frozenset({"read"})),
        ),
        ({"type": "allowed_tools", "mode": "auto", "tools": []}, Choice("auto", frozenset())),
    ],
)
def test_a_choice_says_what_may_be_called(given: Any, choice: Choice) -> None:
    """Any, none, one at least, or only these."""
    assert parse_choice(given, TOOLS) == choice


@pytest.mark.parametrize(
    "given",
    [
        "maybe",
        7,
        [],
        {},
        {"type": "function"},
        {"type": "function", "name": "write"},
        {"type": "web_search"},
        {"type": "allowed_tools", "tools": [{"type": "function", "name": "write"}]},
        {"type": "allowed_tools", "tools": [{"type": "mcp"}]},
        {"type": "allowed_tools", "mode": "none", "tools": []},
        {"type": "allowed_tools", "mode": "required", "tools": []},
    ],
)
def test_a_choice_that_cannot_be_is_refused(given: Any) -> None:
    """What is not among the tools cannot be called, and of nothing none can be required."""
    with pytest.raises(Refusal) as caught:
        parse_choice(given, TOOLS)
    assert caught.value.param == "tool_choice"


def test_a_call_cannot_be_required_without_tools() -> None:
    """The model could never end."""
    with pytest.raises(Refusal):
        parse_choice("required", [])
    assert parse_choice("none", []) == Choice("none")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
)
GIVEN = st.recursive(
    st.fixed_dictionaries(
        {"type": st.sampled_from(["function", "custom", "web_search"])},
        optional={"name": st.sampled_from("abc") | JSON, "parameters": JSON, "strict": JSON, "format": JSON},
    ),
    lambda inner: st.fixed_dictionaries(
        {"type": st.just("namespace"), "name": st.sampled_from("ab"), "tools": st.lists(inner, max_size=3)}
    ),
    max_leaves=4,
)


@given(
    st.lists(GIVEN | JSON, max_size=4), JSON | st.sampled_from(["auto", {"type": "function", "name": "a"}])
)
def test_any_tools_are_parsed_or_refused(given: list[Any], choice: Any) -> None:
    """Nothing but a `Refusal` comes out of bad ones; of good ones each can be named."""
    try:
        tools = parse_tools(given)
        chosen = parse_choice(choice, tools)
    except Refusal:
        return
    assert all(tool.name for tool in tools)
    assert len({(tool.namespace, tool.name) for tool in tools}) == len(tools)
    assert (chosen.names or frozenset()) <= {tool.name for tool in tools}
