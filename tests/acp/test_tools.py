"""A model that calls tools, in an editor: calls, diffs, plans and questions; MCP servers that it names."""

import asyncio
import json
import sys
from pathlib import Path

import pytest
from acp.schema import EnvVariable, HttpHeader, HttpMcpServer, McpServerStdio
from hypothesis import given
from hypothesis import strategies as st

from tests.acp.conftest import Open
from tests.acp.editor import FILES, TERMINALS
from tests.agent.conversation.talking import read, write
from tests.agent.loop.working import call, calls
from tests.agent.mcp import misbehaving
from vivace.acp.servers import server_table
from vivace.agent.mcp.servers import user_servers

EDIT = call("edit", path="a.py", old_text="x = 1", new_text="x = 2")
PLAN = call("update_plan", plan=[{"step": "look", "status": "in_progress"}])


@pytest.fixture
def file(folder: Path) -> Path:
    file = folder / "a.py"
    file.write_text("x = 1\n")
    return file


def has(path: Path) -> bool:
    return path.exists()


async def test_calls_diffs_and_the_plan_are_shown(open_wire: Open, file: Path) -> None:
    """Each call begins and ends, an edit with its diff; what the model says is the message."""
    steps = [calls("I look.", PLAN, call("read", path="a.py")), EDIT, "Now x is two."]
    wire = await open_wire(steps=steps)
    assert await wire.prompt("make x two") == "end_turn"
    assert read(file) == "x = 2\n"
    calls_seen = {updates[0].title: updates for updates in wire.client.calls.values()}
    assert {title: updates[0].kind for title, updates in calls_seen.items() if "plan" not in title} == {
        "read a.py": "read",
        "edit a.py": "edit",
    }
    assert all(updates[-1].status == "completed" for updates in calls_seen.values())
    shown = calls_seen["edit a.py"][-1].content[0]
    assert (shown.path, shown.old_text, shown.new_text) == (str(file), "x = 1\n", "x = 2\n")
    (plan,) = [each for each in wire.client.updates if each.session_update == "plan"]
    assert [(entry.content, entry.status) for entry in plan.entries] == [("look", "in_progress")]
    assert "I look." in wire.client.said
    assert wire.client.said.endswith("Now x is two.")
    await wire.prompt("/undo")
    assert read(file) == "x = 1\n"


async def test_what_the_mode_does_not_allow_is_asked(open_wire: Open, file: Path) -> None:
    """A no fails the call and is told to the model; a yes for always is asked once."""
    back = call("edit", path="a.py", old_text="x = 2", new_text="x = 1")
    wire = await open_wire(steps=[EDIT, EDIT, back, EDIT, "Done."])
    await wire.agent.set_session_mode(session_id=wire.session, mode_id="ask")
    wire.client.answers = ["reject_once", "allow_always"]
    assert await wire.prompt("make x two") == "end_turn"
    assert read(file) == "x = 2\n"
    assert [asked.title for asked, _ in wire.client.asked] == ["edit a.py"] * 2
    assert wire.client.asked[0][0].kind == "edit"
    statuses = [updates[-1].status for updates in wire.client.calls.values()]
    assert statuses == ["failed", "completed", "completed", "completed"]


async def test_tools_read_and_write_through_the_editor(open_wire: Open, file: Path) -> None:
    """The model sees the unsaved text, and its change is written by the editor."""
    wire = await open_wire(
        capabilities=FILES,
        steps=[
            call("read", path="a.py"),
            call("edit", path="a.py", old_text="y = 1", new_text="y = 2"),
            "Ok.",
        ],
    )
    wire.client.buffers[str(file)] = "x = 1\ny = 1\n"
    assert await wire.prompt("make y two") == "end_turn"
    assert wire.client.written == [str(file)]
    assert read(file) == "x = 1\ny = 2\n"
    first = next(iter(wire.client.calls.values()))
    assert "y = 1" in first[-1].content[0].content.text


