"""The agent's work on a terminal: a diff that grows in place, the question, one dim line about time.

Owns what a person is told and asked, and in which words. Does not own how lines are drawn (`screen`), nor
what is written to the file (`agent.edits.flow`).
"""

import asyncio
import sys
import tempfile
from pathlib import Path

from vivace.agent import waterfall
from vivace.agent.edits.apply.entries import way_back
from vivace.agent.edits.conflict import Conflict, Resolution, Stop, TakeEdit, TakeFile, TakeText
from vivace.agent.edits.proposal import Accept, AcceptHunks, Decision, Proposal, Reject, UseText
from vivace.agent.events.base import Failed
from vivace.agent.events.edit import (
    AnswersCompared,
    ComparingAnswers,
    DiffGrew,
    EditApplied,
    EditNotApplied,
    EditPlanned,
    EditProposed,
    EditStarted,
    ImportsAdded,
    NamesUndefined,
    RepairStarted,
    UnitLeft,
    UnitLocated,
    UserTestsEnded,
    UserTestsStarted,
)
from vivace.agent.events.every import AgentEvent
from vivace.agent.events.talk import ModelProgress
from vivace.agent.events.turn import AnswerGrew, AttemptStarted, MemoryUsed, TimesMeasured, WritingEnded
from vivace.agent.user_editor import edit_bytes, edit_files
from vivace.cli.show.screen import Screen, complain
from vivace.cli.show.spinner import Spinner
from vivace.errors import UsageError


