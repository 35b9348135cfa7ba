"""A conversation that another program has open: the browser joins it, and both see the same."""

import asyncio
from pathlib import Path

import pytest

from tests.agent.conversation.talking import Face
from tests.web.facing import facing
from vivace.agent.conversation.connection import Connection
from vivace.agent.conversation.sharing.opening import open_or_attach
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
