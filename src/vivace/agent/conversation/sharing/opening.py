"""Begin a conversation, take one up again, or join one that another process holds.

Owns which of these it is, and who goes on when the process that held a conversation has ended: whoever gets
the lock of its transcript holds it, and the others join that one. Does not own what a conversation does.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from vivace.agent.conversation.connection import Connection
from vivace.agent.conversation.conversation import Conversation
from vivace.agent.conversation.opening import conversations_dir, open_conversation, resume_conversation
from vivace.agent.conversation.sharing.attached import AttachedConversation, attach
from vivace.agent.conversation.sharing.holder_connection import connect_to_holder
from vivace.agent.conversation.sharing.places import socket_of
from vivace.agent.conversation.talk import Talk
from vivace.agent.conversation.transcript.file import file_of
from vivace.agent.edits.apply.files import DISK, Files
from vivace.agent.edits.conflict import Conflict, Resolution
from vivace.agent.edits.proposal import Decision, Proposal
from vivace.agent.events.base import Failed
from vivace.agent.events.every import AgentEvent
from vivace.agent.presenter import Presenter
from vivace.config import Settings
from vivace.errors import ConversationBusy, VivaceError

OnMoved = Callable[[Talk], None]
SETTLE_S = 3.0  # for a holder that begins or ends to open its socket or to release the lock
RETRY_S = 0.03


@dataclass(frozen=True)
class Opening:
    """How a face opens its conversation, now and whenever it moves."""

    settings: Settings
    face: Presenter
    name: str
    connection: Connection | None
    files: Files
    on_moved: OnMoved

    async def begin(self, folder: Path) -> Conversation:
        talk = open_conversation(self.settings, folder, self.face, self.connection, files=self.files)
        await talk.share(self.name)
        return talk

    async def open(self, conversation_id: str) -> Talk:
        """Hold the conversation if nobody does, or join it."""
        deadline_s = time.monotonic() + SETTLE_S
        while True:
            try:
                return await self._hold(conversation_id)
            except ConversationBusy as error:
                busy = error
            with contextlib.suppress(EOFError, OSError, ValueError, TimeoutError):
                return await self._join(conversation_id)
            if time.monotonic() > deadline_s:
                raise busy
            await asyncio.sleep(RETRY_S)

    async def _hold(self, conversation_id: str) -> Conversation:
        talk = resume_conversation(
            self.settings, conversation_id, self.face, self.connection, files=self.files
        )
        try:
            await talk.share(self.name)
        except asyncio.CancelledError:
            await talk.close()
            raise
        return talk

    async def _join(self, conversation_id: str) -> AttachedConversation:
        path = socket_of(file_of(conversations_dir(self.settings), conversation_id))
        connection = self.connection or Connection(self.settings)
        return await attach(path, self.name, self.face, connection, self._lost)

    def _lost(self, talk: AttachedConversation) -> None:
        """Go on without the process that held the conversation."""
        talk.moving = asyncio.create_task(self._move(talk))

    async def _move(self, before: AttachedConversation) -> None:
        try:
            settings = before.connection.settings.having(model=before.model)
            opening = replace(self, connection=before.connection, settings=settings)
            talk = await opening.open(before.id)
        except VivaceError as error:
            if not before.is_closed:
                self.face.show(Failed.of(error))
            return
        if before.is_closed:
            await talk.close()
            return
        if talk.is_held:
            talk.use(before.options)
        self.on_moved(talk)


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
    opening = Opening(settings, face, name, connection, files, on_moved)
    return await (opening.begin(place) if isinstance(place, Path) else opening.open(place))


async def open_in(transcript: Path) -> tuple[str, ...]:
    """Return the names of the faces that have this conversation open; nothing if there are none."""
    with contextlib.suppress(EOFError, OSError, ValueError, TimeoutError, ConversationBusy):
        holder, welcome = await connect_to_holder(socket_of(transcript), "list", is_asking=True)
        await holder.close()
        return welcome.faces
    return ()


class _Onlooker:
    """A face that shows nothing, and leaves every question to the others."""

    def show(self, event: AgentEvent) -> None:
        pass

    async def decide(self, proposal: Proposal) -> Decision:
        del proposal
        await asyncio.Event().wait()
        raise AssertionError("until it is cancelled")

    async def resolve(self, conflict: Conflict) -> Resolution:
        del conflict
        await asyncio.Event().wait()
        raise AssertionError("until it is cancelled")


async def rename_anywhere(settings: Settings, conversation_id: str, title: str) -> None:
    """Give a conversation a name, whether somebody has it open or not."""
    talk = await open_or_attach(settings, _Onlooker(), conversation_id, name="command")
    try:
        talk.follow()
        await talk.rename(title)
    finally:
        await talk.close()
