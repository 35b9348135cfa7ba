"""A conversation about the code in one folder: what every face drives, and the transcript remembers.

Owns what the user may do, and when: one turn at a time, steered, stopped or followed by what was queued. What
happens is shown to the face's `Presenter`, after it was written down. Does not own how one turn is done
(`turn_work`), the state and the file (`transcript`), nor the server (`connection`).

    async with open_conversation(settings, folder, presenter) as talk:
        turn = await talk.send("What does @app.py do?")
"""

import asyncio
import contextlib
import time
from collections.abc import Sequence
from pathlib import Path

from vivace.agent.conversation.connection import Connection
from vivace.agent.conversation.context import ContextUse, count_context
from vivace.agent.conversation.message.mentions import mentions_in
from vivace.agent.conversation.message.missing import check_mentions
from vivace.agent.conversation.prefilling import Prefiller
from vivace.agent.conversation.queue import MessageQueue
from vivace.agent.conversation.sharing.faces import Faces
from vivace.agent.conversation.sharing.holding import Holder
from vivace.agent.conversation.talk import Offer, Talk
from vivace.agent.conversation.transcript.file import Transcript
from vivace.agent.conversation.transcript.forking import fork_transcript
from vivace.agent.conversation.transcript.history import TITLE_CHARS, EditResult, History, Turn
from vivace.agent.conversation.transcript.record_log import RecordLog
from vivace.agent.conversation.transcript.recording import RecordingPresenter
from vivace.agent.conversation.turns.answering import Ending
from vivace.agent.conversation.turns.beside import answer_beside
from vivace.agent.conversation.turns.turn_work import TurnWork
from vivace.agent.conversation.undoing import bring_back, edits_in, take_back
from vivace.agent.edits.apply.files import DISK, Files
from vivace.agent.edits.apply.journal import Journal
from vivace.agent.edits.flow import show_and_offer
from vivace.agent.edits.proposal import Proposal
from vivace.agent.events.base import Failed
from vivace.agent.events.every import AgentEvent
from vivace.agent.events.talk import (
    Compacted,
    CompactionUndone,
    EditsRedone,
    EditsUndone,
    FacesChanged,
    ModelChanged,
    ModelProgress,
    NoteAdded,
    OptionsChanged,
    Renamed,
    Rewound,
)
from vivace.agent.events.turn import TurnEnded, TurnKind, TurnStarted
from vivace.agent.options import Options
from vivace.agent.presenter import Presenter
from vivace.errors import ConversationBusy, HolderGone, UsageError, VivaceError


