"""The steps of an edit on the screen: its plan, its growing diff, what was tried, how it ended.

Owns the block of the edit at hand. Does not own the question about it (`questions`) nor the edit
(`agent.edits`).
"""

from collections.abc import Callable, Sequence
from pathlib import Path

from vivace.agent.events import edit as edit_events
from vivace.agent.events import turn as turn_events
from vivace.agent.events.every import AgentEvent
from vivace.tui.transcript.blocks import Note
from vivace.tui.transcript.diff import EditBlock
from vivace.tui.transcript.view import Transcript


class EditSteps:
    def __init__(self, transcript: Transcript, folder: Path, say: Callable[[str], None]) -> None:
        self._transcript, self._folder, self._say = transcript, folder, say
        self.block: EditBlock | None = None  # of the edit at hand
        self._was_run = False  # in the sandbox

    def begin(self) -> None:
        """Forget the edit before: the next step belongs to a new one."""
        self.block = None

    def grow(self, event: edit_events.DiffGrew) -> None:
        """Show more of the text that the model writes."""
        if self.block is not None:
            self.block.grow(event.diff, event.partial)
        self._say("writing")

    def strike(self) -> None:
        """Show that the edit was turned around."""
        if self.block is not None:
            self.block.strike()
        self.block = None

    def show(self, event: AgentEvent) -> bool:
        """Show a step of an edit. Return whether the event is one."""
        match event:
            case turn_events.FileChosen(path=path):
                self._say(f"reading {Path(path).name}")
            case edit_events.EditStarted(source=source):
                self._was_run = False
                self.block = self._transcript.add(
                    EditBlock(named(self._folder, source.path), source.path.suffix)
                )
                self._say("choosing the part to change")
            case edit_events.EditPlanned(units=units):
                self._show_plan(units)
            case edit_events.UnitLeft():
                self._transcript.add(Note(event.in_words))
            case edit_events.UnitLocated(source=source, unit=unit):
                if self.block is not None:
                    title = f"{named(self._folder, source.path)}:{unit.lines_text}  {unit.qualified_name}"
                    self.block.locate(title, unit.first_line)
                self._say(f"reading {unit.qualified_name}")
            case edit_events.ComparingAnswers():
                self._say("trying other answers")
            case edit_events.AnswersCompared():
                self._was_run = event.was_run
                self._transcript.add(Note(event.in_words))
            case edit_events.RepairStarted(complaint=complaint):
                self._transcript.add(Note(complaint))
                self._say("telling the model what is wrong")
            case edit_events.UserTestsStarted(command=command):
                self._say(f"running {command}")
            case edit_events.UserTestsEnded():
                self._was_run = self._was_run or event.was_run
                self._transcript.add(Note(event.in_words))
            case edit_events.ImportsAdded() | edit_events.NamesUndefined():
                self._transcript.add(Note(event.in_words))
            case edit_events.EditProposed(proposal=proposal):
                if self.block is not None:
                    self.block.propose(proposal)
            case edit_events.EditApplied():
                self._end(f"written{'' if self._was_run else ', not run'} · /undo takes it back")
            case edit_events.EditNotApplied(reason=reason):
                self._end("nothing to change" if reason == "nothing_to_change" else "not written")
            case _:
                return False
        return True

    def _show_plan(self, units: Sequence[edit_events.PlannedUnit]) -> None:
        if self.block is not None:
            self.block.plan(
                [
                    f"{named(self._folder, each.path)}:{each.unit.lines_text}  {each.in_words}"
                    for each in units
                ]
            )

    def _end(self, words: str) -> None:
        if self.block is not None:
            self.block.end(words)
        self.block = None


def named(folder: Path, path: Path) -> str:
    """Return the path as a person in this folder writes it."""
    return str(path.relative_to(folder)) if path.is_relative_to(folder) else str(path)
