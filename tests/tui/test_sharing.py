"""The terminal on a conversation that another face has open too: a real socket, a scripted model."""

from pathlib import Path

from tests.agent.conversation.talking import Face
from tests.server.serving import script
from tests.tui.conftest import LONG, REPLIES, Open
from vivace.agent.conversation.sharing.opening import open_or_attach
from vivace.agent.events.turn import TurnEnded
from vivace.config import Settings


async def test_the_terminal_joins_and_goes_on_alone(
    open_screen: Open, served: Settings, tmp_path: Path, folder: Path
) -> None:
    """`/resume` joins a conversation that is open elsewhere, and holds it when that face ends."""
    model = script(tmp_path, replies=REPLIES, step_ms=1, context_tokens=20000)
    face = Face()
    talk = await open_or_attach(served.having(model=model), face, folder, name="browser")
    await talk.send("What is here?")
    async with open_screen(resume=talk.id) as screen:
        await screen.sees("What is here?", "also open in browser")
        await screen.ready()
        await talk.send("And a snippet?")
        await screen.sees("And a snippet?", "Done.")
        await screen.say("Who is there?")
        await face.until(lambda: len(face.seen(TurnEnded)) == 3)
        assert [turn.text for turn in talk.turns] == ["What is here?", "And a snippet?", "Who is there?"]
        await talk.close()
        await screen.sees("The conversation is held here now")
        assert "also open" not in screen.status
        await screen.ready()
        await screen.say("Still there?")
        await screen.sees("Still there?")
        await screen.idle()
        assert [turn.status for turn in screen.app.session.talk.turns] == ["completed"] * 4


async def test_another_face_joins_the_terminal(open_screen: Open, served: Settings) -> None:
    """What it says is a turn on the screen, it steers what the terminal began, and the footer names it."""
    async with open_screen(step_ms=3) as screen:
        await screen.ready()
        await screen.say("Tell me something long")
        await screen.sees("3 bottles")
        face, session = Face(), screen.app.session
        talk = await open_or_attach(served, face, session.talk.id, name="browser")
        talk.follow()
        await screen.sees("also open in browser")
        await face.until(lambda: "3 bottles" in face.said)
        await talk.steer("Show a snippet instead")
        await screen.sees("Show a snippet instead", "Done.")
        await screen.idle()
        assert (await talk.send("Who is there?")).status == "completed"
        await screen.sees("› Who is there?")
        assert LONG not in face.said
        await talk.close()
        await screen.is_gone("also open in browser")
