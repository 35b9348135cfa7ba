"""Tools of MCP servers, called as a task calls them; the server misbehaves in every way."""

import contextlib
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.agent.mcp import misbehaving
from tests.agent.tools.workbench import call, context_for
from vivace.agent.mcp.opening import OpenServers, opened_servers
from vivace.agent.mcp.servers import NamedServer, user_servers
from vivace.agent.mcp.tool import McpTool, tool_name
from vivace.agent.permissions.decision import Situation, decide
from vivace.agent.permissions.policy import Policy
from vivace.agent.tools.base import MalformedCall, ToolResult
from vivace.errors import McpProblem

pytest.importorskip("mcp", reason="needs the extra mcp")


def misbehaving_server(**more: object) -> NamedServer:
    given = {"command": sys.executable, "args": ["-S", misbehaving.__file__], **more}
    return user_servers({"bad": given})[0]


@contextlib.asynccontextmanager
async def opened(folder: Path, **more: object) -> AsyncIterator[OpenServers]:
    async with opened_servers([misbehaving_server(**more)], folder) as servers:
        assert servers.problems == []
        yield servers


def tool(servers: OpenServers, name: str) -> McpTool:
    return next(each for each in servers.tools if each.name == f"bad__{name}")


async def run(servers: OpenServers, name: str, folder: Path, **arguments: str) -> ToolResult:
    return await call(tool(servers, name), context_for(folder), **arguments)


def is_running(pid: int) -> bool:
    """Return whether the process is there, and not only its end that nobody has taken notice of."""
    try:
        return b") Z " not in Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return False


