"""The MCP servers of a task: all started together, their tools listed, and all ended with it.

Owns which servers a task has, and that one that does not start costs its tools and nothing else. Does not own
one connection (`connection`), nor trust (`trust`).
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from vivace.agent.mcp.connection import ServerConnection
from vivace.agent.mcp.servers import PROJECT_FILE, NamedServer, project_servers, user_servers
from vivace.agent.mcp.tool import McpTool
from vivace.agent.trust.project import ProjectFiles
from vivace.config import Settings
from vivace.errors import ConfigError, McpProblem


@dataclass
class OpenServers:
    tools: list[McpTool] = field(default_factory=list)
    problems: list[McpProblem] = field(default_factory=list)  # of servers that did not start


def servers_of(settings: Settings, project: ProjectFiles) -> list[NamedServer]:
    """Return the user's servers, and those of a trusted project that have other names."""
    named = user_servers(settings.mcp_servers)
    known = {each.name for each in named}
    data = project.files.get(PROJECT_FILE)
    return named + [each for each in (project_servers(data) if data else []) if each.name not in known]


@asynccontextmanager
async def opened_servers(servers: Sequence[NamedServer], folder: Path) -> AsyncIterator[OpenServers]:
    """Start the servers, and end them whatever happens."""
    connections = [ServerConnection(named, folder) for named in servers]
    try:
        opened = OpenServers()
        for outcome in await asyncio.gather(*map(_tools_of, connections)):
            if isinstance(outcome, McpProblem):
                opened.problems.append(outcome)
            else:
                taken = {tool.name for tool in opened.tools}
                opened.tools += {tool.name: tool for tool in outcome if tool.name not in taken}.values()
        yield opened
    finally:
        await asyncio.gather(*(connection.close() for connection in connections))


async def _tools_of(connection: ServerConnection) -> list[McpTool] | McpProblem:
    try:
        return [McpTool(connection, offered) for offered in await connection.list_tools()]
    except McpProblem as problem:
        return problem
    except ConfigError as error:  # a variable that is not set
        return McpProblem(error.message, error.hint)
