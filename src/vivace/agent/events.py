"""What happens while the agent works, as values that any face can show: terminal, JSON, editor, browser.

Owns shapes only. `edits.flow` and `ask` say them in this order: started, planned if there are several units,
for each unit located and grew …, ended, proposed, measured, decided, applied or not applied. A `conversation`
puts `TurnStarted` and `TurnEnded` around them and has events of its own, below. Does not
own how they are shown (`presenter`).
"""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from vivace.agent.edits.apply.journal import Entry
from vivace.agent.edits.apply.source import SourceFile
from vivace.agent.edits.conflict import Resolution, TakeEdit, TakeFile, TakeText
from vivace.agent.edits.find.units import Unit
from vivace.agent.edits.proposal import Decision, Proposal
from vivace.agent.edits.repair.imports.python_names import undefined_in_words
from vivace.agent.edits.write.live_diff import LiveDiff, Row
from vivace.errors import VivaceError
from vivace.protocol.shapes.events import Waterfall

if TYPE_CHECKING:
    from vivace.agent.loop.steps import AnyStep  # which has the transcript's records, which have events

Reason = Literal["rejected", "nothing_to_change", "shown_only"]  # why nothing was written
TurnKind = Literal["question", "edit", "task"]  # task: the model calls tools
TurnStatus = Literal["completed", "cut", "stopped", "failed"]  # cut: at the limit of the answer's tokens


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
class AnswerStarted:
    """A question was asked; the model reads it now."""


@dataclass(frozen=True)
class ReasoningGrew:
    """The model thinks, before its answer. It is shown folded, and is no part of the answer."""

    delta: str


@dataclass(frozen=True)
class AnswerGrew:
    """The model wrote more of its answer."""

    delta: str


@dataclass(frozen=True)
class WritingEnded:
    """The model writes no more, for whatever reason: it is done, it failed, or it was interrupted."""


@dataclass(frozen=True)
class EditProposed:
    """The edit is whole and was checked. It comes again when the user has changed it."""

    proposal: Proposal
    by: Literal["model", "user"]


@dataclass(frozen=True)
class TurnTimes:
    name: str  # locate, rewrite, answer
    waterfall: Waterfall


@dataclass(frozen=True)
class TimesMeasured:
    """Where the time of the model's turns went."""

    model: str
    turns: tuple[TurnTimes, ...]
    first_token_ms: float  # from Enter to the first text


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


@dataclass(frozen=True)
class Failed:
    """It ended with an error, and nothing was written."""

    error: VivaceError


# ---- a conversation ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class TurnStarted:
    """A message of the user's was taken up. `TurnEnded` follows, whatever happens."""

    turn: int  # 1 for the first of the conversation
    text: str
    mentions: tuple[str, ...]  # `path` or `path:name`, without the @


@dataclass(frozen=True)
class IntentDecided:
    """It is known what the message is. A question is answered; anything else changes a file."""

    kind: TurnKind
    by: Literal["words", "model", "user"]


@dataclass(frozen=True)
class FileChosen:
    """It is known which file an edit is about."""

    path: Path
    by: Literal["mention", "recent", "name", "model"]  # name: the message names it, or something in it


@dataclass(frozen=True)
class CodePiece:
    """Code that goes before a question although the user mentioned none."""

    path: str  # relative to the conversation's folder
    unit: str = ""  # the unit's qualified name; "" for the whole file
    by: Literal["name", "recent"] = "name"  # the question names it, or it was spoken of before
    max_chars: int = 0  # of what is shown of it
    is_shortened: bool = False  # it is longer: its outline is shown, or its beginning

    @property
    def label(self) -> str:
        """Return its name as a person reads it."""
        name = f"{self.path}: {self.unit}" if self.unit else self.path
        return f"{name} (outline)" if self.is_shortened else name


@dataclass(frozen=True)
class CodeRead:
    """The model reads this code with the question."""

    pieces: tuple[CodePiece, ...]

    @property
    def in_words(self) -> str:
        return f"reading {', '.join(piece.label for piece in self.pieces)}"


@dataclass(frozen=True)
class GivenFile:
    """An instruction file that the model reads."""

    path: str  # with its folder
    shown: str  # its name for people
    digest: str  # of its text: another text has another one


@dataclass(frozen=True)
class MemoryUsed:
    """The model reads these instruction files and notes of the user's with the message."""

    files: tuple[GivenFile, ...]
    notes: tuple[str, ...]
    problem: str = ""  # why the notes could not be read

    @property
    def names(self) -> str:
        """Return the files' names and the number of notes; "" if there is neither."""
        count = len(self.notes)
        notes = [f"{count} note{'' if count == 1 else 's'}"] if count else []
        return ", ".join([*(file.shown for file in self.files), *notes])

    @property
    def in_words(self) -> str:
        lines = [f"using {self.names}"] if self.names else []
        lines += [f"  # {' '.join(note.split())}" for note in self.notes]
        return "\n".join([*lines, *filter(None, [self.problem])])


NO_MEMORY = MemoryUsed((), ())


