"""Several faces of one conversation, for tests: each is opened by name, and all must agree in the end."""

from collections.abc import Callable
from pathlib import Path

from tests.agent.conversation.talking import Face
from vivace.agent.conversation.sharing.opening import open_or_attach
from vivace.agent.conversation.talk import Talk
from vivace.config import Settings

Pair = tuple[Talk, Talk]


class Shared:
    """Opens faces of one conversation, each with its own name."""

    def __init__(self, settings: Settings, folder: Path) -> None:
        self.settings, self.folder = settings, folder
        self.talks: list[Talk] = []

    async def open(self, face: Face, place: Path | str, name: str) -> Talk:
        talk = await open_or_attach(self.settings, face, place, name=name, on_moved=face.moved)
        face.talk = talk
        talk.follow()
        self.talks.append(talk)
        return talk

    async def pair(self, one: Face, other: Face) -> Pair:
        """Return a conversation as its holder has it, and as an attached face has it."""
        held = await self.open(one, self.folder, "terminal")
        held.note("It begins.")  # without a line there is no file
        return held, await self.open(other, held.id, "browser")


Share = Callable[..., Shared]


def state(talk: Talk) -> tuple[object, ...]:
    """What two faces must agree on."""
    history = talk.history
    return (history.turns, history.queue, history.notes, history.model, history.title, talk.records)


async def agree(held: Talk, attached: Talk, face: Face) -> None:
    """Wait until the attached face has seen all that the holder has."""
    await face.until(lambda: len(attached.records) >= len(held.records) and state(attached) == state(held))
