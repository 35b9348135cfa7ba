"""A conversation that another process holds, as this process's face knows it.

Owns the connection to the holder, this process's copy of the state, and the questions that are open here.
Events come as the holder's own face sees them. When the connection ends, the conversation is opened anew,
here or where it is held then (`opening`). Does not own what a command does (`holding`).
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from vivace.agent.conversation.connection import Connection
from vivace.agent.conversation.context import ContextUse
from vivace.agent.conversation.conversation import Conversation
from vivace.agent.conversation.sharing import messages
from vivace.agent.conversation.sharing.event_codec import (
    EventDecoder,
    EventEncoder,
    decision_form,
    error_of,
    resolution_form,
)
from vivace.agent.conversation.sharing.places import is_same_user
from vivace.agent.conversation.talk import Offer, Talk
from vivace.agent.conversation.transcript.history import History, Turn
from vivace.agent.conversation.transcript.record_log import RecordLog
from vivace.agent.conversation.transcript.recording import records_of
from vivace.agent.edits.proposal import Proposal
from vivace.agent.events import AgentEvent
from vivace.agent.options import Options
from vivace.agent.presenter import ApprovingPresenter, Presenter
from vivace.agent.talk_events import (
    Compacted,
    EditsRedone,
    EditsUndone,
    FacesChanged,
    OptionsChanged,
    QueuedMessage,
    Rewound,
)
from vivace.agent.turn_events import TurnKind
from vivace.errors import ConversationBusy, HolderGone, UsageError

T = TypeVar("T")
JOIN_S = 30.0  # for a holder that is busy to send its records


class Dialled:
    """A connection to the holder of a conversation."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    async def receive(self) -> messages.FromHolder:
        """Return the next message. Raise `EOFError` at the end, `ValueError` for what is no message."""
        received: messages.FromHolder = messages.decode_from_holder(await messages.read_frame(self._reader))
        return received

    def send(self, message: messages.Message) -> None:
        """Send a message, unless the holder is gone: that is told where messages are received."""
        if not self._writer.is_closing():
            self._writer.write(messages.frame(message))

    async def close(self) -> None:
        """End the connection. No effect the second time."""
        self._writer.close()
        await asyncio.sleep(0)  # the transport lets go of its socket in the next round of the loop


async def dial(path: Path, name: str, *, is_asking: bool = False) -> tuple[Dialled, messages.Welcome]:
    """Connect to a holder. Raise `OSError`, `EOFError` or `ValueError` if none answers there."""
    reader, writer = await asyncio.open_unix_connection(path)
    dialled = Dialled(reader, writer)
    try:
        if not is_same_user(writer.get_extra_info("socket")):
            raise PermissionError(f"{path} belongs to another user")
        dialled.send(messages.Hello(version=messages.VERSION, name=name, is_asking=is_asking))
        async with asyncio.timeout(JOIN_S):
            welcome = await dialled.receive()
        if not isinstance(welcome, messages.Welcome):
            raise ValueError("no welcome")
        if welcome.version != messages.VERSION:
            raise ConversationBusy(
                "The conversation is open in another version of vivace.", "Close it there."
            )
    except BaseException:
        await dialled.close()
        raise
    return dialled, welcome


async def attach(
    path: Path,
    name: str,
    face: Presenter,
    connection: Connection,
    on_lost: Callable[["AttachedConversation"], None],
) -> "AttachedConversation":
    """Join the conversation that is held at this socket."""
    dialled, welcome = await dial(path, name)
    history, log = History(), RecordLog()
    try:
        async with asyncio.timeout(JOIN_S):
            while not isinstance(message := await dialled.receive(), messages.Joined):
                if not isinstance(message, messages.Records):
                    raise ValueError("no records")
                for record in messages.records_in(message):
                    history.take(record)
                    log.add(record)
    except BaseException:
        await dialled.close()
        raise
    return AttachedConversation(history, log, connection, face, name, dialled, welcome, on_lost)


