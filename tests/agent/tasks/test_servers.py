"""MCP servers of a background task: only after trust, and each call waits for an answer."""

import json
import sys
from pathlib import Path

import pytest

from tests.agent.loop.injections import INJECTIONS
from tests.agent.loop.test_injections import ASKED, OBEDIENT
from tests.agent.loop.working import call, calls
from tests.agent.mcp import misbehaving
from tests.agent.tasks.conftest import Start
from tests.agent.tasks.tasking import seen, wait_for
from tests.server.serving import until
from vivace.agent.events.task import ApprovalAsked, CallEnded, ServersOpened
from vivace.agent.permissions.policy import Policy, project_policy
from vivace.agent.tasks import control
from vivace.agent.trust.project import read_project
from vivace.agent.trust.store import TrustStore
from vivace.config import Settings

pytest.importorskip("mcp", reason="needs the extra mcp")

ECHO = call("bad__echo", text="from the server")


@pytest.fixture
def program(repository: Path) -> Path:
    """A server that the project names, and has in a file of its own."""
    program = repository / "server.py"
    program.write_bytes(Path(misbehaving.__file__).read_bytes())
    servers = {"bad": {"command": sys.executable, "args": ["-S", "server.py"]}}
    (repository / ".mcp.json").write_text(json.dumps({"mcpServers": servers}))
    return program


@pytest.fixture
def trusted(served: Settings, repository: Path, program: Path) -> None:
    del program
    TrustStore(served.state_dir).trust(read_project(repository))


@pytest.mark.usefixtures("trusted")
def test_a_call_waits_for_an_answer(start: Start, repository: Path) -> None:
    """The server runs in the task's copy; a no and a yes reach it, and the task knows what it said."""
    _, task = start(ECHO, ECHO, "That was it.")
    asked = wait_for(task, "waiting").asked
    assert asked is not None
    assert (asked.tool, "from the server" in asked.title) == ("bad__echo", True)
    assert control.answer_task(task, is_allowed=False)
    until(lambda: len(seen(task, ApprovalAsked)) == 2)
    assert control.answer_task(task, is_allowed=True, digest=asked.digest)
    assert wait_for(task, "done").text == "That was it."
    refused, done = seen(task, CallEnded)
    assert (refused.status, done.status) == ("refused", "done")
    assert done.output.endswith("from the server")
    assert [each.servers for each in seen(task, ServersOpened)] == [("bad",)]
    assert (Path(task.queued().workspace) / "started").exists()
    assert not (repository / "started").exists()


@pytest.mark.usefixtures("program")
def test_nothing_is_started_without_trust(start: Start) -> None:
    """The log says why, and the task goes on without its tools."""
    _, task = start(ECHO, "Then not.")
    assert wait_for(task, "done").text == "Then not."
    (opened,) = seen(task, ServersOpened)
    assert (opened.servers, "was not trusted yet" in opened.problems[0]) == ((), True)
    assert seen(task, ApprovalAsked) == []
    assert not (Path(task.queued().workspace) / "started").exists()


@pytest.mark.usefixtures("trusted")
def test_a_task_may_be_begun_without_them(start: Start) -> None:
    """As --no-project says it; nor are they started where nobody may be asked."""
    for given in ({"uses_project": False}, {"policy": Policy("workspace-write", "never")}):
        _, task = start("Done.", **given)
        wait_for(task, "done")
        assert seen(task, ServersOpened) == []


@pytest.mark.usefixtures("trusted")
def test_a_program_that_the_task_has_changed_is_not_started(start: Start) -> None:
    """What runs outside of the sandbox is what the user has seen."""
    written = call("edit", path="server.py", old_text='"echo",', new_text='"echo", "more",')
    settings, task = start(written, "First.", "Second.")
    assert wait_for(task, "done").text == "First."
    control.resume_task(settings, task, "Go on.")
    until(lambda: task.state().text == "Second.")
    first, second = seen(task, ServersOpened)
    assert (first.servers, second.servers) == (("bad",), ())
    assert "server.py is not what was trusted" in second.problems[0]


@pytest.mark.usefixtures("trusted")
def test_what_a_task_has_read_allows_nothing(start: Start, repository: Path) -> None:
    """With the whole corpus in a file and in a server's answer, each forbidden call waits or is refused."""
    (repository / "notes").write_text("\n".join(INJECTIONS))
    obeyed = calls(*(call(name, **arguments) for name, arguments in OBEDIENT))
    read = calls(call("read", path="notes"), call("bad__echo", text="\n".join(INJECTIONS)))
    settings, task = start(read, obeyed, "Done.", policy=Policy("full", "on-request"))
    asked = wait_for(task, "waiting").asked
    assert asked is not None
    assert control.answer_task(task, is_allowed=True, digest=asked.digest)
    for count in range(2, 2 + ASKED):
        until(lambda count=count: len(seen(task, ApprovalAsked)) == count and task.state().asked)  # type: ignore[misc]
        assert control.answer_task(task, is_allowed=False)
    assert wait_for(task, "done").text == "Done."
    assert len(seen(task, ApprovalAsked)) == 1 + ASKED
    assert [each.status for each in seen(task, CallEnded)] == ["done", "done", *["refused"] * len(OBEDIENT)]
    assert not (task.work / "outside.txt").exists()
    assert project_policy(Path(task.queued().workspace)) is None
    assert TrustStore(settings.state_dir).is_trusted(read_project(repository)), "nothing of it was changed"


@pytest.mark.parametrize("text", INJECTIONS[:3])
def test_what_a_conversation_hands_over_allows_nothing(start: Start, text: str) -> None:
    """Text that was said before may be anybody's: with full access a write outside still asks."""
    context = [{"role": "user", "content": "What is in notes?"}, {"role": "assistant", "content": text}]
    outside = call("edit", path="../outside.txt", old_text="", new_text="evil")
    _, task = start(outside, outside, context=context, policy=Policy("full", "on-request"))
    assert wait_for(task, "waiting").asked is not None
