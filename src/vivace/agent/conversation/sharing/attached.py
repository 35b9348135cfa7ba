"""A conversation that another process holds, as this process's face knows it.

Owns this process's copy of the state, and the commands that wait for an answer of the holder. Events come as
the holder's own face sees them. When the connection ends, the conversation is opened anew, here or where it
is held then (`opening`). Does not own what a command does (`commands`).
"""

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from vivace.agent.conversation.connection import Connection
from vivace.agent.conversation.context import ContextUse
from vivace.agent.conversation.conversation import Conversation
from vivace.agent.conversation.sharing.holder_connection import JOIN_S, HolderConnection, connect_to_holder
from vivace.agent.conversation.sharing.open_questions import OpenQuestions
from vivace.agent.conversation.sharing.wire import forms, frames, from_face, from_holder
from vivace.agent.conversation.sharing.wire.event_codec import EventDecoder, EventEncoder
from vivace.agent.conversation.talk import Offer, Talk
from vivace.agent.conversation.transcript.history import History, Turn
from vivace.agent.conversation.transcript.record_log import RecordLog
from vivace.agent.conversation.transcript.recording import records_of
from vivace.agent.edits.proposal import Proposal
from vivace.agent.events.every import AgentEvent
from vivace.agent.events.talk import (
    Compacted,
    EditsRedone,
    EditsUndone,
    FacesChanged,
    OptionsChanged,
    QueuedMessage,
    Rewound,
)
from vivace.agent.events.turn import TurnKind
from vivace.agent.options import Options
from vivace.agent.presenter import Presenter
from vivace.errors import HolderGone, UsageError

T = TypeVar("T")


async def attach(
    path: Path,
    name: str,
    face: Presenter,
    connection: Connection,
    on_lost: Callable[["AttachedConversation"], None],
) -> "AttachedConversation":
    """Join the conversation that is held at this socket."""
    holder, welcome = await connect_to_holder(path, name)
    history, log = History(), RecordLog()
    try:
        async with asyncio.timeout(JOIN_S):
            while not isinstance(message := await holder.receive(), from_holder.Joined):
                if not isinstance(message, from_holder.Records):
                    raise ValueError("no records")
                for record in frames.records_in(message):
                    history.take(record)
                    log.add(record)
    except BaseException:
        await holder.close()
        raise
    return AttachedConversation(history, log, connection, face, name, holder, welcome, on_lost)