async def test_servers_of_the_editor_are_asked_for_each_call(open_wire: Open, folder: Path) -> None:
    """A server that the client passes is started, and its tool is called after a yes."""
    pytest.importorskip("mcp", reason="needs the extra mcp")
    wire = await open_wire(steps=[call("bad-one__echo", text="from the server"), "Done."], begins=False)
    args = ["-S", misbehaving.__file__]
    server = McpServerStdio(name="bad one", command=sys.executable, args=args, env=[])
    wire.session = (await wire.agent.new_session(cwd=str(folder), mcp_servers=[server])).session_id
    assert await wire.prompt("call it") == "end_turn"
    ((asked, _),) = wire.client.asked
    assert asked.title is not None
    assert "bad-one__echo" in asked.title
    ((updates),) = wire.client.calls.values()
    assert updates[-1].status == "completed"
    assert "from the server" in updates[-1].content[0].content.text


async def test_servers_of_the_folder_need_trust(open_wire: Open, folder: Path) -> None:
    """A folder that a client opens is not trusted by that: its servers are not started, and that is said."""
    pytest.importorskip("mcp", reason="needs the extra mcp")
    server = {"command": sys.executable, "args": ["-S", misbehaving.__file__]}
    write(folder / ".mcp.json", json.dumps({"mcpServers": {"bad": server}}))
    wire = await open_wire(steps=["Without."])
    assert await wire.prompt("go") == "end_turn"
    assert wire.client.said == "Without."
    assert "vivace trust" in wire.client.thought
    assert not has(folder / "started")


async def test_a_command_without_walls_runs_in_the_editors_terminal(
    open_wire: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a yes, without secrets of the environment; the call shows the terminal, which is given back."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-the-user")
    command = call("shell", command="echo here: $PWD; exit 3", leave_sandbox=True)
    wire = await open_wire(capabilities=TERMINALS, steps=[command, "Done."])
    assert await wire.prompt("run it") == "end_turn"
    ((asked, _),) = wire.client.asked
    assert asked.kind == "execute"
    ((line),) = wire.client.terminals
    assert line[:2] == ["env", "-i"]
    assert "sk-of-the-user" not in str(line)
    assert line[-1] == "echo here: $PWD; exit 3"
    ((updates),) = wire.client.calls.values()
    assert updates[-1].status == "failed"
    assert updates[-1].content[0].terminal_id == wire.client.released[0]


async def test_a_cancel_ends_a_command_in_the_editors_terminal(open_wire: Open) -> None:
    """The prompt is cancelled, and the terminal is given back, which ends what runs in it."""
    command = call("shell", command="exec sleep 600", leave_sandbox=True)
    wire = await open_wire(capabilities=TERMINALS, steps=[command, "Done."])
    running = asyncio.create_task(wire.prompt("run it"))
    await wire.client.until(lambda: "terminal" in str(wire.client.calls))
    await wire.agent.cancel(session_id=wire.session)
    assert await running == "cancelled"
    assert len(wire.client.released) == 1


def test_a_server_is_what_the_settings_would_say() -> None:
    """A command with its variables, a URL with its headers."""
    table = server_table(
        [
            McpServerStdio(name="a", command="run", args=["x"], env=[EnvVariable(name="K", value="v")]),
            HttpMcpServer(name="b", type="http", url="http://h/", headers=[HttpHeader(name="A", value="t")]),
        ]
    )
    assert table == {
        "a": {"command": "run", "args": ["x"], "env": {"K": "v"}},
        "b": {"url": "http://h/", "headers": {"A": "t"}},
    }


@given(st.lists(st.text(max_size=50), max_size=8))
def test_any_names_of_servers_are_names_of_ours(names: list[str]) -> None:
    """Whatever an editor calls them: all are there, with names that the settings take."""
    given_servers = [McpServerStdio(name=name, command="run", args=[], env=[]) for name in names]
    assert len(user_servers(server_table(given_servers))) == len(names)
