"""Tools run as a task would run them: parsed from JSON, with the workspace of a test."""

import json
from pathlib import Path
from typing import Any

from vivace.agent.edits.apply.journal import Journal
from vivace.agent.permissions.policy import Policy
from vivace.agent.tools.base import Tool, ToolContext, ToolResult


def context_for(root: Path, *policies: Policy, has_sandbox: bool = True) -> ToolContext:
    return ToolContext(root, policies or (Policy(),), has_sandbox)


async def call(tool: Tool, context: ToolContext, given: str = "", **arguments: Any) -> ToolResult:
    parsed = tool.parse(given or json.dumps(arguments))
    return await tool.run(parsed, context, tool.needs(parsed, context))


async def flush(context: ToolContext, journal: Path) -> None:
    await context.writes.flush(Journal(journal), "test")
