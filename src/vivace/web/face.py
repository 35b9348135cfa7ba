"""One face: its requests in, answers and events out.

Owns the connection, and that every request gets exactly one answer, whatever happens. When too much waits for
a face it is let go; it may come again and open its conversations where it was. Does not own what is answered
(`operations`).
"""

import asyncio
import contextlib
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from vivace.errors import ConversationNotFound, QuestionGone, VivaceError
from vivace.protocol.face_frames import HEAD_BYTES, BadFrame, framed, length_of
from vivace.web.edit_prefill import EditReading
from vivace.web.live_conversation import LiveConversation
from vivace.web.live_edit import LiveEdit
from vivace.web.messages.answers import Ok, Problem, Refused
from vivace.web.messages.events import AnyEvent, EventFrame
from vivace.web.messages.request import Request
from vivace.web.messages.requests import decode_request
from vivace.web.operations.table import answer
from vivace.web.outbox import REST_S, Outbox, TooSlow

if TYPE_CHECKING:
    from vivace.web.host import Host

MAX_REQUESTS = 64  # under way at once; a face that has more is not read from

log = logging.getLogger(__name__)

_encode = msgspec.json.Encoder().encode


class _Numbered(msgspec.Struct):
    """As much of a request as is needed to refuse it."""

    id: int


class Face:
    def __init__(
        self, host: "Host", folder: Path, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self.host, self.folder, self.name = host, folder, "browser"
        self.conversations: dict[str, LiveConversation] = {}
        self.edits: dict[str, LiveEdit] = {}  # that run
        self.reading: EditReading | None = None  # ahead, for the next edit
        self.watched: dict[str, str] = {}  # digests of files, as the face knows them
        self.is_watching = False
        self._reader, self._writer = reader, writer
        self._outbox = Outbox()
        self._tasks: set[asyncio.Task[None]] = set()
        self._edit_count = 0
        self._room = asyncio.Semaphore(MAX_REQUESTS)

    def conversation(self, conversation_id: str) -> LiveConversation:
        """Return a conversation that this face has open."""
        live = self.conversations.get(conversation_id)
        if live is None:
            raise ConversationNotFound(
                f"The conversation {conversation_id!r} is not open here.", "Send conversation.open first."
            )
        return live

    def edit(self, name: str) -> LiveEdit:
        """Return an edit of this face that runs."""
        edit = self.edits.get(name)
        if edit is None:
            raise QuestionGone(f"The edit {name!r} is over.", "Nothing was changed by this request.")
        return edit

    def add_edit(self, edit: LiveEdit) -> str:
        """Let an edit run as long as the face is here. Return its name."""
        self._edit_count += 1
        name = f"e{self._edit_count}"
        edit.broadcast.edit = name
        edit.broadcast.listeners[self] = None
        self.edits[name] = edit
        self.spawn(self._run_edit(name, edit))
        return name

    async def _run_edit(self, name: str, edit: LiveEdit) -> None:
        try:
            await edit.run()
        finally:
            del self.edits[name]

    async def stop_reading(self) -> None:
        """Read no further ahead: the edit begins, or the face has gone."""
        reading, self.reading = self.reading, None
        if reading is not None:
            await reading.close()

    def hear(self, frame: EventFrame) -> None:
        """Let an event be sent soon."""
        try:
            self._outbox.put(frame)
        except TooSlow:
            log.warning("a face takes nothing; it is let go")
            self._writer.transport.abort()

    def tell(self, event: AnyEvent) -> None:
        """Tell something that belongs to no conversation."""
        self.hear(EventFrame(event=event))

    async def run(self) -> None:
        """Serve the face until it goes away."""
        sending = asyncio.create_task(self._send())
        try:
            while True:
                data = await self._reader.readexactly(length_of(await self._reader.readexactly(HEAD_BYTES)))
                await self._room.acquire()
                self._take(data)
        except (asyncio.IncompleteReadError, ConnectionError, BadFrame):
            pass
        finally:
            sending.cancel()
            for live in self.conversations.values():
                live.leave(self)
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(sending, *self._tasks, self.stop_reading(), return_exceptions=True)
            self._writer.close()

    def spawn(self, work: Any) -> None:
        """Do something as long as the face is here."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _take(self, data: bytes) -> None:
        try:
            request = decode_request(data)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            self._room.release()
            self._reply(Refused(_id_in(data), Problem(code="bad_request", message=str(error))))
            return
        self.spawn(self._answer(request))

    async def _answer(self, request: Request) -> None:
        """Answer one request. This is a boundary: errors are logged and answered."""
        try:
            given = await answer(self, request)
            self._reply(Ok(request.id, {} if given is None else given))
        except VivaceError as error:
            problem = Problem(code=error.code, message=error.message, hint=error.hint)
            self._reply(Refused(request.id, problem))
        except Exception as error:
            log.exception("%s failed", type(request).__name__)
            message = f"Something of ours broke: {type(error).__name__}."
            self._reply(Refused(request.id, Problem(code="server_error", message=message)))
        finally:
            self._room.release()

    def _reply(self, reply: Ok | Refused) -> None:
        with contextlib.suppress(TooSlow):  # then it is let go by the next event
            self._outbox.put(_encode(reply))

    async def _send(self) -> None:
        with contextlib.suppress(ConnectionError):
            while True:
                for frame in await self._outbox.take():
                    self._writer.write(framed(frame))
                await self._writer.drain()
                await asyncio.sleep(REST_S)


def _id_in(data: bytes) -> int:
    try:
        return msgspec.json.decode(data, type=_Numbered).id
    except (msgspec.DecodeError, UnicodeDecodeError):
        return 0
