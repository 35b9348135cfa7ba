"""The MCP servers of a task or a conversation: started together, their tools listed, and ended with it.

Owns which servers there are, and that one that does not start costs its tools and nothing else. Does not own
one connection (`connection`), nor trust (`trust`).
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from vivace.agent.events.task import ServersOpened
from vivace.agent.mcp.connection import ServerConnection
from vivace.agent.mcp.servers import PROJECT_FILE, NamedServer, project_servers, user_servers
from vivace.agent.mcp.tool import McpTool
from vivace.agent.trust.project import ProjectFiles
from vivace.agent.trust.store import trusted_project
from vivace.config import Settings
from vivace.errors import ConfigError, McpProblem, ProjectNotTrusted, VivaceError


@dataclass
class OpenServers:
    tools: list[McpTool] = field(default_factory=list)
    problems: list[McpProblem] = field(default_factory=list)  # of servers that did not start

    def step(self, more_problems: Sequence[VivaceError] = ()) -> ServersOpened:
        """Return what is to be shown of them."""
        problems = (f"{each.message} {each.hint}".strip() for each in (*more_problems, *self.problems))
        servers = dict.fromkeys(tool.server for tool in self.tools)
        return ServersOpened(servers=tuple(servers), problems=tuple(problems))


@dataclass(frozen=True)
class NamedServers:
    """The servers of a folder, and why others of it are not among them."""

    servers: tuple[NamedServer, ...] = ()
    problems: tuple[VivaceError, ...] = ()


def servers_of(settings: Settings, project: ProjectFiles) -> list[NamedServer]:
    """Return the user's servers, and those of a trusted project that have other names."""
    named = user_servers(settings.mcp_servers)
    known = {each.name for each in named}
    data = project.files.get(PROJECT_FILE)
    others = [each for each in (project_servers(data) if data else []) if each.name not in known]
    return named + [replace(each, programs=project.programs) for each in others]


def servers_without_asking(settings: Settings, folder: Path) -> NamedServers:
    """Return the servers where nobody can be asked: a project's only if it is trusted as it is now."""
    users = servers_of(settings, ProjectFiles(folder))
    if not (folder / PROJECT_FILE).exists():
        return NamedServers(tuple(users))
    try:
        return NamedServers(tuple(servers_of(settings, trusted_project(settings.state_dir, folder))))
    except (ProjectNotTrusted, ConfigError) as problem:
        return NamedServers(tuple(users), (problem,))


class ServerPool:
    """Servers that are started when they are wanted, and stay until others are wanted or it is closed."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder  # in which they run
        self._connections: list[ServerConnection] = []
        self._servers: Sequence[NamedServer] | None = None  # that are started
        self._opened = OpenServers()

    async def use(self, servers: Sequence[NamedServer]) -> OpenServers:
        """Return the tools of just these servers. Those that run already are not started again."""
        if self._servers != servers:
            await self.close()
            self._connections = [ServerConnection(named, self._folder) for named in servers]
            outcomes = await asyncio.gather(*map(_tools_of, self._connections))
            self._servers, self._opened = servers, _opened(outcomes)
        return self._opened

    async def close(self) -> None:
        """End all of them."""
        connections, self._connections, self._servers = self._connections, [], None
        await asyncio.gather(*(connection.close() for connection in connections))


@asynccontextmanager
async def opened_servers(servers: Sequence[NamedServer], folder: Path) -> AsyncIterator[OpenServers]:
    """Start the servers, and end them whatever happens."""
    pool = ServerPool(folder)
    try:
        yield await pool.use(servers)
    finally:
        await pool.close()


def _opened(outcomes: Sequence[list[McpTool] | McpProblem]) -> OpenServers:
    opened = OpenServers()
    for outcome in outcomes:
        if isinstance(outcome, McpProblem):
            opened.problems.append(outcome)
        else:
            taken = {tool.name for tool in opened.tools}
            opened.tools += {tool.name: tool for tool in outcome if tool.name not in taken}.values()
    return opened


async def _tools_of(connection: ServerConnection) -> list[McpTool] | McpProblem:
    try:
        return [McpTool(connection, offered) for offered in await connection.list_tools()]
    except McpProblem as problem:
        return problem
    except ConfigError as error:  # a variable that is not set
        return McpProblem(error.message, error.hint)
