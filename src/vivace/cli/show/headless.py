"""A conversation for a program or a pipe: text, one JSON object, or every line of the transcript.

Owns what goes to stdout, and that nothing else does. Asks nobody: yes was said beforehand, or nothing is
written.
"""

import sys

from vivace.agent.conversation.transcript.file import encode_record
from vivace.agent.conversation.transcript.recording import unified
from vivace.agent.conversation.transcript.records import AnyRecord
from vivace.agent.edits.apply.entries import way_back
from vivace.agent.edits.conflict import Conflict, Resolution, Stop
from vivace.agent.edits.proposal import Decision, Proposal, Reject
from vivace.agent.events import task as steps
from vivace.agent.events.base import Failed
from vivace.agent.events.edit import (
    AnswersCompared,
    EditApplied,
    EditPlanned,
    EditProposed,
    ImportsAdded,
    NamesUndefined,
    UnitLeft,
    UserTestsEnded,
)
from vivace.agent.events.every import AgentEvent
from vivace.agent.events.talk import CompactionStarted, ModelProgress
from vivace.agent.events.task import AnyStep
from vivace.agent.events.turn import (
    AnswerGrew,
    AttemptAbandoned,
    CodeRead,
    HistoryReplayed,
    MemoryUsed,
    Result,
    TaskStepped,
    TurnStarted,
)
from vivace.agent.tools.bounded import printable
from vivace.cli.show.plain_output import PlainOutput
from vivace.cli.show.screen import complain
from vivace.cli.talk.prompt_options import OutputFormat
from vivace.redaction import redact


class HeadlessPresenter:
    def __init__(self, output_format: OutputFormat) -> None:
        self._format = output_format
        self._out = PlainOutput()
        self._has_begun = False  # the message it was called with
        self._was_run = False  # something of the change, in the sandbox
        self._is_loading = False  # that the model is being loaded was said
        self.error: Failed | None = None  # with which the turn failed
        self.why_refused = ""  # a call of a tool, the last one

    def take(self, record: AnyRecord) -> None:
        """Print a line of the transcript, if all of them are wanted."""
        if self._format == "stream-json":
            _print_line(record)

    def show(self, event: AgentEvent) -> None:
        match event:
            case Failed():
                self.error = event
            case TaskStepped(step=steps.CallEnded(status="refused", summary=summary)):
                self.why_refused = redact(printable(summary))
        if isinstance(event, Failed):
            return
        if self._format == "text":
            self._show_text(event)

    def _show_text(self, event: AgentEvent) -> None:
        match event:
            case AnswerGrew(text=delta):
                self._out.write(delta)
            case TaskStepped(step=step):
                self._show_step(step)
            case CodeRead() | MemoryUsed():
                self.progress(f"({event.in_words})")
            case TurnStarted(text=said):
                if self._has_begun:
                    self._out.end_line()
                    self.progress(f"Queued by another face: {redact(printable(said))}")
                self._has_begun = True
            case AttemptAbandoned(why=why, steer=steer):
                self._out.end_line()
                went = "The server went away" if why == "server_gone" else "Steered by another face"
                said = f": {redact(printable(steer))}" if steer else ""
                self.progress(f"{went}{said}; this is the answer from its beginning.")
            case HistoryReplayed(left_out=left_out) if left_out:
                self.progress(event.in_words)
            case ModelProgress(is_loading=is_loading):
                if is_loading and not self._is_loading:
                    self.progress(f"({event.in_words})")
                self._is_loading = is_loading
            case CompactionStarted():
                self.progress("The conversation is nearly full and is summarised.")
            case EditPlanned(units=units):
                steps = "".join(f"\n  {each.path}: {each.in_words}" for each in units)
                self.progress(f"Plan:{steps}")
            case UnitLeft():
                self.progress(event.in_words)
            case EditProposed(proposal=proposal):
                self._out.write("".join(map(unified, proposal.files)))
                for fault in proposal.faults:
                    self.progress(f"Careful: {fault}")
            case AnswersCompared() | UserTestsEnded():
                self._was_run = self._was_run or event.was_run
                self.progress(event.in_words)
            case ImportsAdded() | NamesUndefined():
                self.progress(event.in_words)
            case EditApplied(proposal=proposal, number=number):
                run = "" if self._was_run else ", not run"
                self.progress(f"Wrote {proposal.paths_text}{run} ({way_back(number)}).")

    def _show_step(self, step: AnyStep) -> None:
        """Show what a model with tools says and changes; its calls are no part of the answer."""
        match step:
            case steps.TextGrew(text=text):
                self._out.write(printable(text))
            case steps.TurnBegan():
                self._out.end_line()
            case steps.ServersOpened(problems=problems):
                for problem in problems:
                    self.progress(redact(printable(problem)))
            case steps.CallStarted(tool=tool, title=title):
                self.progress(redact(printable(f"· {tool} {title}")))
            case steps.CallEnded(tool=tool, status=status, summary=summary) if status != "done":
                self.progress(redact(printable(f"  {tool} {status}: {summary}")))
            case steps.FilesWritten(entry=entry, diff=diff, paths=paths):
                self._out.end_line()
                self._out.write(redact(printable(diff)))
                self.progress(f"Wrote {', '.join(paths)} ({way_back(entry)}).")

    def finish(self, result: Result) -> None:
        """Print the end."""
        if self._format != "text":
            _print_line(result)
        elif result.error is not None:
            self._out.end_line()
            complain(result.error.message, result.error.hint)
        else:
            self._out.end_line()

    def progress(self, text: str) -> None:
        """Tell a person something that is not part of the answer."""
        print(text, file=sys.stderr, flush=True)

    async def decide(self, proposal: Proposal) -> Decision:
        del proposal
        return Reject()

    async def resolve(self, conflict: Conflict) -> Resolution:
        del conflict
        return Stop()


def _print_line(record: AnyRecord | Result) -> None:
    sys.stdout.write(encode_record(record).decode() + "\n")
    sys.stdout.flush()
