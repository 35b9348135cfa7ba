"""The screen: transcript, list, queue, prompt, status line, and how they are wired together.

Owns the widgets and the program's life. It paints a usable prompt before the agent is imported, and long
before a server answers. Does not own what keys (`controls`) and commands (`commands`) do, other programs
(`programs`, `external_editor`), nor the conversation (`session`).
"""

import asyncio
import contextlib
import os
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from textual.app import App, ComposeResult
from textual.containers import Horizontal
from textual.widgets import Static

from vivace.agent.effort import DEFAULT_EFFORT, Effort
from vivace.config import Settings
from vivace.errors import VivaceError
from vivace.tui import theme
from vivace.tui.controls import Controls
from vivace.tui.keys import KeyMap
from vivace.tui.prompt.completion import Candidate
from vivace.tui.prompt.editor import PromptEditor
from vivace.tui.prompt.history import History
from vivace.tui.prompt.menu import Menu
from vivace.tui.quick_start import end_of_start
from vivace.tui.status import Status, StatusLine, short_model
from vivace.tui.terminal_mode import lines_as_usual
from vivace.tui.transcript.blocks import Note
from vivace.tui.transcript.view import Transcript

if TYPE_CHECKING:
    from vivace.tui.presenting.presenter import ScreenPresenter
    from vivace.tui.presenting.questions import AnyQuestion
    from vivace.tui.session import Session

QUEUE_SHOWN = 3
MODE_HINT_S = 4.0  # how long it is said what a permission mode means
MESSAGE_COMMANDS = ("/background", "/btw")  # whose argument is a message
LOW_ROWS = 10  # below this the screen is for the transcript and the prompt alone


