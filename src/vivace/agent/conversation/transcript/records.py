"""The lines of a transcript, and of `vivace -p --output-format stream-json`: one JSON object a line.

Owns the published schema and its version. A reader must pass over types and fields that it does not know; a
change that such a reader would misunderstand gets a new `SCHEMA`. Does not own the file (`file`), nor
what the lines add up to (`history`).
"""

from typing import Any, ClassVar

import msgspec

from vivace.agent.events import CodePiece, GivenFile, QueuedMessage, TurnKind, TurnStatus

SCHEMA = 2  # 1: without `reasoning.delta`, `turn.code`, `turn.retold` and edits of several files


class Record(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", omit_defaults=True):
    """What all lines are."""

    is_delta: ClassVar[bool] = False


class ConversationStarted(Record, frozen=True, tag="conversation.started"):
    """The first line of every transcript."""

    schema: int  # the version of this format
    id: str  # of the conversation
    folder: str  # where it takes place
    model: str  # that answers
    at_s: float  # Unix time
    forked_from: str = ""  # the id of another conversation; its turns follow


class ConversationResumed(Record, frozen=True, tag="conversation.resumed"):
    """Somebody took the conversation up again."""

    id: str  # of the conversation
    at_s: float  # Unix time


class ModelChosen(Record, frozen=True, tag="model.chosen"):
    """Another model answers from now on."""

    model: str  # that answers


class TurnBegun(Record, frozen=True, tag="turn.started"):
    """The user sent a message."""

    turn: int  # 1 for the first
    text: str  # as the user wrote it
    mentions: list[str] = []  # `path` or `path:name`
    at_s: float = 0.0  # Unix time


class Intent(Record, frozen=True, tag="turn.intent"):
    """What the message was taken for."""

    kind: TurnKind  # a question is answered, an edit changes a file, a task is worked on with tools
    by: str  # who decided: words, model or user


class FileNamed(Record, frozen=True, tag="turn.file"):
    """The file that an edit is about."""

    path: str  # with its folder
    by: str  # why this one: mention, recent, name or model


class CodeGiven(Record, frozen=True, tag="turn.code"):
    """Code that the model reads with a question, found by the question's words or by the turns before."""

    pieces: list[CodePiece]  # each with path, unit, by, max_chars and is_shortened


class MemoryGiven(Record, frozen=True, tag="turn.memory"):
    """Instruction files and notes that the model reads with the message."""

    files: list[GivenFile] = []  # each with path, shown and digest
    notes: list[str] = []  # of the user's, that fit the message
    problem: str = ""  # why the notes could not be read


class AttemptBegun(Record, frozen=True, tag="attempt.started"):
    """The model begins to answer or to write. A turn that was steered has several attempts."""


class ResponseKnown(Record, frozen=True, tag="response.started"):
    """The server's response, which can be continued as `previous_response_id`."""

    response_id: str


class ReasoningDelta(Record, frozen=True, tag="reasoning.delta"):
    """More of what the model thinks before its answer. It is no part of the answer."""

    is_delta: ClassVar[bool] = True
    text: str


class AnswerDelta(Record, frozen=True, tag="answer.delta"):
    """More of the answer."""

    is_delta: ClassVar[bool] = True
    text: str


class EditDelta(Record, frozen=True, tag="edit.delta"):
    """More of the new text of a unit, as the model writes it."""

    is_delta: ClassVar[bool] = True
    text: str


class AttemptAbandoned(Record, frozen=True, tag="attempt.abandoned"):
    """What the attempt wrote does not stand."""

    chars: int  # its length
    why: str  # steered or server_gone
    steer: str = ""  # what the user said instead


class PlannedPart(msgspec.Struct, frozen=True, kw_only=True):
    """A unit of a plan."""

    path: str
    unit: str
    lines: str  # 12 or 12-20, in the file as it was read
    why: str  # such as "calls load"


class Planned(Record, frozen=True, tag="edit.planned"):
    """Several units are rewritten, in this order. It comes again when the plan has grown."""

    units: list[PlannedPart]


class UnitStays(Record, frozen=True, tag="edit.unit_left"):
    """A unit of the plan stays as it is."""

    path: str
    unit: str
    problem: str = ""  # why its new text cannot be used; "" if it needs no change


class UnitChosen(Record, frozen=True, tag="edit.located"):
    """The part of the file that is rewritten."""

    path: str
    unit: str
    lines: str  # 12 or 12-20
    by: str  # user or model


class Compared(Record, frozen=True, tag="edit.compared"):
    """Other answers were written, and one was chosen among all."""

    answers: int  # different ones that could be used
    examples: int = 0  # that were run in the sandbox
    held: int = 0  # of them, for the one that was chosen
    calls: int = 0  # with made-up arguments, also in the sandbox, that compare new with old code


class RepairBegun(Record, frozen=True, tag="edit.repairing"):
    """The model is told what is wrong with its answer, and writes it once more."""

    complaint: str  # as the model reads it


class Imported(Record, frozen=True, tag="edit.imports"):
    """Imports that the new text needs were added to the file's import block."""

    imports: list[str]  # the lines that were added or changed


class Undefined(Record, frozen=True, tag="edit.undefined"):
    """The change leaves names in a file that nothing defines, and no import is known for."""

    path: str
    names: list[str]


class Tested(Record, frozen=True, tag="edit.tested"):
    """The tests that the user allowed were run over a copy of the folder with the change, or could not be."""

    passed: bool
    tried: int  # answers, the best first; 0: nothing was run
    why_not: str = ""  # they were not run
    output: str = ""  # the end of what they said about the best answer, if none passed


class EditShown(Record, frozen=True, tag="edit.proposed"):
    """The change as a whole, before the user's decision. It comes again when the user has changed it."""

    path: str
    unit: str
    diff: str  # unified
    problems: list[str] = []  # why it cannot be used
    by: str = "model"  # or user


class Decided(Record, frozen=True, tag="edit.decided"):
    """The user's decision, or that of `--yes`."""

    decision: str  # accept, hunks, text or reject
    reason: str = ""  # of a rejection, in the user's words


class ConflictDecided(Record, frozen=True, tag="edit.conflict"):
    """The file had changed meanwhile, in the same lines. The user said what to do."""

    path: str
    choice: str  # edit, file, text (merged by the user) or stop


class EditWritten(Record, frozen=True, tag="edit.applied"):
    """The file was written, and can be undone."""

    path: str
    diff: str  # what was written
    entry: int  # the number in the undo journal; 0: in an editor's buffer, which is not saved


class EditDropped(Record, frozen=True, tag="edit.not_applied"):
    """The file is as it was."""

    path: str
    reason: str  # rejected, nothing_to_change or shown_only


class StepTaken(Record, frozen=True, tag="turn.step"):
    """A step of a model that calls tools: one of the lines of a task, below."""

    step: dict[str, Any]  # with its own `type`; the output of a tool is left out


class Times(Record, frozen=True, tag="turn.times"):
    """Where the time went."""

    model: str
    first_token_ms: float
    turns: list[dict[str, float | int | str]]  # each with a `name` and the fields of a waterfall


class Error(Record, frozen=True, tag="error"):
    """The turn failed."""

    code: str
    message: str
    hint: str = ""


class TurnOver(Record, frozen=True, tag="turn.ended"):
    """The turn is over. A turn without this line was killed."""

    turn: int
    status: TurnStatus
    response_id: str = ""
    total_tokens: int = 0  # of the conversation's log; 0 if it is not known
    answer_tokens: int = 0  # of the last answer in it


class Queue(Record, frozen=True, tag="queue.changed"):
    """The messages that wait, the next one first."""

    messages: list[QueuedMessage]  # each with id, text and mentions


class SteerLate(Record, frozen=True, tag="steer.queued"):
    """A steer that came after the answer's end, and is queued."""

    text: str


class CompactionBegun(Record, frozen=True, tag="compaction.started"):
    """The model summarises the conversation."""

    why: str  # asked or window


class Summary(Record, frozen=True, tag="compaction.done"):
    """The model reads this instead of the turns up to `turn`."""

    turn: int
    summary: str
    before_tokens: int


class SummaryDropped(Record, frozen=True, tag="compaction.undone"):
    """The last summary is not used any more."""


class ToldAgain(Record, frozen=True, tag="turn.retold"):
    """The server had no response to go on from: the model read the latest turns with this message."""

    first_turn: int  # that was told; 0: none of them
    left_out: int = 0  # earlier turns that did not fit


class WasRewound(Record, frozen=True, tag="rewound"):
    """The turns from this one on were taken back."""

    turn: int
    is_talk: bool  # the model does not know of them any more
    is_code: bool  # their edits were undone
    paths: list[str] = []  # of files that have their old bytes again
    entries: list[int] = []  # of the undo journal that were taken back


class EditsTakenBack(Record, frozen=True, tag="edits.undone"):
    """Edits of this conversation were undone."""

    paths: list[str]
    entries: list[int]  # of the undo journal


class EditsBroughtBack(Record, frozen=True, tag="edits.redone"):
    """Edits of this conversation that were undone are in their files again."""

    paths: list[str]
    entries: list[int]  # of the undo journal


class Note(Record, frozen=True, tag="note"):
    """Something that the model is told in front of the next message."""

    text: str


class SideBegun(Record, frozen=True, tag="side.started"):
    """A question beside the conversation."""

    question: str


class SideDelta(Record, frozen=True, tag="side.delta"):
    """More of the answer beside the conversation."""

    is_delta: ClassVar[bool] = True
    text: str


class SideOver(Record, frozen=True, tag="side.ended"):
    """The answer beside the conversation is over."""

    status: TurnStatus


class FileEdit(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a change to one file."""

    path: str
    unit: str
    diff: str  # unified
    outcome: str  # applied, rejected, nothing_to_change, shown_only or open


class Result(Record, frozen=True, tag="result"):
    """The last line of `--output-format stream-json`, and all that `json` prints. In no transcript."""

    schema: int
    id: str  # of the conversation: `--resume ID` goes on from here
    status: TurnStatus
    exit_code: int
    text: str  # the answer
    edits: list[FileEdit] = []
    error: Error | None = None
    total_tokens: int = 0  # of the conversation's log


AnyRecord = (
    ConversationStarted
    | ConversationResumed
    | ModelChosen
    | TurnBegun
    | Intent
    | FileNamed
    | CodeGiven
    | MemoryGiven
    | AttemptBegun
    | ResponseKnown
    | ReasoningDelta
    | AnswerDelta
    | EditDelta
    | AttemptAbandoned
    | Planned
    | UnitStays
    | UnitChosen
    | Compared
    | RepairBegun
    | Imported
    | Undefined
    | Tested
    | EditShown
    | Decided
    | ConflictDecided
    | EditWritten
    | EditDropped
    | StepTaken
    | Times
    | Error
    | TurnOver
    | Queue
    | SteerLate
    | CompactionBegun
    | Summary
    | SummaryDropped
    | ToldAgain
    | WasRewound
    | EditsTakenBack
    | EditsBroughtBack
    | Note
    | SideBegun
    | SideDelta
    | SideOver
)
