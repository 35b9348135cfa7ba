"""`vivace mcp`: the servers whose tools a task may call, and ours for other agents. Its arguments.

Owns the options. Does not own what they start (`agent.mcp`).
"""

import click

from vivace.cli.options import model_option


@click.group()
def mcp() -> None:
    """Tools of other programs (MCP servers), and ours for them."""


@mcp.command("list")
def list_servers() -> int:
    """Start the servers of your settings and of this folder, and list their tools.

    Those of this folder (`.mcp.json`) only if you trust it.
    """
    from vivace.cli.integrations.mcp_listing import list_tools
    from vivace.config import load_settings

    return list_tools(load_settings())


@mcp.command()
@model_option
def serve(model: str | None) -> int:
    """Offer `edit` and `ask` to other agents, on stdin and stdout, for the files of this folder."""
    import asyncio
    from pathlib import Path

    from vivace.agent.mcp.connection import check_installed
    from vivace.agent.mcp.serving import serve as serve_tools
    from vivace.config import load_settings
    from vivace.errors import DONE

    check_installed()
    asyncio.run(serve_tools(load_settings().having(model=model), Path.cwd()))
    return DONE