class VivaceApp(App[None], inherit_bindings=False):
    ENABLE_COMMAND_PALETTE = False
    CSS = """
    Screen { layout: vertical; background: $background; }
    #queue { height: auto; max-height: 3; color: $foreground 60%; padding: 0 2; display: none; }
    #question { height: auto; color: $accent; padding: 0 2; display: none; }
    #prompt { height: auto; background: $background; padding: 0; margin: 1 0 0 0; }
    #prompt.low { margin: 0; }
    #mark { width: 2; color: $accent; text-style: bold; height: 1; }
    """

    def __init__(
        self,
        settings: Settings,
        folder: Path,
        *,
        effort: Effort = DEFAULT_EFFORT,
        resume: str | None = None,
        typed: str = "",
    ) -> None:
        super().__init__()
        self._disable_tooltips = self._disable_notifications = True  # their widgets would be made at once
        self.settings, self.folder = settings, folder
        self.is_utf8 = _is_utf8()
        self.key_map = KeyMap(settings.keys)
        self.history = History(settings.state_dir / "history.jsonl")
        self.session: Session | None = None
        self._effort, self._resume = effort, resume
        *lines, self._typed_before = typed.split("\n")
        self._early = [(line, False) for line in lines if line.strip()]  # messages from before the session
        self.status = Status("starting", short_model(settings.model), effort)
        self.controls = Controls(self)
        self.transcript = Transcript(is_utf8=self.is_utf8, on_scroll=self.changed)
        self.menu = Menu(is_utf8=self.is_utf8)
        self.queue_lines = Static(id="queue", markup=False)
        self.question_line = Static(id="question", markup=False)
        self.editor = PromptEditor(self.controls.press, self._typed)
        self.status_line = StatusLine(self.status, is_utf8=self.is_utf8)
        self._hint_timer: asyncio.TimerHandle | None = None
        self.watched: object = None  # the block of the task that is watched
        for each in theme.textual_themes():
            self.register_theme(each)
        self.theme = settings.theme

    def compose(self) -> ComposeResult:
        yield self.transcript
        yield self.menu
        yield self.queue_lines
        yield self.question_line
        with Horizontal(id="prompt"):
            yield Static(theme.glyphs("› ", is_utf8=self.is_utf8), id="mark", markup=False)
            yield self.editor
        yield self.status_line

    def on_mount(self) -> None:
        self.editor.focus()
        self.editor.set_text(self._typed_before)
        self.transcript.add(Note(f"vivace in {self.folder}"))
        self.on_resize()

    def on_ready(self) -> None:
        self.run_worker(self._begin(), exit_on_error=False)

    def on_resize(self) -> None:
        self.query_one("#prompt").set_class(self.size.height < LOW_ROWS, "low")
        self.editor.fit()
        self.changed()

    async def _begin(self) -> None:
        """Load the agent beside the event loop, so that typing goes on, then open the conversation."""
        presenter, session = await asyncio.to_thread(_load)
        end_of_start()
        shown = presenter(self.transcript, self.status, self.folder, self.changed)
        try:
            self.session = session(self.settings, self.folder, shown, self.status, self.changed, self._effort)
        except VivaceError as error:
            self.complain(error)
            return
        if self._resume is not None:
            self.run_command(f"/resume {self._resume}".strip())
        for text, is_queued in self._early:
            if not self.is_refused(text):
                self.submit(text, is_queued=is_queued)
            elif not self.editor.text:
                self.editor.set_text(text)
        self._early.clear()

    # ---- what is shown -----------------------------------------------------------------------------------

    @property
    def question(self) -> "AnyQuestion | None":
        """Return what waits for the user."""
        return self.session.presenter.question if self.session else None

    @property
    def is_turn_running(self) -> bool:
        return self.session is not None and self.session.talk.is_running

    def command_candidates(self) -> list[Candidate]:
        from vivace.tui.commands.table import COMMANDS

        names = [Candidate(each.name, each.name, each.help) for each in COMMANDS]
        return names + [Candidate(each.name, also, each.help) for each in COMMANDS for also in each.also]

    def changed(self) -> None:
        """Draw the lines around the prompt anew: status, queue, the open question."""
        if not self.is_running:
            return
        if not self.editor.text:
            self.status.warm_percent = None  # there is no prompt
        self.status_line.refresh()
        queued = self.session.presenter.queued if self.session else ()
        lines = [f"⏎ {' '.join(each.text.split())}" for each in queued[:QUEUE_SHOWN]]
        self._put(self.queue_lines, "\n".join(line[: max(1, self.size.width - 4)] for line in lines))
        self._put(self.question_line, self._question_words())
        self.transcript.touch()

    def _put(self, widget: Static, text: str) -> None:
        text = theme.glyphs(text, is_utf8=self.is_utf8)
        if widget.content != text:
            widget.update(text)
            widget.display = bool(text)

    def _question_words(self) -> str:
        if (unread_s := self.controls.unread_s) > 0:  # which keys decide is shown when they do
            self.set_timer(unread_s, self.changed)
            return ""
        return self.question.in_words(self.key_map) if self.question else ""

    def hint(self, text: str, seconds: float = 0.0) -> None:
        """Show a word at the end of the status line, for some seconds or until the next one."""
        if self._hint_timer is not None:
            self._hint_timer.cancel()
            self._hint_timer = None
        self.status.hint = text
        if seconds:
            self._hint_timer = asyncio.get_running_loop().call_later(seconds, self.hint, "")
        self.changed()

    def complain(self, error: VivaceError) -> None:
        self.transcript.add(Note(error.message, error.hint, "error"))

    def forget_screen(self) -> None:
        self.transcript.clear()
        if self.session is not None:
            self.session.presenter.starts.clear()

    def use_theme(self, name: str) -> None:
        self.theme = name
        self.refresh(layout=True)
        self.changed()

    # ---- what the user does ------------------------------------------------------------------------------

    def _typed(self) -> None:
        self.controls.typed()
        if not self.editor.text:
            self.changed()
        if self.session is not None:
            self.session.typed(self.editor.whole_text)

    def is_refused(self, text: str) -> bool:
        """Say what is wrong with a message, if anything is: it stays in the prompt then, and nothing is sent.

        What was pasted is not looked through: it is material, not what the user says.
        """
        is_message = text[:1] not in ("/", "!", "#") or text.split()[0] in MESSAGE_COMMANDS
        if self.session is None or not is_message:
            return False
        try:
            self.session.talk.check_message(text)
        except VivaceError as error:
            self.complain(error)
            self.transcript.follow()
            return True
        return False

    def submit(self, text: str, *, is_queued: bool, has_paste: bool = False) -> None:
        """Do what was said: a command, a shell command, a note, or a message for the model."""
        mentions = None
        if has_paste and self.session is not None:
            from vivace.agent.conversation.message.mentions import mentions_in

            mentions = mentions_in(text, self.session.talk.folder)
        if self.session is None:
            self._early.append((text, is_queued))
        elif text.startswith("/") and not text.startswith("//") and "/" not in text.split()[0][1:]:
            self.run_command(text)
        elif text.startswith("!"):
            self._run_shell(text[1:].strip())
        elif text.startswith("#") and not text.startswith("##"):
            self._remember(text[1:])
        elif is_queued:
            self.session.queue(text, mentions)
        else:
            self.session.send(text, mentions)

    def _run_shell(self, command: str) -> None:
        from vivace.tui.programs import run_shell

        if command:
            self.run_shown(run_shell(self.transcript, self.folder, command))

    def _remember(self, text: str) -> None:
        from vivace.tui.commands.memory import remember

        assert self.session is not None
        self.session.spawn_shown(remember(self, self.session, text))

    def run_command(self, line: str) -> None:
        from vivace.tui.commands.table import find

        try:
            command, argument = find(line)
        except VivaceError as error:
            self.complain(error)
            return
        if self.session is not None:
            self.session.spawn_shown(command.run(self, self.session, argument))

    def run_shown(self, work: Coroutine[Any, Any, None]) -> None:
        """Do this beside; what goes wrong is shown."""
        self.run_worker(self._shown(work), exit_on_error=False)

    async def _shown(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except VivaceError as error:
            self.complain(error)

    def stop_turn(self) -> None:
        if self.session is not None:
            self.session.talk.stop()

    def answer_now(self) -> None:
        if self.session is not None:
            self.session.talk.answer_now()

    def next_mode(self) -> None:
        """Go on to the next permission mode, and say what it means."""
        if self.session is not None:
            mode = self.session.next_mode()
            self.hint(f"{mode.name}: {mode.help}", seconds=MODE_HINT_S)

    def leave(self) -> None:
        self.run_worker(self._leave(), exit_on_error=False)

    async def _leave(self) -> None:
        if self.session is not None:
            await self.session.close()
        self.exit()

    async def use_model(self, name: str) -> None:
        assert self.session is not None
        await self.session.use_model(name)
        self.status.model = short_model(name)
        self.changed()

    @contextlib.contextmanager
    def without_terminal(self) -> Iterator[None]:
        """Leave the terminal to another program; without a terminal there is nothing to leave.

        The screen comes back however the program ends: Textual's `suspend` would not, if an error passed it.
        """
        if self._driver is None or not self._driver.can_suspend:
            yield
            return
        failure: BaseException | None = None
        with self.suspend(), lines_as_usual():
            try:
                yield
            except BaseException as error:  # noqa: BLE001 - raised again when the screen is there
                failure = error
        if failure is not None:
            raise failure


def _load() -> "tuple[type[ScreenPresenter], type[Session]]":
    """Import what the first paint does not need: the agent, the client, the grammars."""
    from vivace.tui.presenting.presenter import ScreenPresenter
    from vivace.tui.session import Session

    return ScreenPresenter, Session


def _is_utf8() -> bool:
    names = (os.environ.get(name, "") for name in ("LC_ALL", "LC_CTYPE", "LANG"))
    locale = next((name for name in names if name), "")
    return "utf-8" in locale.lower() or "utf8" in locale.lower()


def run(
    settings: Settings,
    folder: Path,
    *,
    effort: Effort = DEFAULT_EFFORT,
    resume: str | None = None,
    typed: str = "",
) -> int:
    """Show the terminal face until the user leaves it; return the exit code. `typed` came before it."""
    app = VivaceApp(settings, folder, effort=effort, resume=resume, typed=typed)
    app.run()
    return app.return_code or 0
