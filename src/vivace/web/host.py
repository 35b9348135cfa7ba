"""The face host: which faces are there, which conversations are open, and when it may end.

Owns the socket that the server connects to, and every open conversation: one each, however many faces look at
it. A conversation that nobody looks at and in which nothing runs is closed after a moment; with nothing open
for some minutes the host ends, and the server starts another one when a face comes. A child of the server, it
never starts one: it ends with its own. Does not own what faces may do (`operations`).
"""

import asyncio
import logging
import os
from pathlib import Path

import msgspec

from vivace.agent.conversation.connection import Connection
from vivace.agent.conversation.sharing.opening import open_or_attach
from vivace.agent.trust.settings import with_project_settings
from vivace.config import Settings
from vivace.errors import VivaceError
from vivace.protocol.face_frames import HEAD_BYTES, Arrival, BadFrame, length_of
from vivace.web.broadcast import Broadcast
from vivace.web.buffers import Buffers
from vivace.web.face import Face
from vivace.web.live_conversation import LiveConversation

IDLE_S = 300.0  # without faces and without a turn: the host ends
GRACE_S = 5.0  # a page that is loaded anew finds its conversation open

log = logging.getLogger(__name__)


class Host:
    def __init__(self, settings: Settings, *, idle_s: float = IDLE_S, grace_s: float = GRACE_S) -> None:
        self.settings = settings
        self.faces: set[Face] = set()
        self.buffers = Buffers()
        self._conversations: dict[str, LiveConversation] = {}
        self._opening = asyncio.Lock()
        self._changed = asyncio.Event()  # somebody came or went
        self._idle_s, self._grace_s = idle_s, grace_s

    # ---- faces --------------------------------------------------------------------------------------

    async def serve(self, socket_file: Path) -> None:
        """Listen until nobody was here for some minutes."""
        before = os.umask(0o177)  # the socket is for this user alone, from its first moment
        try:
            server = await asyncio.start_unix_server(self._arrived, str(socket_file))
        finally:
            os.umask(before)
        try:
            await self._run()
        finally:
            server.close()
            await self.close()
            await asyncio.to_thread(socket_file.unlink, missing_ok=True)

    async def _arrived(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readexactly(length_of(await reader.readexactly(HEAD_BYTES)))
            arrival = msgspec.json.decode(head, type=Arrival)
        except (asyncio.IncompleteReadError, ConnectionError, BadFrame, msgspec.DecodeError):
            writer.close()
            return
        folder = Path(arrival.folder) if arrival.folder else Path.home()
        face = Face(self, folder, reader, writer)
        self.faces.add(face)
        self.look_around()
        try:
            await face.run()
        finally:
            self.faces.discard(face)
            self.buffers.forget(face)
            self.look_around()

    # ---- conversations ------------------------------------------------------------------------------

    async def open(self, conversation_id: str, folder: Path, name: str) -> LiveConversation:
        """Return the conversation with this id, opened if it was not; "" begins a new one in the folder.

        `name` is what programs elsewhere that have it open call this host.
        """
        async with self._opening:
            if live := self._conversations.get(conversation_id):
                return live
            broadcast = Broadcast()
            settings = await asyncio.to_thread(_with_project, self.settings, folder)
            live = LiveConversation(broadcast)
            place = conversation_id or folder
            live.use_talk(
                await open_or_attach(
                    settings,
                    broadcast,
                    place,
                    name=name,
                    connection=Connection(settings, starts_server=False),
                    files=self.buffers.files,
                    on_moved=live.moved,
                )
            )
            self._conversations[live.id] = live
            return live

    def find(self, conversation_id: str) -> LiveConversation | None:
        """Return the conversation if it is open here."""
        return self._conversations.get(conversation_id)

    async def let_go(self, conversation_id: str) -> None:
        """Close a conversation."""
        if live := self._conversations.pop(conversation_id, None):
            await live.close()

    def look_around(self) -> None:
        """Somebody came or went: see what may be closed."""
        self._changed.set()

    async def _run(self) -> None:
        """Close what is not used any more. Return when nothing is left for some minutes."""
        while True:
            self._changed.clear()
            unused = [live for live in self._conversations.values() if not live.is_used]
            is_idle = not self.faces and not self._conversations
            wait_s = self._idle_s if is_idle else self._grace_s
            try:
                async with asyncio.timeout(wait_s):
                    await self._changed.wait()
            except TimeoutError:
                if is_idle and not self.faces:
                    return log.info("no face was here for %.0f s; leaving", self._idle_s)
                for live in unused:
                    if not live.is_used:
                        await self.let_go(live.id)

    async def close(self) -> None:
        """Close all conversations."""
        for conversation_id in list(self._conversations):
            await self.let_go(conversation_id)


def _with_project(settings: Settings, folder: Path) -> Settings:
    """Return the settings with what a trusted project adds. A file that is wrong is passed over."""
    try:
        return with_project_settings(settings, folder)
    except VivaceError:
        return settings
