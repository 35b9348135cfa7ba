"""One session of an ACP client: a conversation, its settings, and one prompt at a time.

Owns what a prompt becomes: a command, a turn, or an error; how it is cancelled and steered; and that the
server is on its way before the first prompt. Does not own the conversation's rules (`agent.conversation`),
nor what the client is shown (`presenting`).
"""

import asyncio
import contextlib
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar

from acp.schema import (
    ConfigOptionUpdate,
    CurrentModeUpdate,
    PromptResponse,
    SessionConfigOptionSelect,
    SessionModeState,
    StopReason,
    Usage,
    UsageUpdate,
)

from vivace.acp import commands, options
from vivace.acp.link import SessionLink
from vivace.acp.past import updates_of
from vivace.acp.presenting.presenter import AcpPresenter
from vivace.acp.presenting.updates import Updates
from vivace.acp.prompts import Block, Message, read_blocks
from vivace.agent.conversation.connection import Connection
from vivace.agent.conversation.sharing.opening import open_or_attach
from vivace.agent.conversation.talk import Talk
from vivace.agent.conversation.transcript.history import Turn
from vivace.agent.edits.apply.files import OpenFiles
from vivace.agent.permissions.modes import mode_named, mode_of
from vivace.agent.trust.settings import with_project_settings
from vivace.config import Settings
from vivace.errors import ConversationBusy, PlaceUnclear, UsageError, VivaceError
from vivace.models.presence import with_model_present

SteerOutcome = Literal["injected", "startedNewTurn", "promptRequired"]
STOP_REASONS: dict[str, StopReason] = {"completed": "end_turn", "cut": "max_tokens", "stopped": "cancelled"}
T = TypeVar("T")


class Cancelled(Exception):
    """The client has cancelled the prompt before a turn began."""


async def open_session(
    link: SessionLink, settings: Settings, folder: Path, conversation_id: str | None = None
) -> "AcpSession":
    """Begin a conversation in this folder, or take one up again, also one that is open elsewhere."""
    settings = with_project_settings(settings, folder)
    updates = Updates(link)
    presenter = AcpPresenter(link, updates, folder, on_options=lambda: session.tell_options())
    has_files = link.reads_files or link.writes_files
    files = OpenFiles(link if has_files else None, writes=link.writes_files)
    talk = await open_or_attach(
        settings,
        presenter,
        folder if conversation_id is None else conversation_id,
        name="editor",
        connection=Connection(settings),
        files=files,
        on_moved=lambda other: session.move_to(other),
    )
    link.session_id = talk.id
    session = AcpSession(talk, settings, link, updates, presenter, files)
    return session