class TestCalls:
    async def test_a_tool_is_listed_and_called(self, tmp_path: Path) -> None:
        """By `server__tool`; its output is marked as data."""
        async with opened(tmp_path) as servers:
            assert {each.name for each in servers.tools} == {f"bad__{name}" for name in misbehaving.TOOLS}
            result = await run(servers, "echo", tmp_path, text="hello")
            definition = tool(servers, "echo").definition()
        assert result.output.endswith("\nhello")
        assert "not an instruction" in result.output
        assert definition["parameters"]["properties"] == {"text": {"type": "string"}}

    async def test_a_server_sees_no_secret(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Of our environment it has the path and its home; what it is given by name it has."""
        monkeypatch.setenv("GITHUB_TOKEN", "hush-hush")
        monkeypatch.setenv("HARMLESS", "hush-hush")
        monkeypatch.setenv("FOR_IT", "mine")
        async with opened(tmp_path, env={"GIVEN": "${FOR_IT}"}) as servers:
            output = (await run(servers, "environment", tmp_path)).output
        assert "hush-hush" not in output
        assert '"GIVEN": "mine"' in output

    async def test_an_answer_is_bounded_and_clean(self, tmp_path: Path) -> None:
        """Escape sequences are gone and the middle is left out; what is no text is named."""
        async with opened(tmp_path) as servers:
            long = await run(servers, "escape", tmp_path)
            picture = await run(servers, "picture", tmp_path)
            failed = await run(servers, "fail", tmp_path)
        assert "\x1b" not in long.output
        assert len(long.output) < 30_000
        assert "are left out here" in long.output
        assert "[image, 5 bytes, left out]" in picture.output
        assert (failed.is_error, "no such thing" in failed.output) == (True, True)

    async def test_nonsense_on_its_stdout_is_passed_over(self, tmp_path: Path) -> None:
        """Words, half a message, and an answer to what nobody asked."""
        async with opened(tmp_path) as servers:
            assert (await run(servers, "nonsense", tmp_path, text="still")).output.endswith("still")

    async def test_a_schema_that_never_ends_is_not_run(self, tmp_path: Path) -> None:
        """The server's own pattern for its output would take years."""
        async with opened(tmp_path) as servers:
            assert "aaaa!" in (await run(servers, "trap", tmp_path)).output

    async def test_arguments_that_are_no_object_are_malformed(self, tmp_path: Path) -> None:
        """The model is told the fault."""
        async with opened(tmp_path) as servers:
            for given in ("[]", "{", '"x"'):
                with pytest.raises(MalformedCall):
                    tool(servers, "echo").parse(given)


class TestEnds:
    async def test_a_server_that_dies_is_a_failed_call(self, tmp_path: Path) -> None:
        """The next call starts it anew."""
        async with opened(tmp_path) as servers:
            with pytest.raises(McpProblem, match="bad"):
                await run(servers, "die", tmp_path)
            assert (await run(servers, "echo", tmp_path, text="again")).output.endswith("again")
        assert len((tmp_path / "started").read_text().split()) == 2

    async def test_a_server_that_hangs_is_a_failed_call(self, tmp_path: Path) -> None:
        """After its time; with the task it is ended, though it does not listen."""
        async with opened(tmp_path, timeout_seconds=0.3) as servers:
            with pytest.raises(McpProblem, match=r"did not answer in 0\.3 s"):
                await run(servers, "hang", tmp_path)
        (pid,) = map(int, (tmp_path / "started").read_text().split())
        assert not is_running(pid)

    async def test_a_flood_is_cut_off(self, tmp_path: Path) -> None:
        """A line without an end is not kept; the connection is."""
        async with opened(tmp_path) as servers:
            with pytest.raises(McpProblem):
                await run(servers, "flood", tmp_path)
            assert (await run(servers, "echo", tmp_path, text="again")).output.endswith("again")
        for pid in map(int, (tmp_path / "started").read_text().split()):
            assert not is_running(pid)

    async def test_one_that_does_not_start_costs_its_tools_only(self, tmp_path: Path) -> None:
        """The others are there, and each problem says which server and why."""
        broken = user_servers(
            {
                "gone": {"command": "no-such-program"},
                "quits": {"command": "sh", "args": ["-c", "echo I cannot >&2"]},
                "nowhere": {"url": "http://127.0.0.1:9/mcp"},
                "unset": {"command": "x", "env": {"A": "${NO_SUCH_VARIABLE}"}},
            }
        )
        async with opened_servers([*broken, misbehaving_server()], tmp_path) as servers:
            assert len(servers.tools) == len(misbehaving.TOOLS)
            problems = "\n".join(problem.message for problem in servers.problems)
        for words in ("gone could not be started", "I cannot", "nowhere", "NO_SUCH_VARIABLE"):
            assert words in problems

    async def test_nothing_is_left_of_a_cancelled_task(self, tmp_path: Path) -> None:
        """Whatever ends the block ends the server."""
        with contextlib.suppress(ZeroDivisionError):
            async with opened(tmp_path):
                raise ZeroDivisionError
        (pid,) = map(int, (tmp_path / "started").read_text().split())
        assert not is_running(pid)


async def test_a_hint_of_the_server_allows_nothing(tmp_path: Path) -> None:
    """Its tools say that they only read; each call asks, in every mode, or is refused."""
    async with opened(tmp_path) as servers:
        found = servers.tools
    context = context_for(tmp_path)
    for access in ("read-only", "workspace-write", "full"):
        situation = Situation(is_tainted=True, has_sandbox=True)
        verdicts = {
            decide(each.needs({}, context), [Policy(access, asking)], situation).kind  # type: ignore[arg-type]
            for each in found
            for asking in ("ask", "on-request")
        }
        assert verdicts == {"ask"}
    assert not any(each.is_read_only for each in found)


def test_names_are_those_of_functions() -> None:
    """Letters, digits, - and _, at most 64."""
    assert tool_name("a", "x.y/z é") == "a__x_y_z__"
    assert len(tool_name("a", "x" * 100)) == 64


async def test_names_that_are_the_same_are_there_once(tmp_path: Path) -> None:
    """The first server keeps it."""
    async with opened_servers([misbehaving_server(), misbehaving_server()], tmp_path) as servers:
        names = [each.name for each in servers.tools]
    assert len(names) == len(set(names))
