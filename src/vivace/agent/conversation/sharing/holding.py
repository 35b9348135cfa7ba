"""The process that holds a conversation: other faces connect to its socket, are shown all, and do all.

Owns the socket, one link for each face, and the commands that run. A face that reads too slowly, or says what
is no message, loses its connection and nothing else. Does not own who is told what (`faces`), nor what a
command does (`commands`).
"""

import asyncio
import contextlib
import logging
from functools import partial
from pathlib import Path

import msgspec

from vivace.agent.conversation.sharing.commands import PrefillDraft, run_command
from vivace.agent.conversation.sharing.face_link import FaceLink
from vivace.agent.conversation.sharing.faces import Faces
from vivace.agent.conversation.sharing.places import is_same_user, make_room, socket_of
from vivace.agent.conversation.sharing.wire import forms, frames, from_face, from_holder
from vivace.agent.conversation.sharing.wire.answers import decision_of, resolution_of
from vivace.agent.conversation.talk import Talk
from vivace.agent.edits.conflict import Conflict
from vivace.agent.edits.proposal import Proposal
from vivace.agent.events.base import Failed
from vivace.agent.loop.calls import Approval
from vivace.errors import VivaceError

log = logging.getLogger(__name__)

MAX_LINKS = 16
MAX_COMMANDS = 64  # of one face at once
HELLO_S = 10.0  # for the first message of a connection


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
            hello = frames.decode_from_face(await frames.read_frame(reader))
        if not isinstance(hello, from_face.Hello):
            return
        link = FaceLink(hello.name[:40], writer)
        faces = (self._faces.name, *self._faces.others)
        link.put(from_holder.Welcome(version=frames.VERSION, faces=faces, options=self._talk.options))
        if hello.is_asking or hello.version != frames.VERSION:
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
        for chunk in frames.record_chunks(records):
            link.put(chunk)
            await link.drained()
        link.put(from_holder.Joined())
        for event in missed:
            link.show_now(event)
        for question in questions:
            link.ask_now(question)
        link.begin()

    async def _listen_to(self, link: FaceLink, reader: asyncio.StreamReader) -> None:
        while True:
            command = frames.decode_from_face(await frames.read_frame(reader))
            if isinstance(command, from_face.Hello) or link.pending >= MAX_COMMANDS:
                return
            if isinstance(command, from_face.Answer):
                self._answer(command)
                continue
            if isinstance(command, from_face.Cancel):
                if task := link.commands.get(command.command):
                    task.cancel()
                continue
            if isinstance(command, from_face.Prefill):
                self._faces.typist = link
            task = asyncio.create_task(self._run(link, command))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            if isinstance(command, from_face.AskBeside):  # nothing else can be cancelled
                link.commands[command.id] = task
                task.add_done_callback(partial(link.forget_command, command.id))

    def _answer(self, answer: from_face.Answer) -> None:
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
            question.resolve(Approval(answer.is_allowed, answer.reason, is_kept, answer.digest))

    async def _run(self, link: FaceLink, command: from_face.AnyCommand) -> None:
        """Do what a face asks for, and answer it."""
        reply: forms.Message
        link.pending += 1
        try:
            value = await run_command(self._talk, self._prefill, command)
            reply = from_holder.Done(id=command.id, value=msgspec.to_builtins(value))
        except VivaceError as error:
            reply = from_holder.Refused(id=command.id, error=Failed.of(error))
        except asyncio.CancelledError:
            reply = from_holder.Refused(id=command.id, error=Failed("stopped", "It was stopped."))
        except Exception as error:  # noqa: BLE001 - the boundary of another face's command
            words = f"Something of ours broke: {type(error).__name__}: {error}"
            reply = from_holder.Refused(id=command.id, error=Failed("server_error", words))
        finally:
            link.pending -= 1
        if command.id and link in self._links:
            link.put(reply)
