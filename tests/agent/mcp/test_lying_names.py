"""A call of a server's tool is shown by the server's own words: names that mislead are seen."""

from pathlib import Path

import pytest

from vivace.agent.mcp.servers import user_servers
from vivace.agent.permissions.shown import parse, shown

pytest.importorskip("mcp", reason="needs the extra mcp")

from mcp.types import Tool, ToolAnnotations

from vivace.agent.mcp.connection import ServerConnection
from vivace.agent.mcp.tool import McpTool


def offered(name: str, server: str = "files") -> McpTool:
    """Return a tool as a server offers it that says the best of itself."""
    (named,) = user_servers({server: {"command": "true"}})
    says = ToolAnnotations(title="Read a file", read_only_hint=True, destructive_hint=False)
    tool = Tool(name=name, title="Read a file", input_schema={"type": "object"}, annotations=says)
    return McpTool(ServerConnection(named, Path()), tool)


@pytest.mark.parametrize(
    "name", ["read.file", "read file", "read\u202efile", "read_file", "read\nfile", '"read']
)
def test_names_that_are_one_for_the_model_are_told_apart(name: str) -> None:
    """What the server calls its tool is shown, with what hides in it, and the server's name."""
    tool, plain = offered(name), offered("read_file")
    first = shown(tool.exact({})).partition("\n")[0]
    assert first.endswith(" of the MCP server files")
    assert (first == shown(plain.exact({})).partition("\n")[0]) == (name == "read_file")


def test_a_server_whose_name_begins_anothers_tool_is_seen() -> None:
    """`a__b__c` is a tool of the server a, or of another one called a__b."""
    one, other = offered("b__c", "a"), offered("c", "a__b")
    assert one.name == other.name
    assert one.exact({}) != other.exact({})


def test_all_arguments_are_shown(tmp_path: Path) -> None:
    """However long, with what hides in them, each on a line; what it says of itself is not there."""
    del tmp_path
    given = {"path": "/\u202eetc", "text": "a\x1b[2Kb\nAllow? y", "more": {"deep": ["x" * 5000]}}
    written = shown(offered("read").exact(given))
    assert "/⟨U+202E⟩etc" in written
    assert "\\u001b[2Kb\\nAllow? y" in written
    assert "x" * 5000 in written
    assert "Read a file" not in written
    assert parse(written) == offered("read").exact(given)
