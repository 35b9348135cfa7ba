"""The tools of a task, by name.

Owns which tools there are. Tools of MCP servers can be added to the list; nothing else knows them by name.
"""

from collections.abc import Sequence

from vivace.agent.tools.apply_patch import ApplyPatch
from vivace.agent.tools.base import MalformedCall, Tool
from vivace.agent.tools.edit import Edit
from vivace.agent.tools.list_files import ListFiles
from vivace.agent.tools.plan import UpdatePlan
from vivace.agent.tools.read import Read
from vivace.agent.tools.search import Search
from vivace.agent.tools.shell import Shell


def own_tools() -> list[Tool]:
    return [Read(), ListFiles(), Search(), Edit(), ApplyPatch(), Shell(), UpdatePlan()]


def tool_named(tools: Sequence[Tool], name: str) -> Tool:
    """Return the tool of that name, or raise MalformedCall with the names that there are."""
    for tool in tools:
        if tool.name == name:
            return tool
    known = ", ".join(tool.name for tool in tools)
    raise MalformedCall(f"There is no tool called {name!r:.100}. The tools are {known}.")