class AttachedConversation(Talk):
    def __init__(
        self,
        history: History,
        log: RecordLog,
        connection: Connection,
        face: Presenter,
        name: str,
        dialled: Dialled,
        welcome: messages.Welcome,
        on_lost: Callable[["AttachedConversation"], None],
    ) -> None:
        super().__init__(history, log, connection)
        self._face, self._name, self._dialled, self._on_lost = face, name, dialled, on_lost
        self._options, self._others = welcome.options, welcome.faces
        self._decoder = EventDecoder()
        self._replies: dict[int, asyncio.Future[Any]] = {}
        self._questions: dict[str, asyncio.Task[None]] = {}
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
        self.command(messages.UseOptions(options=options))

    def use_model(self, name: str) -> None:
        self.command(messages.UseModel(model=name))

    # ---- what comes from the holder ---------------------------------------------------------------

    def follow(self) -> None:
        if self._receiving is None:
            self._face.show(FacesChanged(self._others))
            self._receiving = asyncio.create_task(self._receive())

    async def _receive(self) -> None:
        try:
            while True:
                self._take(await self._dialled.receive())
                self._changed.set()
        except (EOFError, ValueError):
            pass
        await self._end()
        if not self.is_closed:
            self._on_lost(self)

    async def _end(self) -> None:
        """Let go of all that waits for the holder."""
        for task in self._questions.values():
            task.cancel()
        await asyncio.gather(*self._questions.values(), return_exceptions=True)
        for reply in self._replies.values():
            if not reply.done():
                reply.set_exception(HolderGone("The process that held the conversation has ended."))
        self._changed.set()
        await self._dialled.close()

    def _take(self, message: messages.FromHolder) -> None:
        match message:
            case messages.Shown():
                self._show(self._decoder.event(message))
            case messages.SourceKnown() | messages.ProposalKnown() | messages.DiffKnown():
                self._decoder.learn(message)
            case messages.AtRest():
                self._decoder.forget()
            case messages.Asked(question=question):
                self._questions[question] = asyncio.create_task(self._answer(self._asked(message)))
            case messages.Closed(question=question):
                if task := self._questions.pop(question, None):
                    task.cancel()
            case messages.Done(id=number, value=value):
                if (reply := self._replies.pop(number, None)) and not reply.done():
                    reply.set_result(value)
            case messages.Refused(id=number):
                if (reply := self._replies.pop(number, None)) and not reply.done():
                    reply.set_exception(error_of(message.code, message.message, message.hint))

    def _show(self, event: AgentEvent) -> None:
        for record in records_of(event):
            self._history.take(record)
            self._log.add(record)
        if isinstance(event, FacesChanged):
            self._others = event.others
        elif isinstance(event, OptionsChanged):
            self._options = event.options
        self._face.show(event)

    def _asked(self, asked: messages.Asked) -> Awaitable[messages.Answer | None]:
        """Return what asks the user, with all that it needs of this moment."""
        question = asked.question
        if asked.proposal is not None:
            return self._ask_decision(question, self._decoder.proposal(asked.proposal))
        if asked.conflict is not None:
            return self._ask_resolution(asked)
        return self._ask_approval(asked)

    async def _ask_decision(self, question: str, proposal: Proposal) -> messages.Answer:
        decision = await self._face.decide(proposal)
        return messages.Answer(question=question, decision=decision_form(decision))

    async def _ask_resolution(self, asked: messages.Asked) -> messages.Answer:
        assert asked.conflict is not None
        resolution = await self._face.resolve(self._decoder.conflict(asked.conflict))
        return messages.Answer(question=asked.question, resolution=resolution_form(resolution))

    async def _ask_approval(self, asked: messages.Asked) -> messages.Answer | None:
        if asked.call is None or not isinstance(self._face, ApprovingPresenter):
            return None  # another face answers
        answer = await self._face.approve(asked.call)
        return messages.Answer(
            question=asked.question,
            is_allowed=answer.is_allowed,
            is_kept=answer.is_kept,
            reason=answer.reason,
        )

    async def _answer(self, asking: Awaitable[messages.Answer | None]) -> None:
        if answer := await asking:
            self.command(answer)

    # ---- what goes to the holder ------------------------------------------------------------------

    def command(self, command: messages.Command) -> None:
        """Ask for something without an answer."""
        self._dialled.send(command)

    async def _call(self, command: messages.Command, kind: type[T]) -> T:
        """Ask for something and return the answer. Raise what it raises there, or `HolderGone`."""
        self._count += 1
        number, reply = self._count, asyncio.get_running_loop().create_future()
        if self._receiving is None or self._receiving.done():
            raise HolderGone("The process that held the conversation has ended.")
        self._replies[number] = reply
        self._dialled.send(msgspec.structs.replace(command, id=number))
        try:
            return msgspec.convert(await reply, kind)
        except asyncio.CancelledError:
            self.command(messages.Cancel(command=number))
            raise
        finally:
            self._replies.pop(number, None)

    async def _turn(self, command: messages.Command) -> Turn:
        number = await self._call(command, int)
        return next(turn for turn in reversed(self._history.all_turns) if turn.number == number)

    async def send(
        self, text: str, mentions: Sequence[str] | None = None, *, kind: TurnKind | None = None
    ) -> Turn:
        return await self._turn(messages.Send(text=text, mentions=_tuple(mentions), kind=kind))

    async def run_queue(self) -> None:
        await self._call(messages.RunQueue(), type(None))

    async def offer(self, text: str, proposal: Proposal) -> Turn:
        known: list[messages.Message] = []
        EventEncoder().proposal(proposal, known)
        (made,) = [each for each in known if isinstance(each, messages.ProposalKnown)]
        sources = tuple(each for each in known if isinstance(each, messages.SourceKnown))
        return await self._turn(messages.OfferProposal(text=text, sources=sources, proposal=made))

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
        await self._call(messages.Steer(text=text), type(None))

    def stop(self) -> None:
        self.command(messages.Stop())

    def answer_now(self) -> None:
        self.command(messages.AnswerNow())

    def note(self, text: str) -> None:
        self.command(messages.AddNote(text=text))

    async def prefill(self, draft: str, mentions: Sequence[str] | None = None) -> None:
        if not self.is_running:
            await self._call(messages.Prefill(draft=draft, mentions=_tuple(mentions)), type(None))

    async def btw(self, question: str) -> str:
        return await self._call(messages.AskBeside(question=question), str)

    async def rewind(self, turn: int, *, code: bool = True, talk: bool = True) -> Rewound:
        return await self._call(messages.Rewind(turn=turn, code=code, talk=talk), Rewound)

    async def undo(self) -> EditsUndone:
        return await self._call(messages.Undo(), EditsUndone)

    async def redo(self) -> EditsRedone:
        return await self._call(messages.Redo(), EditsRedone)

    async def fork(self, face: Presenter | None = None) -> Talk:
        forked = Conversation.forked_from(self, face or self._face)
        await forked.share(self._name)
        return forked

    async def compact(self) -> Compacted:
        return await self._call(messages.Compact(), Compacted)

    async def undo_compact(self) -> None:
        await self._call(messages.UndoCompact(), type(None))

    async def context(self, draft: str = "", mentions: Sequence[str] | None = None) -> ContextUse:
        return await self._call(messages.CountContext(draft=draft, mentions=_tuple(mentions)), ContextUse)

    async def rename(self, title: str) -> None:
        await self._call(messages.Rename(title=title), type(None))

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
        self._talk.command(messages.QueueAdd(text=text, mentions=_tuple(mentions)))

    def change(self, message_id: int, text: str, mentions: Sequence[str] | None = None) -> None:
        mentioned = _tuple(mentions)
        self._talk.command(messages.QueueChange(message=message_id, text=text, mentions=mentioned))

    def remove(self, message_id: int) -> None:
        self._talk.command(messages.QueueRemove(message=message_id))


def _tuple(mentions: Sequence[str] | None) -> tuple[str, ...] | None:
    return None if mentions is None else tuple(mentions)
