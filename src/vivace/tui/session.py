"""The conversation behind the screen: open at once, while the model's file and the server are on their way.

Owns what a message becomes: sent, steered or queued, and that it waits where nothing can answer yet.
Messages that wait are in the conversation's queue, so they survive this process. Imported after the first
paint: it brings the agent and the client. Does not own the conversation's own rules (`agent.conversation`).
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

from vivace.agent.conversation.connection import Connection
from vivace.agent.conversation.message.intent import background_part
from vivace.agent.conversation.opening import open_conversation
from vivace.agent.conversation.sharing.opening import open_or_attach
from vivace.agent.conversation.talk import Talk
from vivace.agent.effort import DEFAULT_EFFORT, Effort
from vivace.agent.events.base import Failed
from vivace.agent.permissions.modes import DEFAULT_MODE, Mode, mode_after, mode_of
from vivace.agent.trust.settings import with_project_settings
from vivace.config import Settings
from vivace.errors import ConversationBusy, HolderGone, ServerGone, TurnFault, VivaceError
from vivace.models.presence import with_model_present
from vivace.models.progress import InWords
from vivace.tui.background import BackgroundTasks, short_id
from vivace.tui.presenting.presenter import ScreenPresenter
from vivace.tui.status import Status, short_model
from vivace.tui.transcript.blocks import Note, Said

NAME = "terminal"  # as other faces call this one
TYPED_S = 0.06  # a draft is read this long after a key: several keys are read together


class Session:
    def __init__(
        self,
        settings: Settings,
        folder: Path,
        presenter: ScreenPresenter,
        status: Status,
        on_change: Callable[[], None],
        effort: Effort = DEFAULT_EFFORT,
    ) -> None:
        self.settings, self.folder, self.presenter = _with_project(settings, folder), folder, presenter
        self._status, self._on_change = status, on_change
        self._tasks: set[asyncio.Task[None]] = set()
        self._preparing: asyncio.Task[None] | None = None
        self._draft = ""  # what stands in the prompt
        self._warming: asyncio.Task[None] | None = None
        self.is_ready = False  # the server answers
        self._unsent: list[str] = []  # messages whose holder ended before they were taken up
        self.background = BackgroundTasks(settings, folder, presenter.announce, self._count_tasks)
        talk = open_conversation(self.settings, folder, presenter, self._connection())
        self.talk: Talk = talk
        self.use_effort(effort)
        self.use_mode(DEFAULT_MODE)
        self._spawn(talk.share(NAME))
        self.prepare()
        self._spawn(self.background.watch())

    # ---- from nothing to a server that answers -----------------------------------------------------------

    def _connection(self) -> Connection:
        return Connection(self.settings, self._say_from_thread)

    def prepare(self) -> None:
        """Get the model's file and the server, unless that is under way. What waits is sent then."""
        if not self.is_ready and (self._preparing is None or self._preparing.done()):
            self._preparing = self._spawn(self._prepare())

    async def _prepare(self) -> None:
        self._loop = asyncio.get_running_loop()
        talk = None
        while talk is not self.talk:  # another conversation may have taken its place meanwhile
            talk = self.talk
            try:
                await self._reach_server(talk)
            except VivaceError as error:
                if talk is self.talk:
                    self.presenter.show(Failed.of(error))
                    self._say("no server: the next message tries again")
                    return
        self.is_ready = True
        self._say("")
        if self.talk.is_held:  # or else the holder runs it
            self._spawn(self._watch(self.talk.run_queue()))

    async def _reach_server(self, talk: Talk) -> None:
        settings = await asyncio.to_thread(with_model_present, self.settings, InWords(self._say_from_thread))
        if talk is not self.talk:
            return
        self.settings = talk.connection.settings = settings
        talk.model = settings.model
        await talk.connection.client()
        await self._read_window()

    async def _read_window(self) -> None:
        """Ask how long a conversation may be: known when the model has been used."""
        self._status.window_tokens = await self.talk.connection.window_tokens(self.talk.model)
        self._on_change()

    def _say(self, activity: str) -> None:
        self._status.activity = activity
        self._on_change()

    def _say_from_thread(self, activity: str) -> None:
        self._loop.call_soon_threadsafe(self._say, activity)

    # ---- messages ----------------------------------------------------------------------------------------

    def send(self, text: str, mentions: Sequence[str] | None = None) -> None:
        """Send now, steer the turn that runs, or let it wait for the server.

        "Do the rest in the background" begins a task beside. Without `mentions` they are found in the text.
        """
        if part := background_part(text):
            self.presenter.announce(Said(text))
            self._spawn(self.start_background(part))
            return
        if not self.is_ready:
            self.talk.queue.add(text, mentions)
            self.prepare()
        elif self.talk.is_running:
            self._spawn(self._kept(text, mentions, self.talk.steer(text)))
        else:
            self._spawn(self._kept(text, mentions, self._watch(self.talk.send(text, mentions))))

    def queue(self, text: str, mentions: Sequence[str] | None = None) -> None:
        """Send after the turn that runs, or now if there is none."""
        if self.talk.is_running or not self.is_ready:
            self.talk.queue.add(text, mentions)
            self.prepare()
        else:
            self.send(text, mentions)

    async def _kept(self, text: str, mentions: Sequence[str] | None, work: Awaitable[object]) -> None:
        """Do what takes the message up. If another face was first, or the holder is gone, let it wait."""
        try:
            await work
        except ConversationBusy:
            self.talk.queue.add(text, mentions)
        except HolderGone:
            self._unsent.append(text)

    async def _watch(self, work: Awaitable[object]) -> None:
        """Run turns, and see afterwards whether the server is still there."""
        try:
            await work
        except ServerGone as error:
            self.presenter.show(Failed.of(error))
            await self._check_server()
            return
        turn = self.talk.turns[-1] if self.talk.turns else None
        if turn is not None and turn.status == "failed" and turn.error:
            await self._check_server()
        elif turn is not None and not self._status.window_tokens:
            await self._read_window()
        if turn is not None and turn.status == "cut" and self.talk.queue.messages:
            await self._watch(self.talk.run_queue())

    async def _check_server(self) -> None:
        """Look whether the server is still there, and bring it back if it is not."""
        from vivace.client.warm import find_server

        if await asyncio.to_thread(find_server, self.settings) is None:
            self.is_ready = False
            await self.talk.connection.renew()
            self.prepare()

    def spawn_shown(self, work: Coroutine[Any, Any, object]) -> None:
        """Do this beside; what goes wrong is shown."""
        self._spawn(work)

    def _spawn(self, work: Coroutine[Any, Any, object]) -> "asyncio.Task[None]":
        task = asyncio.create_task(self._guarded(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _guarded(self, work: Coroutine[Any, Any, object]) -> None:
        """Do the work; whatever goes wrong with it is shown, and the screen stays."""
        try:
            await work
        except HolderGone:
            return  # `_moved` says so
        except VivaceError as error:
            self.presenter.show(Failed.of(error))
        except Exception as error:  # noqa: BLE001 - the boundary of what a key began
            problem = TurnFault(
                f"Something of ours broke: {type(error).__name__}: {error}", "The conversation is kept."
            )
            self.presenter.show(Failed.of(problem))

    def typed(self, draft: str) -> None:
        """Let the model read what stands in the prompt, a moment after the last key."""
        self._draft = draft
        if self.is_ready and draft and draft[0] not in "/!#" and self._warming is None:
            self._warming = self._spawn(self._warm())

    async def _warm(self) -> None:
        warmed = ""
        try:
            while self._draft and self._draft != warmed and self.is_ready:
                await asyncio.sleep(TYPED_S)
                warmed = self._draft
                await self.talk.prefill(warmed)
        finally:
            self._warming = None

    def use_effort(self, effort: Effort) -> None:
        """Try this hard from the next turn on."""
        self.talk.effort = effort
        self._status.effort = effort
        self._on_change()

    @property
    def mode(self) -> Mode:
        """Return what tasks may do by themselves, whichever face has set it."""
        return mode_of(self.talk.policy)

    def use_mode(self, mode: Mode) -> None:
        """Let tasks do what this permission mode allows, from the next call on."""
        self.talk.policy = mode.policy
        self._status.mode = mode.name
        self._on_change()

    def next_mode(self) -> Mode:
        mode = mode_after(self.mode)
        self.use_mode(mode)
        return mode

    # ---- background tasks --------------------------------------------------------------------------------

    async def start_background(self, instruction: str) -> None:
        """Begin a task beside the conversation, and tell the model of it with the next message."""
        context = self.talk.handed_over()
        task = await self.background.start(self.settings, instruction, self.mode.policy, context)
        name = short_id(task.id)
        self.talk.note(f"(In the background, as task {name}: {instruction})")

    async def move_to_background(self) -> None:
        """Stop the turn that runs, and let a task do what it was about."""
        talk = self.talk
        message = talk.turns[-1].text
        talk.stop()
        await talk.wait_idle()
        await self.start_background(message)

    def _count_tasks(self, count: int) -> None:
        if count != self._status.tasks:
            self._status.tasks = count
            self._on_change()

    def use_tests(self, line: str) -> None:
        """Let edits run these tests from the next turn on; none if the line is empty."""
        self.settings = self.settings.having(test_command=line)
        self.talk.use_tests(line)

    async def use_model(self, name: str) -> None:
        """Let another model answer from the next turn on; fetch it first if it is not here."""
        self.settings = self.settings.having(model=name)
        self.is_ready = False
        self.prepare()

    # ---- conversations -----------------------------------------------------------------------------------

    async def switch(self, conversation_id: str | None) -> None:
        """Go on with another conversation, or begin one. Raise what is wrong with it, and stay here then.

        One that another face has open is joined. Show its turns, then call its `follow`.
        """
        place = conversation_id or self.folder
        other = await open_or_attach(
            self.settings,
            self.presenter,
            place,
            name=NAME,
            connection=self._connection(),
            on_moved=self._moved,
        )
        await self.go_on_with(other)

    async def go_on_with(self, other: Talk) -> None:
        """Put another conversation in the place of this one."""
        before, self.talk, self.is_ready = self.talk, other, False
        if other.is_held:
            other.effort, other.policy = before.effort, before.policy
        else:
            self.settings = self.settings.having(model=other.model)
            self._status.effort, self._status.mode = other.effort, self.mode.name
            self._status.model = short_model(other.model)
        self._status.others = other.others
        await before.close()
        self.prepare()

    def _moved(self, talk: Talk) -> None:
        """Go on where the conversation is now: the process that held it has ended."""
        self.talk, self.is_ready = talk, False
        self.presenter.begin_again(talk.turns)
        who = "is held here now" if talk.is_held else f"goes on in {talk.others[0]}"
        self.presenter.announce(Note(f"The other face has ended. The conversation {who}."))
        talk.follow()
        unsent, self._unsent = self._unsent, []
        for text in unsent:
            if text not in [turn.text for turn in talk.turns[-3:]]:  # or else it was taken up
                talk.queue.add(text)
        self._say("")
        self.prepare()

    async def close(self) -> None:
        if self._preparing is not None:
            self._preparing.cancel()
        await self.talk.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


def _with_project(settings: Settings, folder: Path) -> Settings:
    """Return the settings with what a trusted project adds. A file that is wrong is told by `/trust`."""
    try:
        return with_project_settings(settings, folder)
    except VivaceError:
        return settings