class Conversation(Talk):
    """A conversation that this process holds: open one with `open_conversation` or `resume_conversation`."""

    def __init__(
        self,
        history: History,
        log: RecordLog,
        transcript: Transcript,
        connection: Connection,
        face: Presenter,
        files: Files = DISK,
    ) -> None:
        """`files` are those of the face: it may have some open, and write accepted changes itself."""
        super().__init__(history, log, connection)
        self._transcript = transcript
        self._face = face
        self._files = files
        self._faces = Faces(face, log)
        self._holder: Holder | None = None  # while other faces can join
        self._presenter = RecordingPresenter(self._faces, transcript, history, log)
        self._journal = Journal(connection.settings.state_dir / "undo")
        self._journal.heal()
        self._work = TurnWork(history, connection, self._presenter, self._journal, files)
        self._prefiller = Prefiller(connection, self._presenter, history.id)
        connection.on_progress = lambda progress: self._show(ModelProgress(progress))
        self._is_idle = asyncio.Event()  # set while no turn runs
        self._is_idle.set()
        self._is_closing = False
        self._is_stopped = False  # the user wants no more of this: what is queued stays there
        self._queue = MessageQueue(history.queue, self._show)

    # ---- what it is -------------------------------------------------------------------------------

    @property
    def queue(self) -> MessageQueue:
        return self._queue

    @property
    def is_running(self) -> bool:
        return not self._is_idle.is_set()

    @property
    def is_held(self) -> bool:
        return True

    @property
    def others(self) -> tuple[str, ...]:
        return self._faces.others

    async def share(self, name: str) -> None:
        """Let other faces of this user join. They know this one by its name."""
        self._faces.name = name
        self._holder = Holder(self, self._faces, self._transcript.file, self._prefill)
        await self._holder.listen()

    @property
    def options(self) -> Options:
        work = self._work
        return Options(
            work.requests.effort, work.approval, work.policy, self._connection.settings.test_command
        )

    def use(self, options: Options) -> None:
        self._work.requests.effort, self._work.approval = options.effort, options.approval
        self._work.policy = options.policy
        if options.test_command != self._connection.settings.test_command:
            self._connection.settings = self._connection.settings.having(test_command=options.test_command)
        self._show(OptionsChanged(options))

    def use_model(self, name: str) -> None:
        self._show(ModelChanged(name))

    # ---- talking ----------------------------------------------------------------------------------

    def check_message(self, text: str) -> None:
        check_mentions(text, self.folder, self._files)

    def follow(self) -> None:
        self._face.show(FacesChanged(self.others))  # all else was shown as it came

    async def send(
        self, text: str, mentions: Sequence[str] | None = None, *, kind: TurnKind | None = None
    ) -> Turn:
        self._check_idle()
        self._is_idle.clear()
        try:
            if mentions is None:
                await asyncio.to_thread(self.check_message, text)
            return await self._run_all(text, mentions, kind)
        finally:
            self._is_idle.set()

    async def run_queue(self) -> None:
        if self.is_running or not (message := self.queue.take()):
            return
        self._check_idle()
        self._is_idle.clear()
        try:
            await self._run_all(message.text, message.mentions, None)
        finally:
            self._is_idle.set()

    async def _run_all(self, text: str, mentions: Sequence[str] | None, kind: TurnKind | None) -> Turn:
        """Run this turn and those that are queued."""
        self._is_stopped = False
        turn = await self._run(text, mentions, kind)
        while self._goes_on_after(turn) and (message := self.queue.take()):
            turn = await self._run(message.text, message.mentions, None)
        return turn

    async def offer(self, text: str, proposal: Proposal) -> Turn:

        async def ask(presenter: Presenter, journal: Journal) -> None:
            await show_and_offer(proposal, text, self.approval, presenter, journal, files=self._files)

        return await self.make_offer(text, ask)

    async def make_offer(self, text: str, offer: Offer) -> Turn:
        self._check_idle()
        self._is_idle.clear()
        try:
            return await self._run(text, (), "edit", offer)
        finally:
            self._is_idle.set()

    async def wait_idle(self) -> None:
        await self._is_idle.wait()

    def _goes_on_after(self, turn: Turn) -> bool:
        return turn.status in ("completed", "cut") and not self._is_stopped

    async def steer(self, text: str) -> None:
        if await self._work.steer(text):
            return
        if self.is_running:
            self.queue.add(text, is_first=True)
        else:
            await self.send(text)

    def stop(self) -> None:
        self._is_stopped = True
        self._work.stop()

    def answer_now(self) -> None:
        self._work.answer_now()

    def note(self, text: str) -> None:
        self._show(NoteAdded(text))

    async def prefill(self, draft: str, mentions: Sequence[str] | None = None) -> None:
        self._faces.typist = None
        await self._prefill(draft, mentions)

    async def _prefill(self, draft: str, mentions: Sequence[str] | None) -> None:
        if self.is_running or self._work.uses_tools:
            return  # the draft may become a steer, and the turn has the engine
        with contextlib.suppress(VivaceError):  # it is said when the message is sent
            request = await self._work.requests.draft_request(draft, await self._mentions(draft, mentions))
            await self._prefiller.update(request)

    async def btw(self, question: str) -> str:
        await asyncio.to_thread(self.check_message, question)
        upcoming = await self._work.requests.next_request(question, await self._mentions(question, None))
        request, client = upcoming.body, await self._connection.client()
        lane = f"{self.id}.beside"
        return await answer_beside(client, self._presenter, request, question=question, lane=lane)

    # ---- what was said before ---------------------------------------------------------------------

    async def rewind(self, turn: int, *, code: bool = True, talk: bool = True) -> Rewound:
        self._check_idle()
        if turn not in [each.number for each in self.turns]:
            raise UsageError(f"There is no turn {turn}.", "`/rewind` lists the turns.")
        edits = edits_in(self.turns, "applied", first=turn) if code else []
        if edits:
            self._journal.undo_all({edit.entry for edit in edits})
        rewound = Rewound(turn, talk, code, *_named(edits))
        self._show(rewound)
        if edits and not talk:
            self.note(f"(I took back your changes to {self._names(rewound.paths)}.)")
        return rewound

    def _names(self, paths: Sequence[str]) -> str:
        """Return the files as they are named in this folder."""
        inside = [Path(path) for path in paths]
        return ", ".join(
            str(path.relative_to(self.folder) if path.is_relative_to(self.folder) else path)
            for path in inside
        )

    async def undo(self, entry: int = 0) -> EditsUndone:
        self._check_idle()
        undone = EditsUndone(*_named(take_back(self._journal, self.turns, entry)))
        self._show(undone)
        self.note(f"(I took back your change to {self._names(undone.paths)}.)")
        return undone

    async def redo(self, entry: int = 0) -> EditsRedone:
        self._check_idle()
        redone = EditsRedone(*_named(bring_back(self._journal, self.turns, entry)))
        self._show(redone)
        self.note(f"(I brought back your change to {self._names(redone.paths)}.)")
        return redone

    async def fork(self, face: Presenter | None = None) -> "Conversation":
        forked = Conversation.forked_from(self, face or self._face, self._files)
        if self._faces.name:
            await forked.share(self._faces.name)
        return forked

    @classmethod
    def forked_from(cls, talk: Talk, face: Presenter, files: Files = DISK) -> "Conversation":
        """Return a conversation that begins with what was said in another one, and goes on alone."""
        settings = talk.connection.settings
        history, log, transcript = fork_transcript(settings, talk.history, talk.records)
        return cls(history, log, transcript, Connection(settings), face, files)

    async def compact(self) -> Compacted:
        self._check_idle()
        return await self._work.compact("asked")

    async def undo_compact(self) -> None:
        self._check_idle()
        if not self._history.compactions:
            raise UsageError("Nothing was compacted.")
        self._show(CompactionUndone())

    async def rename(self, title: str) -> None:
        self._show(Renamed(" ".join(title.split())[:TITLE_CHARS]))

    async def context(self, draft: str = "", mentions: Sequence[str] | None = None) -> ContextUse:
        self._check_idle()
        await self._prefiller.finish()
        client, window = await self._connection.client(), await self._connection.window_tokens(self.model)
        upcoming = await self._work.requests.next_request(draft, await self._mentions(draft, mentions))
        return await count_context(client, self._history, upcoming, window_tokens=window, lane=self.id)

    async def close(self) -> None:
        """Stop what runs and let go of the file and the server."""
        self._is_closing = True
        self._work.cancel()
        await self._is_idle.wait()
        await self._prefiller.finish()
        await self._work.close()
        await self._connection.close()
        if self._holder is not None:
            await self._holder.close()
        self._transcript.close()

    # ---- one turn ---------------------------------------------------------------------------------

    async def _run(
        self,
        text: str,
        mentions: Sequence[str] | None,
        kind: TurnKind | None,
        offer: Offer | None = None,
    ) -> Turn:
        """Run one turn. It ends with `TurnEnded`, whatever happens."""
        if not text.strip():
            raise UsageError("The message is empty.", "Ask something, or say what to change.")
        await self._prefiller.finish()
        found = await self._mentions(text, mentions)
        number = self._history.all_turns[-1].number + 1 if self._history.all_turns else 1
        self._show(TurnStarted(number, text, found, time.time()))
        turn = self._history.turns[-1]
        ending = Ending("failed")
        try:
            if mentions is None:  # one that was queued may mean what is not there any more
                await asyncio.to_thread(self.check_message, text)
            ending = await self._work.run(text, found, kind, offer)
        except VivaceError as error:
            self._show(Failed.of(error))
        except asyncio.CancelledError:
            ending = Ending("stopped", turn.response_id)
            raise
        finally:
            self._show(TurnEnded(number, **vars(ending)))
            self._transcript.sync()
        for late in self._work.late_steers():
            self.queue.add(late, is_first=True)
        return turn

    async def _mentions(self, text: str, given: Sequence[str] | None) -> tuple[str, ...]:
        """Return the mentions, looked for in a thread: a disk may be slow, and others share this loop."""
        if given is not None or "@" not in text:
            return tuple(given or ())
        return await asyncio.to_thread(mentions_in, text, self.folder, self._files)

    def _check_idle(self) -> None:
        if self._is_closing:
            raise HolderGone("The conversation is being closed here.")
        if self.is_running:
            raise ConversationBusy("A turn runs already.", "Steer it, queue the message, or stop the turn.")

    def _show(self, event: AgentEvent) -> None:
        self._presenter.show(event)


def _named(edits: Sequence[EditResult]) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """Return the files of the edits, and their entries in the journal."""
    paths, entries = [edit.path for edit in edits], [edit.entry for edit in edits]
    return tuple(dict.fromkeys(paths)), tuple(dict.fromkeys(entries))
