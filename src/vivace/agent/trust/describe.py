"""What a project's configuration would do, in lines that a person reads before trusting it.

Owns the words. Text of the project is shown without control characters, so that it cannot hide a line. Does
not decide anything.
"""

from vivace.agent.mcp.servers import PROJECT_FILE as MCP_FILE
from vivace.agent.mcp.servers import project_servers
from vivace.agent.tools.bounded import printable
from vivace.agent.trust.project import ProjectFiles
from vivace.errors import ConfigError

MAX_LINES = 60  # of one file that is shown as it is
MAX_CHARS = 400  # of one line


def described(project: ProjectFiles) -> list[str]:
    """Return what each file would start, or its text where we do not know it better."""
    lines = []
    for name, data in project.files.items():
        if name == MCP_FILE:
            lines += _servers(data)
        else:
            lines += [f"{_clean(name)}:", *(f"    {line}" for line in _text(data))]
    lines += [f"a program of the project: {_clean(name)}" for name in project.programs]
    return lines


def _servers(data: bytes) -> list[str]:
    try:
        servers = project_servers(data)
    except ConfigError as error:
        return [f"{MCP_FILE}: {_clean(error.message)}"]
    lines = []
    for named in servers:
        verb = "connects to" if named.server.url else "starts, outside of the sandbox"
        lines.append(f"{MCP_FILE}: the server {named.name} {verb}: {_clean(named.server.line)}")
        lines += [f"    sends the header {_clean(f'{k}: {v}')}" for k, v in named.server.headers.items()]
    return lines


def _text(data: bytes) -> list[str]:
    lines = printable(data).splitlines()
    more = [f"[… {len(lines) - MAX_LINES} more lines …]"] if len(lines) > MAX_LINES else []
    return [line[:MAX_CHARS] for line in lines[:MAX_LINES]] + more


def _clean(text: str) -> str:
    return printable(text.replace("\n", "\\n"))[:MAX_CHARS]
