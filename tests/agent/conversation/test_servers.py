"""MCP servers of a conversation: started once, used by every turn, and only those that are trusted."""

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.agent.conversation.talking import Face
from tests.agent.loop.working import call
from tests.agent.mcp import misbehaving
from vivace.agent.conversation.conversation import Conversation
from vivace.agent.events.task import ApprovalAsked, CallEnded, ServersOpened
from vivace.agent.events.turn import TaskStepped
from vivace.agent.loop.calls import Approval
from vivace.agent.permissions.policy import Policy
from vivace.agent.trust.project import read_project
from vivace.agent.trust.store import TrustStore

pytest.importorskip("mcp", reason="needs the extra mcp")

Begin = Callable[..., Conversation]
ECHO = call("bad__echo", text="from the server")


class AnsweringFace(Face):
    """A face that says yes to every call."""

    async def approve(self, asked: ApprovalAsked) -> Approval:
        return Approval(is_allowed=True, digest=asked.digest)

    def steps(self, kind: type) -> list[object]:
        return [event.step for event in self.seen(TaskStepped) if isinstance(event.step, kind)]


@pytest.fixture
def face() -> AnsweringFace:
    return AnsweringFace()


@pytest.fixture(autouse=True)
def project(folder: Path) -> None:
    server = {"command": sys.executable, "args": ["-S", misbehaving.__file__]}
    (folder / ".mcp.json").write_text(json.dumps({"mcpServers": {"bad": server}}))


def pids(folder: Path) -> list[int]:
    started = folder / "started"
    return [int(line) for line in started.read_text().split()] if started.exists() else []


async def test_a_server_stays_for_the_whole_conversation(
    begin: Begin, folder: Path, face: AnsweringFace
) -> None:
    """Not trusted it is not started, and that is said once; then two turns share one process."""
    talk = begin(steps=["Without.", "Without.", ECHO, "One.", ECHO, "Two."])
    for _ in range(2):
        await talk.send("do it")
    (told,) = face.steps(ServersOpened)
    assert isinstance(told, ServersOpened)
    assert (told.servers, "vivace trust" in told.problems[0]) == ((), True)
    assert pids(folder) == []
    TrustStore(talk.connection.settings.state_dir).trust(read_project(folder))
    for _ in range(2):
        await talk.send("do it")
    assert [each.servers for each in face.steps(ServersOpened)] == [(), ("bad",)]  # type: ignore[attr-defined]
    assert [each.status for each in face.steps(CallEnded)] == ["done", "done"]  # type: ignore[attr-defined]
    (pid,) = pids(folder)
    os.kill(pid, 0)
    await talk.close()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


async def test_none_is_started_where_nobody_may_be_asked(
    begin: Begin, folder: Path, face: AnsweringFace
) -> None:
    """No call of it would be allowed."""
    talk = begin(steps=["Done."])
    talk.policy = Policy("workspace-write", "never")
    TrustStore(talk.connection.settings.state_dir).trust(read_project(folder))
    await talk.send("do it")
    assert (pids(folder), face.steps(ServersOpened)) == ([], [])
