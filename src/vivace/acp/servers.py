"""MCP servers that an editor names for a session, as our settings have them.

Owns the way from one shape to the other. They are the user's own, as the editor's settings are: started
without a question, while each call of their tools asks. Does not start them (`agent.mcp`).
"""

import re
from collections.abc import Sequence
from typing import Any

from acp.schema import AcpMcpServer, HttpMcpServer, McpServerStdio, SseMcpServer

Server = HttpMcpServer | SseMcpServer | AcpMcpServer | McpServerStdio
MAX_NAME_CHARS = 32


def server_table(servers: Sequence[Server]) -> dict[str, Any]:
    """Return the servers as a table `mcp_servers`. Kinds that we did not offer are passed over."""
    table: dict[str, Any] = {}
    for server in servers:
        match server:
            case McpServerStdio(command=command, args=args, env=env):
                given = {each.name: each.value for each in env}
                table[_name(server.name, table)] = {"command": command, "args": args, "env": given}
            case HttpMcpServer(url=url, headers=headers):
                given = {each.name: each.value for each in headers}
                table[_name(server.name, table)] = {"url": url, "headers": given}
    return table


def _name(given: str, taken: dict[str, Any]) -> str:
    """Return a name that our tools can have, which no other server has."""
    plain = re.sub(r"[^A-Za-z0-9_-]+", "-", given).strip("-_") or "server"
    name, number = plain[:MAX_NAME_CHARS], 1
    while name in taken:
        number += 1
        name = f"{plain[: MAX_NAME_CHARS - 4]}-{number}"
    return name
