"""The lines of one turn: the message, what the model reads with it, what it answers, and how it ended.

Owns shapes of the published schema (`schema`). Does not own what is special to an edit (`edit_records`).
"""

from typing import Any, ClassVar

import msgspec

from vivace.agent.conversation.transcript.schema import Error, Record
from vivace.agent.turn_events import CodePiece, GivenFile, TurnKind, TurnStatus


class TurnBegun(Record, frozen=True, tag="turn.started"):
    """The user sent a message."""

    turn: int  # 1 for the first
    text: str  # as the user wrote it
    mentions: list[str] = msgspec.field(default_factory=list)  # `path` or `path:name`
    at_s: float = 0.0  # Unix time


class Intent(Record, frozen=True, tag="turn.intent"):
    """What the message was taken for."""

    kind: TurnKind  # a question is answered, an edit changes a file, a task is worked on with tools
    by: str  # who decided: words, model or user


class FileNamed(Record, frozen=True, tag="turn.file"):
    """The file that an edit is about."""

    path: str  # with its folder
    by: str  # why this one: mention, recent, name or model


class PlacesNamed(Record, frozen=True, tag="turn.places"):
    """The user was asked which of these an edit is about."""

    places: list[str]  # each `path:name`, relative to the conversation's folder


class CodeGiven(Record, frozen=True, tag="turn.code"):
    """Code that the model reads with a question, found by the question's words or by the turns before."""

    pieces: list[CodePiece]  # each with path, unit, by, max_chars and is_shortened


class MemoryGiven(Record, frozen=True, tag="turn.memory"):
    """Instruction files and notes that the model reads with the message."""

    files: list[GivenFile] = msgspec.field(default_factory=list)  # each with path, shown and digest
    notes: list[str] = msgspec.field(default_factory=list)  # of the user's, that fit the message
    problem: str = ""  # why the notes could not be read


class ToldAgain(Record, frozen=True, tag="turn.retold"):
    """The server had no response to go on from: the model read the latest turns with this message."""

    first_turn: int  # that was told; 0: none of them
    left_out: int = 0  # earlier turns that did not fit


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


class StepTaken(Record, frozen=True, tag="turn.step"):
    """A step of a model that calls tools: one of the lines of a task, below."""

    step: dict[str, Any]  # with its own `type`; the output of a tool is left out


class AttemptAbandoned(Record, frozen=True, tag="attempt.abandoned"):
    """What the attempt wrote does not stand."""

    chars: int  # its length
    why: str  # steered or server_gone
    steer: str = ""  # what the user said instead


class SteerLate(Record, frozen=True, tag="steer.queued"):
    """A steer that came after the answer's end, and is queued."""

    text: str


class Times(Record, frozen=True, tag="turn.times"):
    """Where the time went."""

    model: str
    first_token_ms: float
    turns: list[dict[str, float | int | str]]  # each with a `name` and the fields of a waterfall


class TurnOver(Record, frozen=True, tag="turn.ended"):
    """The turn is over. A turn without this line was killed."""

    turn: int
    status: TurnStatus
    response_id: str = ""
    total_tokens: int = 0  # of the conversation's log; 0 if it is not known
    answer_tokens: int = 0  # of the last answer in it


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
    edits: list[FileEdit] = msgspec.field(default_factory=list)
    error: Error | None = None
    total_tokens: int = 0  # of the conversation's log
