"""Servers of other people: one with a database, one behind HTTP. Skipped where they cannot be installed."""

import os
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.agent.tools.workbench import call, context_for
from tests.e2e import npm, pypi
from tests.server.serving import until
from vivace.agent.mcp.opening import OpenServers, opened_servers
from vivace.agent.mcp.servers import user_servers
from vivace.agent.tools.base import ToolResult
from vivace.errors import McpProblem

pytest.importorskip("mcp", reason="needs the extra mcp")

pytestmark = pytest.mark.served

SQLITE = ("mcp-server-sqlite==2025.4.25", "mcp==1.30.0")
EVERYTHING = ("@modelcontextprotocol/server-everything", "2026.8.31", "mcp-server-everything")
# The server listens everywhere; in a test it is to listen on loopback alone.
ON_LOOPBACK = """const net = require("net"), listen = net.Server.prototype.listen;
net.Server.prototype.listen = function (port, ...rest) {
  return listen.call(this, Number(port), "127.0.0.1", ...rest);
};
"""


async def run(servers: OpenServers, name: str, folder: Path, **arguments: Any) -> ToolResult:
    tool = next(each for each in servers.tools if each.name == name)
    return await call(tool, context_for(folder), **arguments)


async def test_a_database_is_written_and_read(tmp_path: Path) -> None:
    """By a server that speaks an older version of the protocol; what it refuses is told."""
    line = pypi.command("mcp-server-sqlite", *SQLITE)
    named = user_servers({"db": {"command": line, "args": ["--db-path", str(tmp_path / "a.db")]}})
    async with opened_servers(named, tmp_path) as servers:
        assert servers.problems == []
        await run(servers, "db__create_table", tmp_path, query="CREATE TABLE t (name TEXT)")
        await run(servers, "db__write_query", tmp_path, query="INSERT INTO t VALUES ('Ada')")
        read = await run(servers, "db__read_query", tmp_path, query="SELECT name FROM t")
        wrong = await run(servers, "db__read_query", tmp_path, query="DROP TABLE t")
    assert "{'name': 'Ada'}" in read.output
    assert "Only SELECT queries" in wrong.output


@pytest.fixture
def http_server(tmp_path: Path) -> Iterator[tuple[str, "subprocess.Popen[bytes]"]]:
    """The URL of a server from npm, and its process."""
    program = npm.command(*EVERYTHING)
    (tmp_path / "loopback.cjs").write_text(ON_LOOPBACK)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    env = os.environ | {"PORT": str(port), "NODE_OPTIONS": f"--require={tmp_path / 'loopback.cjs'}"}
    server = subprocess.Popen([str(program), "streamableHttp"], env=env, stderr=subprocess.PIPE)

    def is_listening() -> bool:
        assert server.poll() is None, server.stderr.read() if server.stderr else ""
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0

    try:
        until(is_listening)
        yield f"http://127.0.0.1:{port}/mcp", server
    finally:
        server.kill()
        server.communicate()


async def test_a_server_behind_http_is_called_until_it_is_gone(
    http_server: tuple[str, "subprocess.Popen[bytes]"], tmp_path: Path
) -> None:
    """Its answers come as a stream of events; when it has died, a call fails and says so."""
    url, process = http_server
    async with opened_servers(user_servers({"every": {"url": url}}), tmp_path) as servers:
        assert servers.problems == []
        assert (await run(servers, "every__echo", tmp_path, message="hello")).output.endswith("hello")
        assert "5" in (await run(servers, "every__get-sum", tmp_path, a=2, b=3)).output
        process.kill()
        process.wait()
        with pytest.raises(McpProblem, match="every"):
            await run(servers, "every__echo", tmp_path, message="again")
