"""A task on a terminal, in a pipe or for a program: text, or a line of JSON for every step.

Owns what goes to stdout and stderr, and the question whether a call may run. Where nobody can be asked the
answer is no. Text of tools and models is printed without control characters and without known secrets; what
is asked about is printed whole, with every character to be seen.
"""

import asyncio
import contextlib
import shutil
import sys
import termios
from collections.abc import Sequence

from vivace.agent.edits.apply.entries import way_back
from vivace.agent.events.task import (
    AnyStep,
    ApprovalAsked,
    CallEnded,
    CallStarted,
    ChangeTakenBack,
    FilesWritten,
    MemoryRead,
    PlanUpdated,
    RedactedSteps,
    ServersOpened,
    Steered,
    StepBegan,
    StepEnded,
    TaskEnded,
    TextGrew,
    encode_step,
)
from vivace.agent.loop.calls import Approval
from vivace.agent.permissions.shown import in_rows, shown_in_line
from vivace.agent.tools.bounded import printable
from vivace.cli.show.plain_output import PlainOutput
from vivace.cli.show.screen import complain
from vivace.cli.tasks.task_options import OutputFormat
from vivace.redaction import redact

MARKS = {"completed": "[x]", "in_progress": "[>]", "pending": "[ ]"}
REASONS = {
    "stopped": "The task was stopped.",
    "turns": "The task had as many turns as were allowed, and is not done.",
    "tokens": "The task had as many tokens as were allowed, and is not done.",
    "time": "The task had as much time as was allowed, and is not done.",
    "context": "The task is too long for the model's context.",
    "malformed_calls": "The model called its tools wrongly three times in a row, and was stopped.",
    "failed": "The task failed.",
}
NOBODY = "Nobody is here to ask."


class TaskFace:
    def __init__(self, output_format: OutputFormat, about_edits: str = "") -> None:
        self._format = output_format
        self._about_edits = about_edits  # what can be done about them; "": each can be undone
        self._out = PlainOutput()
        self._redacted = RedactedSteps()

    def show(self, step: AnyStep) -> None:
        for each in self._redacted.take(step):
            if self._format == "stream-json":
                sys.stdout.write(encode_step(each) + "\n")
                sys.stdout.flush()
            else:
                self._show_text(each)

    def _show_text(self, step: AnyStep) -> None:
        match step:
            case TextGrew(text=text):
                self._out.write(printable(text))
            case MemoryRead(files=files, notes=notes, problem=problem):
                self.progress("\n".join(filter(None, [_memory_in_words(files, notes), problem])))
            case ServersOpened(problems=problems):
                for problem in problems:
                    self.progress(printable(problem))
            case CallStarted(tool=tool, title=title):
                self._out.line(f"· {tool} {_one_line(title)}")
            case CallEnded(tool=tool, status=status, summary=summary) if status != "done":
                self._out.line(f"  {tool} {status}: {_one_line(summary)}")
            case CallEnded(summary=summary):
                self._out.line(f"  {_one_line(summary)}")
            case FilesWritten(diff=diff):
                self._out.line(redact(printable(diff)).rstrip("\n"))
            case PlanUpdated(steps=steps):
                for each in steps:
                    self._out.line(f"  {MARKS.get(each.status, '[ ]')} {_one_line(each.step)}")
            case StepBegan(key=key, title=title):
                self._out.line(f"{key}  {_one_line(title)}")
            case StepEnded(key=key, status=status, output=output) if status == "failed":
                self._out.line(f"{key}  failed: {_one_line(output)}")
            case ChangeTakenBack(problem=problem):
                self._out.line(f"  taken back: {_one_line(problem)}")
            case Steered(text=text):
                self._out.line(f"> {_one_line(text)}")
            case TaskEnded():
                self._end(step)

    def _end(self, step: TaskEnded) -> None:
        self._out.end_line()
        if step.entries:
            edits = "an edit" if len(step.entries) == 1 else f"{len(step.entries)} edits"
            self.progress(f"Wrote {edits} ({self._about_edits or _ways_back(step.entries)}).")
        if step.refused:
            self.progress(f"{step.refused} of its calls were not allowed.")
        if step.error:
            complain(step.error.message, step.error.hint)
        elif step.reason in REASONS:
            complain(REASONS[step.reason])

    async def approve(self, asked: ApprovalAsked) -> Approval:
        if not (sys.stdin.isatty() and sys.stderr.isatty()):
            return Approval(is_allowed=False, reason=NOBODY)
        self._out.end_line()
        show_question(asked)
        forget_typed()
        print("Allow it, this once? [y/N] ", end="", file=sys.stderr, flush=True)
        answer = await _typed_line()
        return Approval(is_allowed=answer.strip().lower() in ("y", "yes"), digest=asked.digest)

    def progress(self, text: str) -> None:
        """Tell a person something that is not part of the output."""
        print(text, file=sys.stderr, flush=True)


def _ways_back(entries: Sequence[int]) -> str:
    """Say how these entries of the journal are taken back."""
    *others, last = entries
    if not others:
        return way_back(last)
    return f"{', '.join(map(str, others))} and {last}; `vivace undo --number N` takes one of them back"


def show_question(asked: ApprovalAsked) -> None:
    """Print all of what is asked about, each row with a mark: no command can look like our words."""
    print(f"{asked.reason}\n\n    {shown_in_line(asked.tool)}", file=sys.stderr)
    show_whole(asked.shown or asked.title)
    print(file=sys.stderr, flush=True)


def show_whole(written: str) -> None:
    """Print what a person is to approve or trust. Say so if its beginning has left the screen."""
    screen = shutil.get_terminal_size()
    found = in_rows(written, screen.columns - 4)
    for row in found:
        print(f"    {row}", file=sys.stderr)
    if len(found) > screen.lines - 6:
        print(f"    ({len(found):,} rows: the first ones are further up)", file=sys.stderr)


def forget_typed() -> None:
    """Drop what was typed before the question was shown: it is no answer to it."""
    with contextlib.suppress(termios.error, OSError, ValueError):
        termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)


def _memory_in_words(files: Sequence[str], notes: Sequence[str]) -> str:
    used = [*files, *(f"# {_one_line(note)}" for note in notes)]
    return f"using {', '.join(used)}" if used else ""


def _one_line(text: str) -> str:
    """Return the first line, without secrets, of a width that a terminal shows."""
    first, _, rest = redact(printable(text)).strip().partition("\n")
    return f"{first[:200]} …" if rest or len(first) > 200 else first


async def _typed_line() -> str:
    """Wait for a line from the terminal. No thread waits for it: a stopped task leaves none behind."""
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    loop.add_reader(sys.stdin.fileno(), ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(sys.stdin.fileno())
    return sys.stdin.readline()
