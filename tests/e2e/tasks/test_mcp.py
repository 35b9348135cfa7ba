"""`vivace mcp`: real servers from npm and PyPI, a task that calls them, and ours driven by the SDK."""

import json
import os
import re
import subprocess
import sys
from typing import Any

import pytest

from tests.agent.loop.working import call
from tests.agent.mcp import misbehaving
from tests.e2e import npm
from tests.e2e.conftest import NEW, TASK
from tests.e2e.pypi import python_path
from tests.e2e.terminal import PROGRAM, Home, Terminal, wait_until

pytest.importorskip("mcp", reason="needs the extra mcp")

FILESYSTEM = ("@modelcontextprotocol/server-filesystem", "2026.8.31", "mcp-server-filesystem")
INSPECTOR = ("@modelcontextprotocol/inspector", "2.12.0", "mcp-inspector")
GIT = ("mcp-server-git==2026.10.19", "GitPython==3.2.1", "gitdb==4.0.12", "smmap==5.0.3")


def named(home: Home, **servers: dict[str, Any]) -> None:
    (home.work / ".mcp.json").write_text(json.dumps({"mcpServers": servers}))
    assert home.run("trust", "--yes").code == 0


def told(home: Home, *steps: str) -> None:
    home.script({"": "Nothing more."}, steps=list(steps), context_tokens=60000)


def test_a_task_calls_a_real_file_server_after_a_yes(home: Home) -> None:
    """The person sees the call; its output reaches the model; without a person it is refused."""
    (home.work / "a.txt").write_text("the content of a\n")
    named(home, fs={"command": str(npm.command(*FILESYSTEM)), "args": ["."]})
    read = call("fs__read_text_file", path=str(home.work / "a.txt"))
    told(home, read, "That was it.")
    terminal = Terminal(home, "run", "Read a.", "--access", "full")
    terminal.wait_for("[y/N]")
    assert "fs__read_text_file is a tool of another program" in terminal.shown
    terminal.type("y\n")
    terminal.wait_for("That was it.")
    assert terminal.end() == 0
    home.run("stop")
    told(home, read, "Then not.")
    done = home.run("run", "Read a.", "--output-format", "stream-json")
    (ended,) = [event for event in done.events if event["type"] == "tool.ended"]
    assert (ended["status"], done.code) == ("refused", 4)


def test_servers_and_their_tools_are_listed(home: Home) -> None:
    """Those of the folder only once it is trusted; one that does not start is named, with the exit code 1."""
    (home.work / ".mcp.json").write_text('{"mcpServers": {"gone": {"command": "no-such-program"}}}')
    done = home.run("mcp", "list")
    assert ("vivace trust" in done.err, "gone" in done.out) == (True, False)
    assert home.run("trust", "--yes").code == 0
    done = home.run("mcp", "list")
    assert (done.code, "gone (this folder's)" in done.out, "could not be started" in done.err) == (
        1,
        True,
        True,
    )


def test_an_untrusted_folder_ends_a_task_that_cannot_ask(home: Home) -> None:
    """With exit code 4 and what to do; --no-project goes on without its servers."""
    (home.work / ".mcp.json").write_text('{"mcpServers": {"one": {"command": "touch", "args": ["ran"]}}}')
    told(home, "Done.")
    done = home.run("run", "Do it.")
    assert (done.code, "vivace trust" in done.err) == (4, True)
    assert home.run("run", "Do it.", "--background").code == 4
    assert home.run("run", "Do it.", "--no-project").code == 0
    assert not (home.work / "ran").exists()


def test_a_background_task_waits_for_a_yes_to_a_call(home: Home) -> None:
    """`vivace tasks answer` lets the call of a server's tool run, if it names what was shown."""
    named(home, bad={"command": sys.executable, "args": ["-S", misbehaving.__file__]})
    told(home, call("bad__echo", text="hello"), "That was it.")
    task = home.run("run", "Call it.", "--background").out.strip()
    wait_until(lambda: '"waiting"' in home.run("tasks", "--output-format", "json").out, "the question")
    assert "asks: bad__echo" in home.run("tasks").out
    unseen = home.run("tasks", "answer", task, "yes")
    named_by = re.search(r"--about (\w+)", unseen.err)
    assert (unseen.code, "bad__echo" in unseen.err) == (2, True), unseen.err
    assert named_by is not None
    assert home.run("tasks", "answer", task, "yes", "--about", named_by[1]).code == 0
    watched = home.run("tasks", "watch", task)
    assert (watched.code, watched.out.endswith("That was it.\n")) == (0, True), watched.err


