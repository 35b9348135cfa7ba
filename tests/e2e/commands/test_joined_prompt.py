"""`vivace -p` while it runs: other faces join its conversation, and go on with it when it has ended."""

import asyncio
import json
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

from tests.agent.conversation.talking import Face
from tests.e2e.terminal import DEADLINE_S, Home
from tests.web.facing import facing
from vivace.agent.conversation.sharing.opening import open_or_attach
from vivace.agent.conversation.talk import Talk
from vivace.client import warm
from vivace.config import Settings

LONG = "".join(f"{number} bottles of beer. " for number in range(70)).rstrip()
REPLIES = {"And then": "I go on.", "French": "Bonjour.", "long": LONG}


@contextmanager
def answering(home: Home, *options: str) -> "Iterator[tuple[subprocess.Popen[str], str]]":
    """Start a long answer. Yield the process and the conversation's id, once it writes."""
    home.script(REPLIES, step_ms=10)
    with home.start("-p", "Tell me something long", "--output-format", "stream-json", *options) as process:
        assert process.stdout is not None
        conversation = json.loads(process.stdout.readline())["id"]
        while json.loads(process.stdout.readline())["type"] != "answer.delta":
            pass
        yield process, conversation


def settings_of(home: Home) -> Settings:
    return Settings(
        cache_dir=home.folder / "cache",
        state_dir=home.folder / "state",
        port=0,
        model=home.model,
        allow_scripted=True,
        threads=1,
    )


@asynccontextmanager
async def joined(home: Home, conversation: str, face: Face) -> AsyncIterator[Talk]:
    """Open the conversation as a terminal does."""
    talk = await open_or_attach(settings_of(home), face, conversation, name="terminal", on_moved=face.moved)
    face.talk = talk
    talk.follow()
    try:
        yield talk
    finally:
        await face.talk.close()


async def test_a_terminal_steers_the_command_and_goes_on(home: Home) -> None:
    """The command answers what was steered and prints it; the terminal holds the conversation afterwards."""
    face = Face()
    with answering(home) as (process, conversation):
        async with joined(home, conversation, face) as talk:
            assert (talk.is_held, talk.others) == (False, ("command",))
            await talk.steer("in French")
            printed, _ = await asyncio.to_thread(process.communicate, timeout=DEADLINE_S)
            result = json.loads(printed.splitlines()[-1])
            assert (process.returncode, result["status"]) == (0, "completed")
            assert result["text"].endswith("Bonjour.")
            await face.until(lambda: face.talk is not talk)
            assert face.talk is not None
            assert face.talk.is_held
            assert (await face.talk.send("And then?")).answer == "I go on."


async def test_the_browser_joins_the_command(home: Home) -> None:
    """It sees the turn that runs, stops it, and says the next message when the command has ended."""
    home.script(REPLIES, step_ms=10)
    address = await asyncio.to_thread(warm.ensure_server, settings_of(home))
    async with facing(address) as face:
        await face.ask("hello", face="browser")
        with answering(home) as (process, conversation):
            await face.ask("conversation.open", conversation=conversation)
            await face.event("answer.delta")
            await face.ask("conversation.stop", conversation=conversation)
            await asyncio.to_thread(process.communicate, timeout=DEADLINE_S)
        await face.event("conversation.lost")
        again = await face.ask("conversation.open", conversation=conversation)
        (ended,) = [each for each in again["records"] if each["type"] == "turn.ended"]
        assert ended["status"] == "stopped"
        await face.ask("conversation.send", conversation=conversation, text="And then?")
        await face.event("turn.ended", turn=2)
        assert face.text().endswith("I go on.")


async def test_a_queued_message_is_printed_too(home: Home) -> None:
    """What another face queues is the command's next turn, and stderr says whose it was."""
    home.script(REPLIES, step_ms=10)
    with home.start("-p", "Tell me something long") as process:
        assert process.stdout is not None
        shown = process.stdout.read(20)
        (file,) = (home.folder / "state" / "conversations").glob("*.jsonl")
        face = Face()
        async with joined(home, file.stem, face) as talk:
            talk.queue.add("And then?")
            out, err = await asyncio.to_thread(process.communicate, timeout=DEADLINE_S)
    assert (process.returncode, shown + out) == (0, f"{LONG}\nI go on.\n")
    assert "Queued by another face: And then?" in err
