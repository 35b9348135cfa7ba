"""What happens while files are edited, as values that any face can show.

Owns shapes only. `edits.flow` says them in this order: started, planned if there are several units, for each
unit located and grew …, ended (`turn`), proposed, measured, decided, applied or not applied. Does not
own how they are shown (`presenter`).
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from vivace.agent.edits.apply.journal import Entry
from vivace.agent.edits.apply.source import SourceFile
from vivace.agent.edits.conflict import Resolution, TakeEdit, TakeFile, TakeText
from vivace.agent.edits.find.units import Unit
from vivace.agent.edits.proposal import Decision, Proposal
from vivace.agent.edits.repair.imports.python_names import undefined_in_words
from vivace.agent.edits.write.live_diff import LiveDiff, Row

Reason = Literal["rejected", "nothing_to_change", "shown_only"]  # why nothing was written


@dataclass(frozen=True)
class EditStarted:
    """The file was read. Without a unit the model is asked which one to change."""

    source: SourceFile
    unit: Unit | None
    instruction: str


@dataclass(frozen=True)
class PlannedUnit:
    path: Path
    unit: Unit  # in the file as it was read
    why: str  # such as "calls load"

    @property
    def in_words(self) -> str:
        return f"{self.unit.qualified_name} ({self.why})"


@dataclass(frozen=True)
class EditPlanned:
    """Several units are rewritten, one after the other. It comes again when the plan has grown."""

    units: tuple[PlannedUnit, ...]


@dataclass(frozen=True)
class UnitLeft:
    """A unit of the plan stays as it is: it needs no change, or the model's answer cannot be used."""

    path: Path
    unit: Unit
    problem: str  # in sentences; "" if it needs no change

    def is_failure_of(self, unit: Unit) -> bool:
        """Return whether this unit should have changed; it may also be an overload signature of one."""
        return self.unit is unit and self.problem != ""

    @property
    def in_words(self) -> str:
        return f"{self.unit.qualified_name} stays as it is. {self.problem or 'It needs no change.'}"


@dataclass(frozen=True)
class UnitLocated:
    """The unit is known: lines `first_line` to `last_line` of the source. The model reads it now."""

    source: SourceFile
    unit: Unit
    was_ranked: bool  # by the model; otherwise the user named it


@dataclass(frozen=True)
class DiffGrew:
    """The model wrote more of the new unit.

    Read `rows` before the next event, or not at all: they cost time, and the diff goes on growing.
    """

    delta: str  # as the model wrote it
    diff: LiveDiff
    partial: str  # the line in progress
    opening: str = (
        ""  # of the new unit, which the model did not have to write; it stands before the first delta
    )

    @property
    def rows(self) -> list[Row]:
        """Return the whole diff of the unit so far."""
        return self.diff.rows(self.partial)


@dataclass(frozen=True)
class ComparingAnswers:
    """The model writes other answers, to choose among: the effort asks for it, or the first is no good."""

    count: int  # how many at most
    problem: str  # of the first answer, in a sentence; "" if there is none


@dataclass(frozen=True)
class AnswersCompared:
    """One of the answers was chosen; `EditProposed` follows."""

    answers: int  # different ones that could be used
    examples: int  # that were run in the sandbox
    held: int  # of them, for the one that was chosen
    calls: int = 0  # with made-up arguments, also in the sandbox, that compare new with old code

    @property
    def was_run(self) -> bool:
        return bool(self.examples or self.calls)

    @property
    def in_words(self) -> str:
        """Say how an answer was chosen, and whether anything was run for it."""
        held = f"{self.held} of {self.examples} examples hold" if self.examples else ""
        compared = f"compared with the old code in {self.calls} calls" if self.calls else ""
        run = ", ".join(filter(None, (held, compared))) or "nothing was run"
        return f"The best of {self.answers} answers; {run}."


@dataclass(frozen=True)
class RepairStarted:
    """The model is told what is wrong with its answer, and writes it once more."""

    complaint: str  # as the model reads it


@dataclass(frozen=True)
class ImportsAdded:
    """The new text needed imports that the file lacked. They are a part of the proposal that follows."""

    source: SourceFile
    unit: Unit  # the import block; it may be changed, too
    lines: tuple[str, ...]  # that were added or changed

    @property
    def in_words(self) -> str:
        return f"Imported what it needs: {'; '.join(self.lines)}"


@dataclass(frozen=True)
class NamesUndefined:
    """The proposal that follows leaves names in a file that nothing defines, and no import is known for."""

    path: Path
    names: tuple[str, ...]

    @property
    def in_words(self) -> str:
        return f"{undefined_in_words(self.names)} in {self.path.name}."


@dataclass(frozen=True)
class UserTestsStarted:
    """The tests that the user allowed run over a copy of the workspace with the change in it."""

    command: str


@dataclass(frozen=True)
class UserTestsEnded:
    """The tests have run, or could not. `EditProposed` follows, with the answer that passed or the best."""

    has_passed: bool
    tried: int  # answers, the best first; 0: nothing was run
    why_not: str = ""  # they were not run
    output: str = ""  # the end of what they said about the best answer, if none passed

    @property
    def was_run(self) -> bool:
        return self.tried > 0

    @property
    def in_words(self) -> str:
        """Say what came of the tests, or plainly that they were not run."""
        if not self.tried:
            return f"Tests not run: {self.why_not}"
        answers = f"{self.tried} answer{'' if self.tried == 1 else 's'} tried"
        if self.has_passed:
            return f"Tests passed: {answers}."
        return f"Tests failed: {answers}.\n{self.output}".rstrip()


@dataclass(frozen=True)
class EditProposed:
    """The edit is whole and was checked. It comes again when the user has changed it."""

    proposal: Proposal
    by: Literal["model", "user"]


@dataclass(frozen=True)
class EditDecided:
    """The user has answered, or the approval policy did."""

    proposal: Proposal
    decision: Decision


@dataclass(frozen=True)
class ConflictResolved:
    """A file changed meanwhile and could not be merged with the edit; the user has said what to do."""

    path: Path
    resolution: Resolution

    @property
    def choice(self) -> Literal["edit", "file", "text", "stop"]:
        match self.resolution:
            case TakeEdit():
                return "edit"
            case TakeFile():
                return "file"
            case TakeText():
                return "text"
        return "stop"


@dataclass(frozen=True)
class EditApplied:
    """The files have their new bytes, and the journal has the old ones."""

    proposal: Proposal
    entry: Entry | None  # None: the face has it in buffers that are not saved, and its own undo for them
    apply_ms: float

    @property
    def number(self) -> int:
        """Return the number in the undo journal; 0 if it has no entry."""
        return self.entry.number if self.entry else 0

    @property
    def merged_paths(self) -> list[str]:
        """Return the files that had changed meanwhile: the edit was merged with that."""
        return [file.path for file in self.entry.files if file.is_merged] if self.entry else []


@dataclass(frozen=True)
class EditNotApplied:
    """Every file is as it was."""

    proposal: Proposal
    reason: Reason
