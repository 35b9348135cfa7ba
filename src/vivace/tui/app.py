"""The screen: transcript, list, queue, prompt, status line, and how they are wired together.

Owns the widgets and the program's life. It paints a usable prompt before the agent is imported, and long
before a server answers. Does not own what keys (`controls`) and commands (`commands`) do, nor the
conversation (`session`).
"""

import asyncio
import contextlib
import os
import shlex
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from textual.app import App, ComposeResult
from textual.containers import Horizontal
from textual.widgets import Static

from vivace.agent.effort import DEFAULT_EFFORT, Effort
from vivace.child_python import module_command
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
from vivace.tui.status import Status, StatusLine
from vivace.tui.terminal_mode import lines_as_usual
from vivace.tui.transcript.blocks import Note, Output
from vivace.tui.transcript.view import Transcript

if TYPE_CHECKING:
    from vivace.tui.presenter import ConflictQuestion, Review, ScreenPresenter
    from vivace.tui.session import Session
    from vivace.tui.task_steps import ApprovalQuestion

MAX_OUTPUT_BYTES = 1_000_000  # of a shell command; what follows is dropped
END_S = 1.0  # for a shell command to end when the user leaves
QUEUE_SHOWN = 3
MODE_HINT_S = 4.0  # how long it is said what a permission mode means
LOW_ROWS = 10  # below this the screen is for the transcript and the prompt alone


