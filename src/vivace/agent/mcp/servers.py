"""Which MCP servers there are, as the user's settings and a project's `.mcp.json` name them.

Owns the format and its limits. Reads no file and starts nothing. Nothing here can allow a call: keys that ask
for it, such as `autoApprove`, are passed over in a project's file and refused in the user's settings.
"""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from vivace.errors import ConfigError

PROJECT_FILE = ".mcp.json"
MAX_SERVERS = 32
MAX_SECONDS = 600
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,31}")
_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")


class McpServer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One server: a command that speaks MCP on stdin and stdout, or the URL of one that runs elsewhere."""

    command: str = ""
    args: list[str] = []
    env: dict[str, str] = {}  # beside PATH, HOME and a few more; `${NAME}` is a variable of yours
    url: str = ""
    headers: dict[str, str] = {}  # of every request to the URL; `${NAME}` as above
    timeout_seconds: Annotated[float, Meta(gt=0, le=MAX_SECONDS)] = 60.0  # of one call

    @property
    def line(self) -> str:
        """Return what is started or connected to, as a person reads it. Values of variables are not shown."""
        return self.url or " ".join([*(f"{k}={v}" for k, v in self.env.items()), self.command, *self.args])


@dataclass(frozen=True)
class NamedServer:
    name: str
    server: McpServer
    is_project: bool  # named by the project, not by the user
    programs: Mapping[str, str] = field(default_factory=dict)  # sha-256 of the project's, as they are trusted
    variables: Mapping[str, str] = field(default_factory=lambda: os.environ, repr=False, compare=False)

    @property
    def env(self) -> dict[str, str]:
        return {key: self._expanded(value) for key, value in self.server.env.items()}

    @property
    def headers(self) -> dict[str, str]:
        return {key: self._expanded(value) for key, value in self.server.headers.items()}

    def _expanded(self, value: str) -> str:
        """Return the value with `${NAME}` and `${NAME:-OTHER}` replaced."""

        def of(found: "re.Match[str]") -> str:
            known = self.variables.get(found[1], found[2])
            if known is None:
                raise ConfigError(
                    f"The MCP server {self.name} needs the variable {found[1]}, which is not set.",
                    f"Set {found[1]}, or take the server out.",
                )
            return known

        return _VARIABLE.sub(of, value)


def user_servers(table: Mapping[str, Any]) -> list[NamedServer]:
    """Return the servers of the user's settings, the table `mcp_servers`."""
    return [_checked(name, given, "config.toml", is_project=False) for name, given in table.items()]


def project_servers(data: bytes) -> list[NamedServer]:
    """Return the servers of a `.mcp.json`, which other programs read too: keys that are not ours are left."""
    try:
        whole = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise _wrong(PROJECT_FILE, str(error)) from error
    table = whole.get("mcpServers", {}) if isinstance(whole, dict) else None
    if not isinstance(table, dict) or len(table) > MAX_SERVERS:
        raise _wrong(PROJECT_FILE, f"`mcpServers` must be an object of at most {MAX_SERVERS} servers")
    known = set(McpServer.__struct_fields__) - {"timeout_seconds"}
    return [
        _checked(
            name,
            {key: given[key] for key in known & given.keys()} if isinstance(given, dict) else given,
            PROJECT_FILE,
            is_project=True,
        )
        for name, given in table.items()
    ]


def _checked(name: str, given: Any, source: str, *, is_project: bool) -> NamedServer:
    if not NAME.fullmatch(name):
        raise _wrong(source, f"{name!r:.60} is no name for a server: letters, digits, - and _, at most 32")
    try:
        server = msgspec.convert(given, McpServer)
    except msgspec.ValidationError as error:
        raise _wrong(source, f"server {name}: {error}") from error
    if bool(server.command) == bool(server.url):
        raise _wrong(source, f"server {name} needs either a command or a url")
    if server.url and not server.url.startswith(("http://", "https://")):
        raise _wrong(source, f"server {name}: the url must begin with http:// or https://")
    return NamedServer(name, server, is_project)


def _wrong(source: str, problem: str) -> ConfigError:
    return ConfigError(f"{source} cannot be understood: {problem}.", "Correct it or move it away.")