class AttachedConversation(Talk):
    def __init__(
        self,
        history: History,
        log: RecordLog,
        connection: Connection,
        face: Presenter,
        name: str,
        holder: HolderConnection,
        welcome: from_holder.Welcome,
        on_lost: Callable[["AttachedConversation"], None],
    ) -> None:
        super().__init__(history, log, connection)
        self._face, self._name, self._holder, self._on_lost = face, name, holder, on_lost
        self._options, self._others = welcome.options, welcome.faces
        self._decoder = EventDecoder()
        self._replies: dict[int, asyncio.Future[Any]] = {}
        self._questions = OpenQuestions(face, self._decoder, self.command)
        self._count = 0  # commands so far
        self._changed = asyncio.Event()  # set when something happens
        self._receiving: asyncio.Task[None] | None = None
        self._queue = AttachedQueue(self)
        self.is_closed = False
        self.moving: asyncio.Task[None] | None = None  # to another holder, or to be it

    # ---- what it is -------------------------------------------------------------------------------

    @property
    def queue(self) -> "AttachedQueue":
        return self._queue

    @property
    def is_running(self) -> bool:
        return self._history.is_running

    @property
    def is_held(self) -> bool:
        return False

    @property
    def others(self) -> tuple[str, ...]:
        return self._others

    @property
    def options(self) -> Options:
        return self._options

    def use(self, options: Options) -> None:
        self._options = options
        self.command(from_face.UseOptions(options=options))

    def use_model(self, name: str) -> None:
        self.command(from_face.UseModel(model=name))

    # ---- what comes from the holder ---------------------------------------------------------------

    def follow(self) -> None:
        if self._receiving is None:
            self._face.show(FacesChanged(self._others))
            self._receiving = asyncio.create_task(self._receive())

    async def _receive(self) -> None:
        try:
            while True:
                self._take(await self._holder.receive())
                self._changed.set()
        except (EOFError, ValueError):
            pass
        await self._end()
        if not self.is_closed:
            self._on_lost(self)

    async def _end(self) -> None:
        """Let go of all that waits for the holder."""
        await self._questions.close_all()
        for reply in self._replies.values():
            if not reply.done():
                reply.set_exception(HolderGone("The process that held the conversation has ended."))
        self._changed.set()
        await self._holder.close()

    def _take(self, message: from_holder.FromHolder) -> None:
        match message:
            case from_holder.Shown():
                self._show(self._decoder.event(message))
            case forms.SourceKnown() | forms.ProposalKnown() | forms.DiffKnown():
                self._decoder.learn(message)
            case from_holder.AtRest():
                self._decoder.forget()
            case from_holder.Asked():
                self._questions.ask(message)
            case from_holder.Closed(question=question):
                self._questions.close(question)
            case from_holder.Done(id=number, value=value):
                if (reply := self._replies.pop(number, None)) and not reply.done():
                    reply.set_result(value)
            case from_holder.Refused(id=number):
                if (reply := self._replies.pop(number, None)) and not reply.done():
                    reply.set_exception(message.error.as_exception())

    def _show(self, event: AgentEvent) -> None:
        for record in records_of(event):
            self._history.take(record)
            self._log.add(record)
        if isinstance(event, FacesChanged):
            self._others = event.others
        elif isinstance(event, OptionsChanged):
            self._options = event.options
        self._face.show(event)

    # ---- what goes to the holder ------------------------------------------------------------------

    def command(self, command: from_face.Command) -> None:
        """Ask for something without an answer."""
        self._holder.send(command)

    async def _call(self, command: from_face.Command, kind: type[T]) -> T:
        """Ask for something and return the answer. Raise what it raises there, or `HolderGone`."""
        self._count += 1
        number, reply = self._count, asyncio.get_running_loop().create_future()
        if self._receiving is None or self._receiving.done():
            raise HolderGone("The process that held the conversation has ended.")
        self._replies[number] = reply
        self._holder.send(msgspec.structs.replace(command, id=number))
        try:
            return msgspec.convert(await reply, kind)
        except asyncio.CancelledError:
            self.command(from_face.Cancel(command=number))
            raise
        finally:
            self._replies.pop(number, None)

    async def _turn(self, command: from_face.Command) -> Turn:
        number = await self._call(command, int)
        return next(turn for turn in reversed(self._history.all_turns) if turn.number == number)

    async def send(
        self, text: str, mentions: Sequence[str] | None = None, *, kind: TurnKind | None = None
    ) -> Turn:
        return await self._turn(from_face.Send(text=text, mentions=_tuple(mentions), kind=kind))

    async def run_queue(self) -> None:
        await self._call(from_face.RunQueue(), type(None))

    async def offer(self, text: str, proposal: Proposal) -> Turn:
        known: list[forms.Message] = []
        EventEncoder().proposal(proposal, known)
        (made,) = [each for each in known if isinstance(each, forms.ProposalKnown)]
        sources = tuple(each for each in known if isinstance(each, forms.SourceKnown))
        return await self._turn(from_face.OfferProposal(text=text, sources=sources, proposal=made))

    async def make_offer(self, text: str, offer: Offer) -> Turn:
        del text, offer
        raise UsageError(
            f"The conversation is held by another face ({self._others[0]}).",
            "Do it there, or begin a conversation of your own: /fork.",
        )

    async def wait_idle(self) -> None:
        while self.is_running and not self.is_closed:
            self._changed.clear()
            await self._changed.wait()

    async def steer(self, text: str) -> None:
        await self._call(from_face.Steer(text=text), type(None))

    def stop(self) -> None:
        self.command(from_face.Stop())

    def answer_now(self) -> None:
        self.command(from_face.AnswerNow())

    def note(self, text: str) -> None:
        self.command(from_face.AddNote(text=text))

    async def prefill(self, draft: str, mentions: Sequence[str] | None = None) -> None:
        if not self.is_running:
            await self._call(from_face.Prefill(draft=draft, mentions=_tuple(mentions)), type(None))

    async def btw(self, question: str) -> str:
        return await self._call(from_face.AskBeside(question=question), str)

    async def rewind(self, turn: int, *, code: bool = True, talk: bool = True) -> Rewound:
        return await self._call(from_face.Rewind(turn=turn, code=code, talk=talk), Rewound)

    async def undo(self, entry: int = 0) -> EditsUndone:
        return await self._call(from_face.Undo(entry=entry), EditsUndone)

    async def redo(self, entry: int = 0) -> EditsRedone:
        return await self._call(from_face.Redo(entry=entry), EditsRedone)

    async def fork(self, face: Presenter | None = None) -> Talk:
        forked = Conversation.forked_from(self, face or self._face)
        await forked.share(self._name)
        return forked

    async def compact(self) -> Compacted:
        return await self._call(from_face.Compact(), Compacted)

    async def undo_compact(self) -> None:
        await self._call(from_face.UndoCompact(), type(None))

    async def context(self, draft: str = "", mentions: Sequence[str] | None = None) -> ContextUse:
        return await self._call(from_face.CountContext(draft=draft, mentions=_tuple(mentions)), ContextUse)

    async def rename(self, title: str) -> None:
        await self._call(from_face.Rename(title=title), type(None))

    async def close(self) -> None:
        self.is_closed = True
        if self._receiving is not None:
            self._receiving.cancel()
            await asyncio.gather(self._receiving, return_exceptions=True)
        await self._end()
        await self._connection.close()


class AttachedQueue:
    """The holder's queue as it is known here. Changes are shown when the holder has made them."""

    def __init__(self, talk: AttachedConversation) -> None:
        self._talk = talk

    @property
    def messages(self) -> tuple[QueuedMessage, ...]:
        return self._talk.history.queue

    def add(self, text: str, mentions: Sequence[str] | None = None) -> None:
        self._talk.command(from_face.QueueAdd(text=text, mentions=_tuple(mentions)))

    def change(self, message_id: int, text: str, mentions: Sequence[str] | None = None) -> None:
        mentioned = _tuple(mentions)
        self._talk.command(from_face.QueueChange(message=message_id, text=text, mentions=mentioned))

    def remove(self, message_id: int) -> None:
        self._talk.command(from_face.QueueRemove(message=message_id))


def _tuple(mentions: Sequence[str] | None) -> tuple[str, ...] | None:
    return None if mentions is None else tuple(mentions)