class VivaceApp(App[None], inherit_bindings=False):
    ENABLE_COMMAND_PALETTE = False
    CSS = """
    Screen { layout: vertical; background: $background; }
    #queue { height: auto; max-height: 3; color: $foreground 60%; padding: 0 2; display: none; }
    #review { height: auto; color: $accent; padding: 0 2; display: none; }
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
        self.status = Status("starting", _short_model(settings.model), effort)
        self.controls = Controls(self)
        self.transcript = Transcript(is_utf8=self.is_utf8, on_scroll=self.changed)
        self.menu = Menu(is_utf8=self.is_utf8)
        self.queue_lines = Static(id="queue", markup=False)
        self.review_line = Static(id="review", markup=False)
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
        yield self.review_line
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
            self.submit(text, is_queued=is_queued)
        self._early.clear()

    # ---- what is shown -----------------------------------------------------------------------------------

    @property
    def conflict(self) -> "ConflictQuestion | None":
        return self.session.presenter.conflict if self.session else None

    @property
    def approval(self) -> "ApprovalQuestion | None":
        return self.session.presenter.approval if self.session else None

    @property
    def review(self) -> "Review | None":
        return self.session.presenter.review if self.session else None

    @property
    def is_turn_running(self) -> bool:
        return self.session is not None and self.session.talk.is_running

    def command_candidates(self) -> list[Candidate]:
        from vivace.tui.commands import COMMANDS

        return [Candidate(each.name, each.name, each.help) for each in COMMANDS]

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
        self._put(self.review_line, self._question())
        self.transcript.touch()

    def _put(self, widget: Static, text: str) -> None:
        text = theme.glyphs(text, is_utf8=self.is_utf8)
        if widget.content != text:
            widget.update(text)
            widget.display = bool(text)

    def _question(self) -> str:
        review, shown = self.review, self.key_map.shown
        if (unread_s := self.controls.unread_s) > 0:  # which keys decide is shown when they do
            self.set_timer(unread_s, self.changed)
            return ""
        if self.conflict is not None:
            return (
                f"{shown('take_edit')} take mine (the edit) · {shown('take_file')} leave the file"
                f" · {shown('merge')} merge both · {shown('stop_edit')} stop"
            )
        if self.approval is not None:
            always = f" · {shown('allow_always')} always" if self.approval.asked.can_be_kept else ""
            return f"{shown('allow')} let it run{always} · {shown('refuse')} do not"
        if review is None:
            return ""
        if review.is_by_hunk:
            number, count = (review.block.asked or 0) + 1, len(review.proposal.hunks)
            return f"Hunk {number} of {count}: {shown('accept')} take · {shown('reject')} leave"
        several = f" · {shown('by_hunk')} by hunk" if len(review.proposal.hunks) > 1 else ""
        return (
            f"{shown('accept')} take it{several} · {shown('edit')} edit first · {shown('reject')} leave it"
            f" · {shown('reply')} reply"
        )

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

    def submit(self, text: str, *, is_queued: bool) -> None:
        """Do what was said: a command, a shell command, a note, or a message for the model."""
        if self.session is None:
            self._early.append((text, is_queued))
        elif text.startswith("/") and not text.startswith("//") and "/" not in text.split()[0][1:]:
            self.run_command(text)
        elif text.startswith("!"):
            self.run_worker(self._run_shell(text[1:].strip()), exit_on_error=False)
        elif text.startswith("#") and not text.startswith("##"):
            self._remember(text[1:])
        elif is_queued:
            self.session.queue(text)
        else:
            self.session.send(text)

    def _remember(self, text: str) -> None:
        from vivace.tui.remembering import remember

        assert self.session is not None
        self.session.spawn_shown(remember(self, self.session, text))

    def run_command(self, line: str) -> None:
        from vivace.tui.commands import find

        try:
            command, argument = find(line)
        except VivaceError as error:
            self.complain(error)
            return
        if self.session is not None:
            self.session.spawn_shown(command.run(self, self.session, argument))

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
        self.status.model = _short_model(name)
        self.changed()

    # ---- other programs ----------------------------------------------------------------------------------

    async def _run_shell(self, command: str) -> None:
        """Run the user's command, show its output as it comes, and tell the model with the next message."""
        if command:
            process = await asyncio.create_subprocess_shell(
                command,
                cwd=self.folder,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
                start_new_session=True,
            )
            await self._show_output(command, process)

    async def run_program(self, *arguments: str) -> None:
        """Run one of our own commands and show what it prints."""
        process = await asyncio.create_subprocess_exec(
            *module_command("vivace", *arguments),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
        )
        await self._show_output(f"vivace {shlex.join(arguments)}", process)

    async def _show_output(self, command: str, process: asyncio.subprocess.Process) -> None:
        """Show what the program prints, to its end; whoever leaves meanwhile ends it."""
        block = self.transcript.add(Output(command))
        assert process.stdout is not None
        size_bytes = 0
        try:
            while data := await process.stdout.read(65536):
                if size_bytes < MAX_OUTPUT_BYTES:
                    block.grow(data.decode("utf-8", "replace"))
                    self.transcript.touch()
                size_bytes += len(data)
            block.end(await process.wait())
        finally:
            if process.returncode is None:
                await _end(process)
        self.transcript.touch()

    async def write_in_editor(self) -> None:
        """Let the user write the message in an editor of their own."""
        from tempfile import TemporaryDirectory

        try:
            with TemporaryDirectory() as folder:
                file = Path(folder) / "message.md"
                file.write_bytes(self.editor.whole_text.encode())
                await self.open_editor(file)
                data = file.read_bytes()
        except OSError as error:
            self.transcript.add(Note(f"The editor failed: {error}", "Set EDITOR to one that works.", "error"))
            return
        self.editor.set_text(data.decode("utf-8", "replace").rstrip("\n"))

    async def edit_proposal(self, review: "Review") -> None:
        from tempfile import TemporaryDirectory

        from vivace.agent.edits.proposal import UseText

        try:
            with TemporaryDirectory() as folder:
                files = review.proposal.write_to(Path(folder))
                await self.open_editor(*files)
                review.decide(UseText(tuple(file.read_bytes() for file in files)))
        except OSError as error:
            self.transcript.add(Note(f"The editor failed: {error}", "Set EDITOR to one that works.", "error"))

    async def merge_conflict(self, question: "ConflictQuestion") -> None:
        from tempfile import TemporaryDirectory

        from vivace.agent.edits.conflict import TakeText

        try:
            with TemporaryDirectory() as folder:
                file = Path(folder) / question.conflict.path.name
                file.write_bytes(question.conflict.marked)
                await self.open_editor(file)
                question.resolve(TakeText(file.read_bytes()))
        except OSError as error:
            self.transcript.add(Note(f"The editor failed: {error}", "Set EDITOR to one that works.", "error"))

    async def open_editor(self, *files: Path) -> None:
        editor = os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"
        with self._suspended():
            process = await asyncio.create_subprocess_exec(*shlex.split(editor), *map(str, files))
            if code := await process.wait():
                raise OSError(f"{editor} ended with exit code {code}")

    @contextlib.contextmanager
    def _suspended(self) -> Iterator[None]:
        """Leave the terminal to another program; without a terminal there is nothing to leave."""
        if self._driver is None or not self._driver.can_suspend:
            yield
            return
        with self.suspend(), lines_as_usual():
            yield


def _load() -> "tuple[type[ScreenPresenter], type[Session]]":
    """Import what the first paint does not need: the agent, the client, the grammars."""
    from vivace.tui.presenter import ScreenPresenter
    from vivace.tui.session import Session

    return ScreenPresenter, Session


async def _end(process: asyncio.subprocess.Process) -> None:
    """End a program and what it has started."""
    for sign in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, sign)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), END_S)
            return


def _is_utf8() -> bool:
    names = (os.environ.get(name, "") for name in ("LC_ALL", "LC_CTYPE", "LANG"))
    locale = next((name for name in names if name), "")
    return "utf-8" in locale.lower() or "utf8" in locale.lower()


def _short_model(model: str) -> str:
    return Path(model).stem if os.sep in model and model.endswith((".gguf", ".json")) else model


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
