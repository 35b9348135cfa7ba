"""The process that holds a conversation: other faces connect to its socket, are shown all, and do all.

Owns the socket, one link for each face, and how a command becomes a call of the conversation. A face that
reads too slowly, or says what is no message, loses its connection and nothing else. Does not own who is told
what (`faces`).
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from vivace.agent.conversation.sharing import messages
from vivace.agent.conversation.sharing.event_codec import (
    EventDecoder,
    EventEncoder,
    decision_of,
    resolution_of,
)
from vivace.agent.conversation.sharing.faces import Faces, Question
from vivace.agent.conversation.sharing.places import is_same_user, make_room, socket_of
from vivace.agent.conversation.talk import Talk
from vivace.agent.edits.conflict import Conflict
from vivace.agent.edits.proposal import Proposal
from vivace.agent.events import AgentEvent
from vivace.agent.loop.calls import Approval
from vivace.errors import UsageError, VivaceError

log = logging.getLogger(__name__)

MAX_LINKS = 16
MAX_COMMANDS = 64  # of one face at once
MAX_BEHIND_BYTES = 16 * 1024 * 1024  # that a face has not read yet; then it is dropped
PrefillDraft = Callable[[str, Sequence[str] | None], Awaitable[None]]  # of a face that is attached
HELLO_S = 10.0  # for the first message of a connection


class FaceLink:
    """One attached face: what it is sent, in order, as fast as it reads."""

    def __init__(self, name: str, writer: asyncio.StreamWriter) -> None:
        self.name = name
        self._writer = writer
        self._encoder = EventEncoder()
        self._outbox: list[bytes] = []
        self._behind_bytes = 0
        self._wake, self._drained = asyncio.Event(), asyncio.Event()
        self._later: list[Callable[[], None]] | None = []  # what happens while it joins
        self._sending = asyncio.create_task(self._send())
        self.commands: dict[int, asyncio.Task[None]] = {}
        self.pending = 0  # commands that run

    # ---- a link of `Faces` ------------------------------------------------------------------------

    def show(self, event: AgentEvent) -> None:
        self._do(lambda: self.show_now(event))

    def ask(self, question: Question) -> None:
        self._do(lambda: self.ask_now(question))

    def close_question(self, question: Question) -> None:
        self._do(lambda: self.put(messages.Closed(question=question.id)))

    def at_rest(self) -> None:
        self._do(self._forget)

    def _do(self, action: Callable[[], None]) -> None:
        if self._later is None:
            action()
        else:
            self._later.append(action)

    def show_now(self, event: AgentEvent) -> None:
        for message in self._encoder.messages(event):
            self.put(message)

    def ask_now(self, question: Question) -> None:
        known: list[messages.Message] = []
        about = question.about
        if isinstance(about, Proposal):
            asked = messages.Asked(question=question.id, proposal=self._encoder.proposal(about, known))
        elif isinstance(about, Conflict):
            asked = messages.Asked(question=question.id, conflict=self._encoder.conflict(about, known))
        else:
            asked = messages.Asked(question=question.id, call=about)
        for message in (*known, asked):
            self.put(message)

    def _forget(self) -> None:
        self._encoder.forget()
        self.put(messages.AtRest())

    def begin(self) -> None:
        """Send what has happened while the face joined, and from now on everything at once."""
        later, self._later = self._later or [], None
        for action in later:
            action()

    def forget_command(self, number: int, _: object) -> None:
        self.commands.pop(number, None)

    # ---- the socket -------------------------------------------------------------------------------

    def put(self, message: messages.Message) -> None:
        """Send this next. A face that is too far behind is dropped: it can attach again."""
        data = messages.frame(message)
        self._outbox.append(data)
        self._behind_bytes += len(data)
        self._drained.clear()
        self._wake.set()
        if self._behind_bytes > MAX_BEHIND_BYTES and len(self._outbox) > 1:
            self._writer.transport.abort()

    async def drained(self) -> None:
        """Return when the face was sent everything, or is gone."""
        if not self._sending.done():
            waiting = asyncio.create_task(self._drained.wait())
            await asyncio.wait({waiting, self._sending}, return_when=asyncio.FIRST_COMPLETED)
            waiting.cancel()

    async def _send(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                await self._wake.wait()
                self._wake.clear()
                data, self._outbox = b"".join(self._outbox), []
                self._writer.write(data)
                await self._writer.drain()
                self._behind_bytes -= len(data)
                if not self._outbox:
                    self._drained.set()

    async def close(self) -> None:
        """End the connection. Commands that were begun go on."""
        self._sending.cancel()
        await asyncio.gather(self._sending, return_exceptions=True)
        self._writer.close()
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()


class Holder:
    def __init__(self, talk: Talk, faces: Faces, transcript: Path, prefill: PrefillDraft) -> None:
        self._talk, self._faces, self._prefill = talk, faces, prefill
        self._path = socket_of(transcript)
        self._server: asyncio.Server | None = None
        self._is_closed = False
        self._links: set[FaceLink] = set()
        self._connections: set[asyncio.Task[None]] = set()
        self._tasks: set[asyncio.Task[None]] = set()  # commands that run; they outlive their face

    async def listen(self) -> None:
        """Let other faces of this user join. Without a place for the socket, none can."""
        try:
            make_room(self._path)
            self._server = await asyncio.start_unix_server(self._accept, self._path)
            self._path.chmod(0o600)
            if self._is_closed:  # while it began to listen
                self._server.close()
                self._path.unlink(missing_ok=True)
        except OSError as error:
            log.warning("the conversation cannot be shared: %s", error)

    async def close(self) -> None:
        """Say good-bye. Call it before another process may hold the conversation."""
        self._is_closed = True
        if self._server is None:
            return
        self._server.close()
        self._path.unlink(missing_ok=True)
        for link in list(self._links):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(1.0):
                    await link.drained()
        for task in (*self._tasks, *self._connections):
            task.cancel()
        await asyncio.gather(*self._tasks, *self._connections, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            with contextlib.suppress(EOFError, TimeoutError, ValueError, OSError, asyncio.CancelledError):
                await self._serve(reader, writer)
        finally:
            self._connections.discard(task)
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not is_same_user(writer.get_extra_info("socket")) or len(self._links) >= MAX_LINKS:
            return
        async with asyncio.timeout(HELLO_S):
            hello = messages.decode_from_face(await messages.read_frame(reader))
        if not isinstance(hello, messages.Hello):
            return
        link = FaceLink(hello.name[:40], writer)
        faces = (self._faces.name, *self._faces.others)
        link.put(messages.Welcome(version=messages.VERSION, faces=faces, options=self._talk.options))
        if hello.is_asking or hello.version != messages.VERSION:
            await link.drained()
            await link.close()
            return
        self._links.add(link)
        try:
            joining = asyncio.create_task(self._join(link))
            try:
                await self._listen_to(link, reader)
            finally:
                joining.cancel()
                await asyncio.gather(joining, return_exceptions=True)
        finally:
            self._links.discard(link)
            self._faces.remove(link)
            await link.close()

    async def _join(self, link: FaceLink) -> None:
        """Send all that was, then let it see all that is."""
        records = self._talk.records[: self._faces.rest_count]
        missed, questions = list(self._faces.since_rest), list(self._faces.questions)
        self._faces.add(link)
        for chunk in messages.record_chunks(records):
            link.put(chunk)
            await link.drained()
        link.put(messages.Joined())
        for event in missed:
            link.show_now(event)
        for question in questions:
            link.ask_now(question)
        link.begin()

    async def _listen_to(self, link: FaceLink, reader: asyncio.StreamReader) -> None:
        while True:
            command = messages.decode_from_face(await messages.read_frame(reader))
            if isinstance(command, messages.Hello) or link.pending >= MAX_COMMANDS:
                return
            if isinstance(command, messages.Answer):
                self._answer(command)
                continue
            if isinstance(command, messages.Cancel):
                if task := link.commands.get(command.command):
                    task.cancel()
                continue
            if isinstance(command, messages.Prefill):
                self._faces.typist = link
            task = asyncio.create_task(self._run(link, command))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            if isinstance(command, messages.AskBeside):  # nothing else can be cancelled
                link.commands[command.id] = task
                task.add_done_callback(partial(link.forget_command, command.id))

    def _answer(self, answer: messages.Answer) -> None:
        """Answer a question that is open. One that another face answered first is passed over."""
        question = next((each for each in self._faces.questions if each.id == answer.question), None)
        if question is None:
            return
        if isinstance(question.about, Proposal):
            question.resolve(decision_of(answer.decision))
        elif isinstance(question.about, Conflict):
            question.resolve(resolution_of(answer.resolution))
        else:
            is_kept = answer.is_kept and question.about.can_be_kept
            question.resolve(Approval(answer.is_allowed, answer.reason, is_kept))

    async def _run(self, link: FaceLink, command: messages.AnyCommand) -> None:
        """Do what a face asks for, and answer it."""
        reply: messages.Message
        link.pending += 1
        try:
            value = await self._do(command)
            reply = messages.Done(id=command.id, value=msgspec.to_builtins(value))
        except VivaceError as error:
            reply = messages.Refused(id=command.id, code=error.code, message=error.message, hint=error.hint)
        except asyncio.CancelledError:
            reply = messages.Refused(id=command.id, code="stopped", message="It was stopped.")
        except Exception as error:  # noqa: BLE001 - the boundary of another face's command
            words = f"Something of ours broke: {type(error).__name__}: {error}"
            reply = messages.Refused(id=command.id, code="server_error", message=words)
        finally:
            link.pending -= 1
        if command.id and link in self._links:
            link.put(reply)

    async def _do(self, command: messages.AnyCommand) -> Any:
        talk = self._talk
        match command:
            case messages.Send(text=text, mentions=mentions, kind=kind):
                return (await talk.send(text, mentions, kind=kind)).number
            case messages.OfferProposal(text=text, sources=sources, proposal=proposal):
                decoder = EventDecoder()
                for source in sources:
                    decoder.learn(source)
                decoder.learn(proposal)
                return (await talk.offer(text, decoder.proposal(proposal.number))).number
            case messages.Steer(text=text):
                await talk.steer(text)
            case messages.RunQueue():
                await talk.run_queue()
            case messages.Prefill(draft=draft, mentions=mentions):
                await self._prefill(draft, mentions)
            case messages.AskBeside(question=question):
                return await talk.btw(question)
            case messages.CountContext(draft=draft, mentions=mentions):
                return await talk.context(draft, mentions)
            case messages.Stop():
                talk.stop()
            case messages.AnswerNow():
                talk.answer_now()
            case _:
                return await self._change(command)
        return None

    async def _change(self, command: messages.AnyCommand) -> Any:
        talk = self._talk
        match command:
            case messages.AddNote(text=text):
                talk.note(text)
            case messages.QueueAdd(text=text, mentions=mentions):
                talk.queue.add(text, mentions)
            case messages.QueueChange(message=message, text=text, mentions=mentions):
                talk.queue.change(message, text, mentions)
            case messages.QueueRemove(message=message):
                talk.queue.remove(message)
            case messages.UseOptions(options=options):
                talk.use(options)
            case messages.UseModel(model=model):
                talk.model = model
            case messages.Rename(title=title):
                await talk.rename(title)
            case messages.Rewind(turn=turn, code=code, talk=words):
                return await talk.rewind(turn, code=code, talk=words)
            case messages.Undo():
                return await talk.undo()
            case messages.Redo():
                return await talk.redo()
            case messages.Compact():
                return await talk.compact()
            case messages.UndoCompact():
                await talk.undo_compact()
            case _:
                raise UsageError(f"There is no {type(command).__name__}.")
        return None