def test_a_real_git_server_lists_its_tools(home: Home) -> None:
    """One from PyPI, written with the official SDK, by the protocol of this year."""
    env = {"PYTHONPATH": python_path(*GIT)}
    named(home, git={"command": sys.executable, "args": ["-m", "mcp_server_git"], "env": env})
    done = home.run("mcp", "list")
    assert done.code == 0, done.err
    assert "git__git_log" in done.out


def ours(home: Home) -> Any:
    """Return the official client of `vivace mcp serve`."""
    from mcp import Client, StdioServerParameters

    kept = {"HOME", "PATH"}
    env = {
        name: value
        for name, value in home.env().items()
        if name in kept or name.startswith(("VIVACE_", "XDG_"))
    }
    return Client(
        StdioServerParameters(command=PROGRAM[0], args=[*PROGRAM[1:], "mcp", "serve"], env=env, cwd=home.work)
    )


async def test_ours_is_driven_by_the_official_client(task_home: Home) -> None:
    """Both tools are listed; an edit is written and undone; what is outside or protected is refused."""
    home, file = task_home, task_home.work / "task.py"
    async with ours(home) as client:
        assert {tool.name for tool in (await client.list_tools()).tools} == {"edit", "ask"}

        async def said(name: str, **arguments: Any) -> tuple[bool, str]:
            result = await client.call_tool(name, arguments)
            return bool(result.is_error), result.content[0].text

        failed, text = await said("edit", path="task.py", instruction="shout", apply=False)
        assert (failed, "+    print(task.title.upper())" in text, file.read_text()) == (False, True, TASK)
        failed, text = await said("edit", path="task.py:show", instruction="shout")
        assert (failed, "vivace undo" in text, file.read_text()) == (False, True, NEW)
        for path in ("../outside.py", ".git/config", "/etc/passwd", "missing.py"):
            failed, text = await said("edit", path=path, instruction="shout")
            assert failed, text
        assert (await said("ask", question="hi", paths=["../../etc/passwd"]))[0]
        assert (await said("ask"))[0]
        assert (await said("fly"))[0]
    assert home.run("undo").code == 0
    assert file.read_text() == TASK


async def test_a_client_that_asks_for_progress_is_told_what_a_call_waits_for(home: Home) -> None:
    """How far the model is loaded, with a number that grows; the answer comes after."""
    weights = home.folder / "weights"
    weights.touch()
    os.truncate(weights, 12_000_000_000)  # a hole: nothing is on the disk
    home.script({"": "Here I am."}, load_file=str(weights), load_bytes=20_000_000_000)
    told: list[tuple[float, str | None]] = []

    async def heard(progress: float, total: float | None, message: str | None) -> None:
        del total
        told.append((progress, message))
        if message and "12 of 20 GB" in message:
            os.truncate(weights, 20_000_000_000)

    async with ours(home) as client:
        result = await client.call_tool("ask", {"question": "hi"}, progress_callback=heard)
        assert result.content[0].text == "Here I am."
    numbers, words = zip(*told, strict=True)
    assert (numbers, "loading script.json: 12 of 20 GB" in words) == (tuple(sorted(set(numbers))), True)


def test_ours_is_listed_by_the_official_inspector(home: Home) -> None:
    """Its command line starts `vivace mcp serve` as any other program would."""
    inspector = npm.command(*INSPECTOR)
    line = [str(inspector), "--cli", *PROGRAM, "mcp", "serve", "--method", "tools/list"]
    done = subprocess.run(
        line, cwd=home.work, env=home.env(), capture_output=True, text=True, timeout=120, check=False
    )
    if done.returncode and "tools" not in done.stdout:
        pytest.skip(f"the inspector does not run here: {done.stderr.strip()[-200:]}")
    assert {tool["name"] for tool in json.loads(done.stdout)["tools"]} == {"edit", "ask"}