@dataclass(frozen=True)
class ResponseBegan:
    """The server has begun a response. By its id the conversation can go on later."""

    response_id: str


@dataclass(frozen=True)
class Abandoned:
    """What was written since the last `AnswerStarted` or `EditStarted` does not stand. Strike it through.

    It is kept. A new `AnswerStarted` or `EditStarted` follows.
    """

    chars: int  # its length
    why: Literal["steered", "server_gone"]
    steer: str = ""  # what the user said instead


@dataclass(frozen=True)
class SteerQueued:
    """The steer came when the answer was over. It is the first message of the queue now."""

    text: str


@dataclass(frozen=True)
class TurnEnded:
    """The turn is over, and its partial answer, if any, is kept."""

    turn: int
    status: TurnStatus
    response_id: str = ""  # to continue from; "" for an edit
    total_tokens: int = 0  # of the conversation's log at the server; 0 if it is not known
    answer_tokens: int = 0  # of the last answer in it


@dataclass(frozen=True)
class QueuedMessage:
    """A message that waits for the end of the turn."""

    id: int
    text: str
    mentions: tuple[str, ...] | None = None  # None: those in the text


@dataclass(frozen=True)
class QueueChanged:
    """These messages wait, the next one first."""

    messages: tuple[QueuedMessage, ...]


@dataclass(frozen=True)
class PromptWarmed:
    """The model has read this much of what is being typed. Told often, and not kept."""

    warm_tokens: int
    prompt_tokens: int  # of the draft, with all that stands before it


@dataclass(frozen=True)
class CompactionStarted:
    """The model writes a summary of the conversation."""

    why: Literal["asked", "window"]  # window: the conversation had nearly filled it


@dataclass(frozen=True)
class Compacted:
    """From now on the model reads the summary instead of the turns before. Can be undone."""

    turn: int  # the last turn that the summary is about
    summary: str  # with the user's own words and the decisions
    before_tokens: int


@dataclass(frozen=True)
class CompactionUndone:
    """The model reads the turns themselves again."""


@dataclass(frozen=True)
class Retold:
    """The server has no response to go on from: the model reads the latest turns from the transcript."""

    first_turn: int  # that is told; 0: none of them fits
    left_out: int  # earlier turns that do not fit

    @property
    def in_words(self) -> str:
        """Say what the model does not read."""
        told = f"from turn {self.first_turn} on" if self.first_turn else "without what was said before"
        return (
            f"The model reads the conversation anew, {told}: {self.left_out} earlier turns do not fit its "
            "window. They are kept in the transcript."
        )


@dataclass(frozen=True)
class Rewound:
    """The conversation stands before this turn again: its talk, its code, or both."""

    turn: int
    is_talk: bool
    is_code: bool
    paths: tuple[str, ...] = ()  # of files that have their old bytes again
    entries: tuple[int, ...] = ()  # of the undo journal that were taken back


@dataclass(frozen=True)
class EditsUndone:
    """Edits of this conversation were taken back. `EditsRedone` may follow."""

    paths: tuple[str, ...]
    entries: tuple[int, ...]  # of the undo journal


@dataclass(frozen=True)
class EditsRedone:
    """Edits of this conversation that were taken back are in their files again."""

    paths: tuple[str, ...]
    entries: tuple[int, ...]  # of the undo journal


@dataclass(frozen=True)
class NoteAdded:
    """The model is told this in front of the next message."""

    text: str


@dataclass(frozen=True)
class TaskStepped:
    """A model that can call tools has made a step: text, a call, its plan, files written."""

    step: "AnyStep"
    folder: Path  # that the paths of the step are relative to


@dataclass(frozen=True)
class SideStarted:
    """A question beside the conversation, on a fork of its KV. The conversation does not know of it."""

    question: str


@dataclass(frozen=True)
class SideGrew:
    """The model wrote more of the answer beside the conversation."""

    delta: str


@dataclass(frozen=True)
class SideEnded:
    """The answer beside the conversation is over."""

    status: TurnStatus


AgentEvent = (
    EditStarted
    | EditPlanned
    | UnitLocated
    | UnitLeft
    | DiffGrew
    | ComparingAnswers
    | AnswersCompared
    | RepairStarted
    | ImportsAdded
    | NamesUndefined
    | UserTestsStarted
    | UserTestsEnded
    | AnswerStarted
    | ReasoningGrew
    | AnswerGrew
    | WritingEnded
    | EditProposed
    | TimesMeasured
    | EditDecided
    | ConflictResolved
    | EditApplied
    | EditNotApplied
    | Failed
    | TurnStarted
    | IntentDecided
    | FileChosen
    | CodeRead
    | MemoryUsed
    | ResponseBegan
    | Abandoned
    | SteerQueued
    | TurnEnded
    | QueueChanged
    | PromptWarmed
    | CompactionStarted
    | Compacted
    | CompactionUndone
    | Retold
    | Rewound
    | EditsUndone
    | EditsRedone
    | NoteAdded
    | TaskStepped
    | SideStarted
    | SideGrew
    | SideEnded
)