class AcpSession:
    def __init__(
        self,
        talk: Talk,
        settings: Settings,
        link: SessionLink,
        updates: Updates,
        presenter: AcpPresenter,
        files: OpenFiles,
    ) -> None:
        self.talk = talk
        self._settings, self._link, self._updates = settings, link, updates
        self._presenter, self._files = presenter, files
        self._models = options.models_here(settings)
        self._prompted = asyncio.Lock()
        self._cancelled = asyncio.Event()
        self._cancels = 0  # so far
        self._given_buffers: list[Path] = []  # that came with the last prompt
        self._preparing = asyncio.create_task(self._prepare())
        updates.send(commands.available())

    # ---- settings ---------------------------------------------------------------------------------

    @property
    def modes(self) -> SessionModeState:
        return options.mode_state(mode_of(self.talk.policy))

    @property
    def options(self) -> list[SessionConfigOptionSelect]:
        mode = mode_of(self.talk.policy)
        return options.config_options(mode, self.talk.model, self.talk.effort, self._models)

    def use_mode(self, name: str) -> None:
        """Let calls of tools do what this mode allows, from the next one on."""
        self.talk.policy = mode_named(name).policy

    def tell_options(self) -> None:
        """Tell the client how the options stand: this face or another one has set them."""
        mode = self.modes.current_mode_id
        self._updates.send(CurrentModeUpdate(session_update="current_mode_update", current_mode_id=mode))
        self._updates.send(
            ConfigOptionUpdate(session_update="config_option_update", config_options=list(self.options))
        )

    async def use_option(self, name: str, value: str) -> None:
        """Set an option. A model counts from the next turn on; it must be here, or at an upstream."""
        if name == options.MODE:
            self.use_mode(value)
        elif name == options.EFFORT:
            self.talk.effort = options.effort_named(value)
        elif name == options.MODEL:
            await self._use_model(value)
        else:
            raise UsageError(f"There is no option {name!r}.", "Options: mode, model, effort.")

    async def _use_model(self, name: str) -> None:
        if name not in self._models and not self._settings.is_elsewhere(name):
            hint = f"Models: {', '.join(self._models)}. `vivace models pull NAME` brings others."
            raise UsageError(f"The model {name!r} is not here.", hint)
        if name == self.talk.model:
            return
        self._settings = self._settings.having(model=name)
        if not self.talk.is_held:
            self.talk.model = name
        self._stop_preparing()
        self._preparing = asyncio.create_task(self._prepare())

    # ---- prompts ----------------------------------------------------------------------------------

    async def prompt(self, blocks: Sequence[Block]) -> PromptResponse:
        """Do one prompt to its end. Raise what went wrong, unless it was cancelled."""
        if self._prompted.locked() and not self._cancelled.is_set():
            raise ConversationBusy("A prompt runs already.", "Cancel it, or steer it: `_session/steering`.")
        cancels = self._cancels
        async with self._prompted:
            if self._cancels > cancels:  # while it waited for the end of the one before
                return PromptResponse(stop_reason="cancelled")
            self._cancelled.clear()
            try:
                return await self._prompt(self._read(blocks))
            except (VivaceError, Cancelled):
                await self._updates.drain()
                if self._cancelled.is_set():
                    return PromptResponse(stop_reason="cancelled")
                raise

    async def _prompt(self, message: Message) -> PromptResponse:
        called = commands.find(message.text)
        if called is not None:
            command, argument = called
            if command.needs_server:
                await self._unless_cancelled(self._ready())
            self._updates.begin_message()
            said = await self._unless_cancelled(command.run(self.talk, argument))
            self._updates.say(f"{said}\n" if said else "")
            await self._updates.drain()
            return PromptResponse(stop_reason="end_turn")
        await asyncio.to_thread(self.talk.check_message, message.text)
        await self._unless_cancelled(self._ready())
        with self._presenter.prompted():
            turn = await self.talk.send(message.text)
        await self._tell_usage(turn)
        error = self._presenter.error
        if turn.status == "failed" and error is not None:
            if error.code != PlaceUnclear.code:
                raise error.as_exception()
            self._updates.say_line(f"{error.message} {error.hint}")  # a question: the next prompt answers it
            await self._updates.drain()
        return PromptResponse(stop_reason=_stop_reason(turn), usage=_usage(turn))

    async def steer(self, blocks: Sequence[Block]) -> SteerOutcome:
        """Turn the running prompt around. Too late for that, the message is its next turn."""
        if not self.talk.is_running or self._cancelled.is_set():
            return "promptRequired"
        text = self._read(blocks).text
        await asyncio.to_thread(self.talk.check_message, text)
        waiting = len(self.talk.queue.messages)
        await self.talk.steer(text)
        return "startedNewTurn" if len(self.talk.queue.messages) > waiting else "injected"

    def cancel(self) -> None:
        """End the running prompt. What was said is kept: the next prompt goes on from it."""
        if self._prompted.locked():
            self._cancels += 1
            self._cancelled.set()
            self.talk.stop()

    def _read(self, blocks: Sequence[Block]) -> Message:
        """Return the message. Texts of files that came with it are read in place of the files, this time."""
        message = read_blocks(blocks, self.talk.folder)
        if not self._link.reads_files:  # a client that can be asked for its texts has later ones
            for path in self._given_buffers:
                self._files.set_buffer(path, None)
            for path, text in message.buffers.items():
                self._files.set_buffer(path, text)
            self._given_buffers = list(message.buffers)
        return message

    async def _unless_cancelled(self, work: Coroutine[Any, Any, T]) -> T:
        """Do the work. Raise Cancelled if the client cancels the prompt meanwhile."""
        doing = asyncio.ensure_future(work)
        waiting = asyncio.ensure_future(self._cancelled.wait())
        try:
            await asyncio.wait([doing, waiting], return_when=asyncio.FIRST_COMPLETED)
            if doing.done():
                return doing.result()
            raise Cancelled
        finally:
            for task in (doing, waiting):
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError, VivaceError):
                    await task

    async def _tell_usage(self, turn: Turn) -> None:
        window = await self.talk.connection.window_tokens(self.talk.model) if turn.total_tokens else 0
        if window:
            used = turn.total_tokens
            self._updates.send(UsageUpdate(session_update="usage_update", used=used, size=window))
        await self._updates.drain()

    # ---- the server -------------------------------------------------------------------------------

    async def _ready(self) -> None:
        """Return when a model can answer. What went wrong before is tried once more."""
        if self._preparing.done() and self._preparing.exception() is not None:
            self._preparing = asyncio.create_task(self._prepare())
        await asyncio.shield(self._preparing)

    async def _prepare(self) -> None:
        """Get the model's file and the server, and let the model read how the conversation begins."""
        loop = asyncio.get_running_loop()
        progress = _DownloadSteps(lambda words: loop.call_soon_threadsafe(self._tell_progress, words))
        settings = await asyncio.to_thread(with_model_present, self._settings, progress)
        self._settings = self.talk.connection.settings = settings
        if self.talk.is_held:  # or else whoever holds it has a model for it
            self.talk.model = settings.model
        await self.talk.connection.client()
        await self.talk.prefill(" ")

    def _tell_progress(self, words: str) -> None:
        self._updates.think(f"{words}\n")

    def _stop_preparing(self) -> None:
        self._preparing.cancel()

    # ---- begin and end ----------------------------------------------------------------------------

    async def replay(self) -> None:
        """Show the turns of before. Call `follow` behind it."""
        for update in updates_of(self.talk.turns, self.talk.folder):
            self._updates.send(update)
        await self._updates.drain()

    def follow(self) -> None:
        """Show what happens from now on, also what another face of the conversation begins."""
        self.talk.follow()

    def move_to(self, talk: Talk) -> None:
        """Go on with the conversation after the process that held it has ended."""
        self.talk = talk
        talk.follow()

    async def close(self) -> None:
        """Stop what runs and let go of the conversation."""
        self.cancel()
        self._stop_preparing()
        with contextlib.suppress(asyncio.CancelledError, VivaceError):
            await self._preparing
        await self.talk.close()
        await self._updates.close()


class _DownloadSteps:
    """Progress of a download in words, one for every tenth of it."""

    def __init__(self, say: Any) -> None:
        self._say = say
        self._label, self._total, self._done, self._tenth = "", 0, 0, 0

    def begin(self, label: str, total_bytes: int) -> None:
        self._label, self._total, self._done, self._tenth = label, total_bytes, 0, 0
        self._say(label)

    def advance(self, size_bytes: int) -> None:
        self._done += size_bytes
        tenth = 10 * self._done // self._total if self._total else 0
        if tenth != self._tenth:
            self._tenth = tenth
            self._say(f"{self._label} {tenth}0%")

    def end(self) -> None:
        pass


def _stop_reason(turn: Turn) -> StopReason:
    if turn.status == "cut" and turn.kind == "task":
        return "max_turn_requests"
    return STOP_REASONS.get(turn.status or "", "end_turn")


def _usage(turn: Turn) -> Usage | None:
    if not turn.total_tokens:
        return None
    read = turn.total_tokens - turn.answer_tokens
    return Usage(total_tokens=turn.total_tokens, input_tokens=read, output_tokens=turn.answer_tokens)
