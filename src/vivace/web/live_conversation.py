"""A conversation that is open in this host, for any number of faces at once.

Owns that a turn goes on when faces leave, and what must be there before a model can answer: its file and the
server. Messages that come before that wait in the conversation's queue. Does not own the conversation's rules
(`agent.conversation`), nor what faces are told (`broadcast`).
"""

import asyncio
import contextlib
import logging
from collections.abc import Coroutine, Sequence
from typing import Any

import msgspec

from vivace.agent.conversation.talk import Talk
from vivace.agent.effort import Effort
from vivace.agent.events.base import Failed
from vivace.agent.events.turn import TurnKind
from vivace.agent.options import Approval
from vivace.agent.permissions.modes import MODES, mode_named
from vivace.client import warm
from vivace.errors import ConversationBusy, ServerGone, TurnFault, VivaceError
from vivace.models.presence import with_model_present
from vivace.models.progress import InWords
from vivace.web.broadcast import Broadcast, Listener
from vivace.web.messages.answers import Snapshot
from vivace.web.messages.events import ConversationLost, LiveState

APPROVALS: dict[str, Approval] = {"ask": "ask", "yes": "always", "no": "never"}  # as faces say it

log = logging.getLogger(__name__)


class LiveConversation:
    talk: Talk

    def __init__(self, broadcast: Broadcast) -> None:
        self.broadcast = broadcast
        self._tasks: set[asyncio.Task[Any]] = set()
        self._preparing: asyncio.Task[None] | None = None
        self._is_ready = False
        self._activity = "starting"
        self._window_tokens = 0
        self._draft: tuple[str, Sequence[str] | None] | None = None
        self._warming: asyncio.Task[None] | None = None

    def use_talk(self, talk: Talk) -> None:
        """Begin with this conversation."""
        self.talk, self.broadcast.conversation = talk, talk.id
        self.broadcast.on_change = self._tell_state
        talk.follow()
        self.prepare()

    def moved(self, talk: Talk) -> None:
        """Go on with the same conversation in another process, or in this one. Faces open it again."""
        self.talk = talk
        self.broadcast.begin_again()
        self.broadcast.tell(ConversationLost(message="The program that held the conversation has ended."))
        talk.follow()
        if talk.is_held and self._is_ready:  # what the other one had not come to
            self.spawn(talk.run_queue())

    @property
    def id(self) -> str:
        return self.talk.id

    @property
    def is_used(self) -> bool:
        """Return whether somebody looks at it or something runs in it."""
        return bool(self.broadcast.listeners) or self.talk.is_running or bool(self._tasks)

    def is_used_beside(self, face: Listener) -> bool:
        """Return whether it matters to somebody else than this face, or a turn runs."""
        others = [each for each in self.broadcast.listeners if each is not face]
        return bool(others) or bool(self.talk.others) or self.talk.is_running

    # ---- faces --------------------------------------------------------------------------------------

    def join(self, face: Listener, epoch: str = "", after: int = 0) -> Snapshot:
        """Let a face hear of it from now on. Return all that happened, or what it has missed."""
        missed = self.broadcast.since(epoch, after) if epoch else None
        self.broadcast.listeners[face] = None
        snapshot = Snapshot(
            conversation=self.id,
            folder=str(self.talk.folder),
            epoch=self.broadcast.epoch,
            seq=self.broadcast.seq,
            is_whole=missed is None,
            is_running=self.talk.is_running,
            title=self.talk.title,
            records=self.talk.records if missed is None else [],
            events=missed or [],
            live=[self._state(), *self.broadcast.standing],
        )
        self._tell_state()
        return snapshot

    def leave(self, face: Listener) -> None:
        if self.broadcast.listeners.pop(face, False) is not False:
            self._tell_state()

    def _state(self) -> LiveState:
        policies = [mode.name for mode in MODES if mode.policy == self.talk.policy]
        return LiveState(
            model=self.talk.model,
            effort=self.talk.effort,
            policy=policies[0] if policies else "other",
            approval=next(word for word, approval in APPROVALS.items() if approval == self.talk.approval),
            faces=len(self.broadcast.listeners) + len(self.talk.others),
            activity=self._activity or self.broadcast.progress,
            window_tokens=self._window_tokens,
            title=self.talk.title,
        )

    def _tell_state(self) -> None:
        self.broadcast.tell(self._state())

    # ---- from nothing to a server that answers ------------------------------------------------------

    def prepare(self) -> None:
        """Get the model's file and the server, unless that is under way. What waits is sent then."""
        if not self._is_ready and (self._preparing is None or self._preparing.done()):
            self._preparing = self.spawn(self._prepare())

    async def _prepare(self) -> None:
        talk, loop = self.talk, asyncio.get_running_loop()

        def say(words: str) -> None:
            loop.call_soon_threadsafe(self._say, words)

        wanted = talk.connection.settings.having(model=talk.model)
        try:
            settings = await asyncio.to_thread(with_model_present, wanted, InWords(say))
            talk.connection.settings = settings
            if talk.is_held:
                talk.model = settings.model
            await talk.connection.client()
            await self._read_window()
        except VivaceError as error:
            self.broadcast.show(Failed.of(error))
            self._say("no server: the next message tries again")
            return
        self._is_ready = True
        self._say("")
        if talk.is_held:
            await talk.run_queue()

    async def _read_window(self) -> None:
        self._window_tokens = await self.talk.connection.window_tokens(self.talk.model)

    def _say(self, activity: str) -> None:
        self._activity = activity
        self._tell_state()

    # ---- messages -----------------------------------------------------------------------------------

    async def send(self, text: str, mentions: Sequence[str] | None, kind: TurnKind | None) -> int:
        """Begin a turn. Return its number, or 0 if the message waits for the server."""
        if self.talk.is_running:
            raise ConversationBusy("A turn runs already.", "Steer it, queue the message, or stop the turn.")
        if mentions is None:
            await self.check(text)
        if not self._is_ready:
            self.talk.queue.add(text, mentions)
            self.prepare()
            return 0
        return await self.begin(self._turn(text, mentions, kind))

    async def steer(self, text: str) -> None:
        """Turn the running turn around, or begin one with this text."""
        await self.check(text)
        if not self._is_ready:
            self.talk.queue.add(text)
            self.prepare()
            return
        await self.begin(self.talk.steer(text))

    async def check(self, text: str) -> None:
        """Raise what is wrong with a message, before anything of it is done. Its face keeps it then."""
        await asyncio.to_thread(self.talk.check_message, text)

    async def begin(self, work: Coroutine[Any, Any, Any]) -> int:
        """Let work go on beside. Return its turn as soon as that has begun; 0 if the work began none.

        Raise what went wrong before that.
        """
        begun = self.broadcast.next_turn()
        task = self.spawn(work)
        await asyncio.wait([task, begun], return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            task.result()
        return begun.result() if begun.done() else 0

    async def _turn(self, text: str, mentions: Sequence[str] | None, kind: TurnKind | None) -> None:
        try:
            turn = await self.talk.send(text, mentions, kind=kind)
        except ServerGone as error:
            self.broadcast.show(Failed.of(error))
            await self._check_server()
            return
        if turn.status == "failed" and turn.error:
            await self._check_server()
        elif not self._window_tokens:
            await self._read_window()
            self._tell_state()

    async def _check_server(self) -> None:
        """Look whether the server is still there, and find it again if it is not."""
        if await asyncio.to_thread(warm.find_server, self.talk.connection.settings) is None:
            self._is_ready = False
            await self.talk.connection.renew()
            self.prepare()

    def type(self, draft: str, mentions: Sequence[str] | None) -> None:
        """Let the model read a draft. Only the last one counts."""
        self._draft = (draft, mentions)
        if self._is_ready and self._warming is None:
            self._warming = self.spawn(self._warm())

    async def _warm(self) -> None:
        try:
            while self._draft is not None:
                (text, mentions), self._draft = self._draft, None
                await self.talk.prefill(text, mentions)
        finally:
            self._warming = None

    # ---- what may be set ----------------------------------------------------------------------------

    def use(self, model: str | None, effort: Effort | None, policy: str | None, approval: str | None) -> None:
        """Use these from the next turn on."""
        given = {
            "effort": effort,
            "policy": mode_named(policy).policy if policy is not None else None,
            "approval": APPROVALS[approval] if approval is not None else None,
        }
        changes = {name: value for name, value in given.items() if value is not None}
        options = msgspec.structs.replace(self.talk.options, **changes)
        if options != self.talk.options:
            self.talk.use(options)
        if model is not None and model != self.talk.model:
            self.talk.model = model
            self._is_ready = False
            self._window_tokens = 0
            if self._preparing is not None:  # for the model before, which it would bring back
                self._preparing.cancel()
                self._preparing = None
            self.prepare()

    async def rename(self, title: str) -> None:
        """Give the conversation a title. Every face is told."""
        await self.talk.rename(title)

    # ---- the end ------------------------------------------------------------------------------------

    def spawn(self, work: Coroutine[Any, Any, Any]) -> "asyncio.Task[Any]":
        """Do this beside. What goes wrong is shown, unless somebody waits for it."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._over)
        return task

    def _over(self, task: "asyncio.Task[Any]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) and not isinstance(error, VivaceError):
            log.error("in conversation %s", self.id, exc_info=error)
            self.broadcast.show(Failed.of(TurnFault(f"Something of ours broke: {type(error).__name__}.")))

    async def close(self) -> None:
        """Stop what runs and let go of the conversation."""
        if self._preparing is not None:
            self._preparing.cancel()
        await self.talk.close()
        for task in list(self._tasks):
            task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.gather(*self._tasks, return_exceptions=True)
