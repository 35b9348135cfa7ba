"""A connection to the process that holds a conversation, as a face opens it.

Owns connecting, the first two messages, and that a holder of another user or version is refused. Does not own
what is said afterwards (`attached`).
"""

import asyncio
from pathlib import Path

from vivace.agent.conversation.sharing.places import is_same_user
from vivace.agent.conversation.sharing.wire import forms, frames, from_face, from_holder
from vivace.errors import ConversationBusy

JOIN_S = 30.0  # for a holder that is busy to send its records


class HolderConnection:
    """A connection to the holder of a conversation."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    async def receive(self) -> from_holder.FromHolder:
        """Return the next message. Raise `EOFError` at the end, `ValueError` for what is no message."""
        received: from_holder.FromHolder = frames.decode_from_holder(await frames.read_frame(self._reader))
        return received

    def send(self, message: forms.Message) -> None:
        """Send a message, unless the holder is gone: that is told where messages are received."""
        if not self._writer.is_closing():
            self._writer.write(frames.frame(message))

    async def close(self) -> None:
        """End the connection. No effect the second time."""
        self._writer.close()
        await asyncio.sleep(0)  # the transport lets go of its socket in the next round of the loop


async def connect_to_holder(
    path: Path, name: str, *, is_asking: bool = False
) -> tuple[HolderConnection, from_holder.Welcome]:
    """Connect to a holder. Raise `OSError`, `EOFError` or `ValueError` if none answers there."""
    reader, writer = await asyncio.open_unix_connection(path)
    connection = HolderConnection(reader, writer)
    try:
        if not is_same_user(writer.get_extra_info("socket")):
            raise PermissionError(f"{path} belongs to another user")
        connection.send(from_face.Hello(version=frames.VERSION, name=name, is_asking=is_asking))
        async with asyncio.timeout(JOIN_S):
            welcome = await connection.receive()
        if not isinstance(welcome, from_holder.Welcome):
            raise ValueError("no welcome")
        if welcome.version != frames.VERSION:
            raise ConversationBusy(
                "The conversation is open in another version of vivace.", "Close it there."
            )
    except BaseException:
        await connection.close()
        raise
    return connection, welcome
