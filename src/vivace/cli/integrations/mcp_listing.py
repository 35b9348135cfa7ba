"""`vivace mcp list` when it runs: each server is started once, and its tools are printed.

Owns the words. Does not own the servers (`agent.mcp`) nor trust (`agent.trust`).
"""

import asyncio
from pathlib import Path

import click

from vivace.agent.mcp.opening import opened_servers, servers_of
from vivace.agent.mcp.servers import NamedServer
from vivace.agent.tools.bounded import printable
from vivace.agent.trust.project import ProjectFiles
from vivace.agent.trust.store import trusted_project
from vivace.cli.show.screen import complain
from vivace.config import Settings
from vivace.errors import DONE, FAILED, ProjectNotTrusted


def list_tools(settings: Settings) -> int:
    """Print the servers and their tools; return the exit code."""
    here = Path.cwd()
    try:
        project = trusted_project(settings.state_dir, here)
    except ProjectNotTrusted as error:
        complain(error.message, error.hint)
        project = ProjectFiles(here)
    servers = servers_of(settings, project)
    if not servers:
        click.echo("There are no MCP servers. Name some in config.toml, or in .mcp.json of a folder.")
        return DONE
    return asyncio.run(_list(servers, here))


async def _list(servers: list[NamedServer], folder: Path) -> int:
    async with opened_servers(servers, folder) as opened:
        for named in servers:
            whose = "this folder's" if named.is_project else "yours"
            click.echo(f"{named.name} ({whose}): {printable(named.server.line)}")
            for tool in opened.tools:
                if tool.server == named.name:
                    first = tool.definition()["description"].strip().partition("\n")[0]
                    click.echo(f"  {tool.name}  {first[:100]}")
        for problem in opened.problems:
            complain(problem.message, problem.hint)
    return FAILED if opened.problems else DONE
