"""A conversation that another program has open: the browser joins it, and both see the same."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from tests.agent.conversation.talking import Face
from tests.agent.loop.working import call
from tests.server.serving import script
from tests.web.facing import RefusedRequest, facing
from vivace.agent.conversation.connection import Connection
from vivace.agent.conversation.sharing.opening import open_or_attach
from vivace.agent.events.task import ApprovalAsked
from vivace.agent.loop.calls import Approval
from vivace.agent.permissions.modes import mode_named
from vivace.client.warm import ServerAddress
from vivace.config import Settings

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_a_terminals_conversation_is_joined(
    address: ServerAddress, served: Settings, folder: Path
) -> None:
    """What was said there is in the snapshot; a message from the browser is a turn of the terminal's too."""
    terminal = Face()
    talk = await open_or_attach(served, terminal, folder, name="terminal", connection=Connection(served))
    try:
        await talk.send("What is this?")
        async with facing(address) as face:
            await face.ask("hello", face="editor")
            snapshot = await face.ask("conversation.open", conversation=talk.id)
            said = [each["text"] for each in snapshot["records"] if each["type"] == "answer.delta"]
            assert said == ["Hello there."]
            await face.ready(talk.id)
            await face.ask("conversation.send", conversation=talk.id, text="And what is that?")
            await face.event("turn.ended", turn=2)
            async with asyncio.timeout(60):
                await talk.wait_idle()
            assert [turn.text for turn in talk.turns] == ["What is this?", "And what is that?"]
            assert talk.others == ("editor",)
            await talk.rename("Ours")
            await face.event("live.state", title="Ours", faces=2)
            heard = len(face.heard)
            await talk.close()
            await face.event("conversation.lost", heard)
            again = await face.ask("conversation.open", conversation=talk.id)
            assert again["is_whole"]
            assert sum(each["type"] == "turn.started" for each in again["records"]) == 2
            await face.ask("conversation.send", conversation=talk.id, text="And who are you?")
            await face.event("turn.ended", heard, turn=3)
    finally:
        await talk.close()


class AskedFace(Face):
    """A face that is asked about calls: it answers, or leaves the answer to another one."""

    def __init__(self, answer: Approval | None = None) -> None:
        super().__init__()
        self.answer = answer
        self.asked: list[ApprovalAsked] = []
        self.closed = 0  # questions that somebody else answered

    async def approve(self, asked: ApprovalAsked) -> Approval:
        self.asked.append(asked)
        if self.answer is not None:
            return replace(self.answer, digest=asked.digest)
        try:
            await asyncio.Event().wait()
        finally:
            self.closed += 1
        raise AssertionError


@pytest.fixture
def with_tools(served: Settings, tmp_path: Path, folder: Path) -> Settings:
    """A model that changes `a.py` with a tool, twice, and says so."""
    (folder / "a.py").write_text("x = 1\n")
    there = call("edit", path="a.py", old_text="x = 1", new_text="x = 2")
    again = call("edit", path="a.py", old_text="x = 2", new_text="x = 3")
    steps = [there, again, "Done."]
    model = script(tmp_path, "tools", steps=steps, replies={"": "Done."}, step_ms=1, context_tokens=20000)
    return served.having(model=model)


async def test_the_browser_answers_for_a_terminal(
    address: ServerAddress, with_tools: Settings, folder: Path
) -> None:
    """A call in a terminal's conversation is allowed or refused in the browser, and no longer asked there."""
    terminal = AskedFace()
    connection = Connection(with_tools)
    talk = await open_or_attach(with_tools, terminal, folder, name="terminal", connection=connection)
    talk.follow()
    talk.policy = mode_named("ask").policy
    try:
        talk.note("It begins.")  # without a line there is no file
        async with facing(address) as face:
            await face.ask("hello", face="browser")
            await face.ask("conversation.open", conversation=talk.id)
            sent = asyncio.create_task(talk.send("make x three"))
            first = await face.event("question", kind="call")
            assert (first["tool"], first["title"]) == ("edit", "a.py")
            given = {"conversation": talk.id, "question": first["question"], "digest": first["digest"]}
            await face.ask("conversation.approve", **given, is_allowed=True)
            await face.event("question.closed", question=first["question"])
            second = await face.event("question", len(face.heard) - 1, kind="call")
            given |= {"question": second["question"], "digest": second["digest"]}
            await face.ask("conversation.approve", **given, is_allowed=False, reason="two is enough")
            assert (await sent).refused_calls == 1
            assert (folder / "a.py").read_text() == "x = 2\n"
            assert (len(terminal.asked), terminal.closed) == (2, 2)
            with pytest.raises(RefusedRequest) as refused:
                await face.ask("conversation.approve", **given, is_allowed=True)
            assert refused.value.code == "gone"
    finally:
        await talk.close()


async def test_a_terminal_answers_for_the_browser(
    address: ServerAddress, served: Settings, with_tools: Settings, folder: Path
) -> None:
    """A call in the browser's conversation is allowed in a terminal that has joined it."""
    async with facing(address) as face:
        await face.ask("hello", folder=str(folder))
        talk_id = (await face.ask("conversation.open"))["conversation"]
        await face.ask("conversation.set", conversation=talk_id, model=with_tools.model, policy="ask")
        await face.event("live.state", model=with_tools.model, activity=None)  # chosen while it starts
        await face.ask("conversation.note", conversation=talk_id, text="It begins.")
        terminal = AskedFace(Approval(is_allowed=True))
        talk = await open_or_attach(served, terminal, talk_id, name="terminal", connection=Connection(served))
        talk.follow()
        try:
            await face.ask("conversation.send", conversation=talk_id, text="make x three")
            question = await face.event("question", kind="call")
            await face.event("question.closed", question=question["question"])
            await face.event("turn.ended")
            assert (folder / "a.py").read_text() == "x = 3\n"
            assert len(terminal.asked) == 2
        finally:
            await talk.close()
