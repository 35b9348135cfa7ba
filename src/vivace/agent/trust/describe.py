"""What a project's configuration would do, in lines that a person reads before trusting it.

Owns the words. All of it is shown, each word of a command apart, with nothing hidden (`permissions.shown`).
What is too long for that cannot be trusted. Does not decide anything.
"""

import re
import shlex

from vivace.agent.mcp.servers import PROJECT_FILE as MCP_FILE
from vivace.agent.mcp.servers import McpServer, project_servers
from vivace.agent.permissions.shown import MAX_CHARS, MAX_LINES, fits, shown, shown_in_line
from vivace.agent.trust.project import ProjectFiles
from vivace.errors import ConfigError

_NEEDS_NO_QUOTES = re.compile(r"(?:[\w@%+=:,./-]|\$\{\w+\})+", re.ASCII)


def described(project: ProjectFiles) -> list[str]:
    """Return what each file would start, or its text where we do not know it better.

    Raise ConfigError if it is too long for a person to be shown.
    """
    lines = []
    for name, data in project.files.items():
        if name == MCP_FILE:
            lines += _servers(data, project)
        else:
            lines += [f"{shown_in_line(name)}:", *(f"    {line}" for line in _text(data))]
    lines += [f"a program of the project: {shown_in_line(name)}" for name in project.programs]
    if not fits("\n".join(lines)):
        raise ConfigError(
            f"The configuration of {project.root} is too long to be shown whole, so it cannot be trusted: "
            f"more than {MAX_LINES:,} lines, or {MAX_CHARS:,} characters.",
            "Make it shorter, or use your own configuration and --no-project.",
        )
    return lines


def _servers(data: bytes, project: ProjectFiles) -> list[str]:
    try:
        servers = project_servers(data)
    except ConfigError as error:
        return [f"{MCP_FILE}: {shown_in_line(error.message)}"]
    lines = []
    for named in servers:
        verb = "connects to" if named.server.url else "starts, outside of the sandbox"
        lines.append(f"{MCP_FILE}: the server {named.name} {verb}: {_line_of(named.server)}")
        lines += [
            f"    sends the header {shown_in_line(f'{k}: {v}')}" for k, v in named.server.headers.items()
        ]
        if changes := project.changes.get(named.name):
            lines.append(f"    what this runs can change without asking again: {'; '.join(changes)}")
    return lines


def _line_of(server: McpServer) -> str:
    """Return what is started as a shell would be given it: where a word ends can be seen."""
    if server.url:
        return shown_in_line(server.url)
    env = [f"{_quoted(name)}={_quoted(value) if value else ''}" for name, value in server.env.items()]
    command = _quoted(server.command)
    if "=" in server.command and command == server.command:
        command = f"'{command}'"  # else it could be taken for a variable
    return shown_in_line(" ".join([*env, command, *map(_quoted, server.args)]))


def _quoted(word: str) -> str:
    if _NEEDS_NO_QUOTES.fullmatch(word):
        return word
    if "\n" in word:
        escaped = word.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n")
        return f"$'{escaped}'"
    return shlex.quote(word)


def _text(data: bytes) -> list[str]:
    return shown(data.decode("utf-8", "surrogateescape")).split("\n")