class TerminalPresenter:
    def __init__(self, *, verbose: bool, was_run: bool = False) -> None:
        self._verbose = verbose
        self._screen = Screen()
        self._spinner = Spinner(self._screen)
        self._was_run = was_run  # something of the change, in the sandbox
        self._is_answering = False  # a question; otherwise an edit
        self._times: TimesMeasured | None = None  # shown at the end, below what came of the edit

    def show(self, event: AgentEvent) -> None:
        if isinstance(event, ModelProgress):
            self._spinner.reason = event.in_words
            return
        self._spinner.stop()
        screen = self._screen
        match event:
            case EditStarted():
                self._spinner.wait_for("Choosing the part to change")
            case EditPlanned():
                self._show_plan(event)
            case MemoryUsed():
                screen.dim(event.in_words)
            case UnitLeft():
                screen.end_live()
                screen.dim(event.in_words)
            case UnitLocated(source=source, unit=unit):
                screen.end_live()
                screen.bold(f"{source.path}:{unit.lines_text}  {unit.qualified_name}")
                self._spinner.wait_for(f"Reading {unit.qualified_name}")
            case ComparingAnswers(problem=problem):
                screen.end_live()
                if problem:
                    screen.dim(problem)
                self._spinner.wait_for("Trying other answers")
            case RepairStarted(complaint=complaint):
                screen.dim(complaint)
                self._spinner.wait_for("Telling the model what is wrong")
            case UserTestsStarted(command=command):
                self._spinner.wait_for(f"Running {command}")
            case AnswersCompared() | UserTestsEnded():
                self._was_run = self._was_run or event.was_run
                screen.dim(event.in_words)
            case ImportsAdded() | NamesUndefined():
                screen.dim(event.in_words)
            case AttemptStarted():
                self._is_answering = True
                self._spinner.wait_for("Reading")
            case DiffGrew():
                if screen.is_live_due:
                    screen.draw_live(event.rows)
            case AnswerGrew(text=delta):
                screen.write(delta)
            case WritingEnded():
                screen.end_live()
            case EditProposed():
                self._show_proposal(event)
            case TimesMeasured():
                self._times = event
                if self._is_answering:
                    screen.say()
                    self._show_times()
            case EditApplied():
                self._show_written(event)
            case EditNotApplied(reason=reason):
                if reason != "shown_only":
                    screen.say("Nothing written.")
                self._show_times()
            case Failed() as error:
                complain(error.message, error.hint)

    def _show_plan(self, event: EditPlanned) -> None:
        self._screen.say("Plan:")
        for planned in event.units:
            self._screen.say(f"  {planned.path}:{planned.unit.lines_text}  {planned.in_words}")

    def _show_written(self, event: EditApplied) -> None:
        run = "" if self._was_run else ", not run"
        self._screen.say(f"Wrote {event.proposal.paths_text}{run} ({way_back(event.number)}).")
        for path in event.merged_paths:
            self._screen.say(f"{path} had changed meanwhile: both changes are in it now.")
        self._show_times(event.apply_ms)

    def _show_times(self, apply_ms: float | None = None) -> None:
        """Say where the time of the turns went: one line, or every stage if that was asked for."""
        times = self._times
        if times is None:
            return
        turns = [(turn.name, turn) for turn in times.turns]
        self._screen.dim(waterfall.one_line(times.model, [each for _, each in turns], times.first_token_ms))
        if self._verbose:
            for row in waterfall.table(turns, times.first_token_ms, apply_ms):
                self._screen.dim(row)

    async def decide(self, proposal: Proposal) -> Decision:
        """Ask until there is an answer; the end of the input is a no."""
        several = len(proposal.hunks) > 1
        question = f"Apply? [y]es, [n]o, {'[h]unk by hunk, ' if several else ''}[e]dit: "
        while True:
            match await read_answer(question):
                case "y" | "yes":
                    return Accept()
                case "n" | "no" | None:
                    return Reject()
                case "e" | "edit":
                    if edited := await _edited(proposal):
                        return edited
                case "h" | "hunks" if several:
                    return await self._choose_hunks(proposal)

    async def resolve(self, conflict: Conflict) -> Resolution:
        """Show both changes and ask which one to take; the end of the input stops."""
        screen = self._screen
        screen.say(conflict.message)
        screen.bold("The file was changed so meanwhile:")
        screen.show_diff(conflict.file_rows)
        screen.bold("The edit would change it so now:")
        screen.show_diff(conflict.edit_rows)
        while True:
            match await read_answer(
                "Take [m]ine (the edit), the [f]ile as it is, m[e]rge in an editor, [s]top: "
            ):
                case "m" | "mine":
                    return TakeEdit()
                case "f" | "file":
                    return TakeFile()
                case "e" | "edit" | "merge":
                    if merged := await _merged(conflict):
                        return merged
                case "s" | "stop" | None:
                    return Stop()

    def _show_proposal(self, event: EditProposed) -> None:
        proposal = event.proposal
        for file in proposal.files:
            if len(proposal.files) > 1 and file.hunks:
                self._screen.bold(str(file.source.path))
            self._screen.show_diff(file.rows)
        for missing in proposal.missing:
            self._screen.say(f"Not in it: {missing}")
        for fault in proposal.faults:
            self._screen.say(f"Careful: {fault}")
        if event.by == "user":
            if not proposal.changed:
                self._screen.say("There is nothing to change: this is the file as it is.")
            for problem in proposal.problems:
                self._screen.say(f"Careful: {problem}")

    async def _choose_hunks(self, proposal: Proposal) -> AcceptHunks | Reject:
        chosen = set()
        for index, hunk in enumerate(proposal.hunks):
            self._screen.show_diff(hunk.rows_with_header)
            answer = await read_answer(f"This hunk ({index + 1} of {len(proposal.hunks)})? [y]es, [n]o: ")
            if answer is None:
                return Reject()
            if answer in ("y", "yes"):
                chosen.add(index)
        return AcceptHunks(frozenset(chosen)) if chosen else Reject()


async def read_answer(question: str) -> str | None:
    """Ask at the terminal and return the line in lower case, or None at the end of the input.

    The event loop goes on meanwhile, so that Ctrl-C and the connection are served.
    """
    sys.stdout.write(question)
    sys.stdout.flush()
    loop = asyncio.get_running_loop()
    line: asyncio.Future[str] = loop.create_future()

    def read() -> None:
        if not line.done():
            line.set_result(sys.stdin.readline())

    loop.add_reader(sys.stdin, read)
    try:
        answer = await line
    finally:
        loop.remove_reader(sys.stdin)
    if not answer:  # Ctrl+D ends no line
        sys.stdout.write("\n")
        return None
    return answer.strip().lower()


async def _edited(proposal: Proposal) -> UseText | None:
    """Return the proposed files as the user left them in an editor; None if the editor failed."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            return UseText(await edit_files(proposal.write_to(Path(folder))))
        except UsageError as error:
            complain(error.message, error.hint)
            return None


async def _merged(conflict: Conflict) -> TakeText | None:
    """Return the file with both changes as the user left it in an editor; None if the editor failed."""
    try:
        return TakeText(await edit_bytes(conflict.path.name, conflict.marked))
    except UsageError as error:
        complain(error.message, error.hint)
        return None
