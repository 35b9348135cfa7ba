"""What happens in a turn of the user's and its model, whether it answers, edits or calls tools.

Owns shapes only. A `conversation` puts `TurnStarted` and `TurnEnded` around what `ask` and `edits.flow` say.
Does not own what is special to an edit (`edit`) nor what happens around a turn (`talk`).
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import msgspec

from vivace.agent.events.base import Event, Failed
from vivace.agent.events.task import AnyStep
from vivace.protocol.shapes.events import Waterfall

TurnKind = Literal["question", "edit", "task"]  # task: the model calls tools
TurnStatus = Literal["completed", "cut", "stopped", "failed"]  # cut: at the limit of the answer's tokens


class TurnStarted(Event, frozen=True, tag="turn.started"):
    """The user sent a message, and it was taken up. `turn.ended` follows, unless the process was killed."""

    turn: int  # 1 for the first of the conversation
    text: str  # as the user wrote it
    mentions: tuple[str, ...] = ()  # `path` or `path:name`, without the @
    at_s: float = 0.0  # Unix time


class IntentDecided(Event, frozen=True, tag="turn.intent"):
    """What the message was taken for."""

    kind: TurnKind  # a question is answered, an edit changes a file, a task is worked on with tools
    by: Literal["words", "model", "user"]


class FileChosen(Event, frozen=True, tag="turn.file"):
    """The file that an edit is about."""

    path: str  # with its folder
    by: Literal["mention", "recent", "name", "model"]  # name: the message names it, or something in it


class PlacesAsked(Event, frozen=True, tag="turn.places"):
    """Several places could be meant: the user is asked. The turn ends; the next message may say which."""

    places: tuple[str, ...]  # `path:name`, relative to the conversation's folder, the likeliest first


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


class CodeRead(Event, frozen=True, tag="turn.code"):
    """Code that the model reads with a question, found by the question's words or by the turns before."""

    pieces: tuple[CodePiece, ...]  # each with path, unit, by, max_chars and is_shortened

    @property
    def in_words(self) -> str:
        return f"reading {', '.join(piece.label for piece in self.pieces)}"


@dataclass(frozen=True)
class GivenFile:
    """An instruction file that the model reads."""

    path: str  # with its folder
    shown: str  # its name for people
    digest: str  # of its text: another text has another one


class MemoryUsed(Event, frozen=True, tag="turn.memory"):
    """Instruction files and notes that the model reads with the message."""

    files: tuple[GivenFile, ...] = ()  # each with path, shown and digest
    notes: tuple[str, ...] = ()  # of the user's, that fit the message
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


NO_MEMORY = MemoryUsed()


class HistoryReplayed(Event, frozen=True, tag="turn.retold"):
    """The server had no response to go on from: the model read the latest turns with this message."""

    first_turn: int  # that was read; 0: none of them fits
    left_out: int = 0  # earlier turns that did not fit

    @property
    def in_words(self) -> str:
        """Say what the model does not read."""
        told = f"from turn {self.first_turn} on" if self.first_turn else "without what was said before"
        return (
            f"The model reads the conversation anew, {told}: {self.left_out} earlier turns do not fit its "
            "window. They are kept in the transcript."
        )


class AttemptStarted(Event, frozen=True, tag="attempt.started"):
    """The model begins to answer or to write. A turn that was steered has several attempts."""


class ResponseBegan(Event, frozen=True, tag="response.started"):
    """The server's response, which can be continued as `previous_response_id`."""

    response_id: str


class ReasoningGrew(Event, frozen=True, tag="reasoning.delta"):
    """More of what the model thinks before its answer. It is shown folded, and is no part of the answer."""

    is_delta: ClassVar[bool] = True
    text: str


class AnswerGrew(Event, frozen=True, tag="answer.delta"):
    """More of the answer."""

    is_delta: ClassVar[bool] = True
    text: str


@dataclass(frozen=True)
class TaskStepped:
    """A model that can call tools has made a step: text, a call, its plan, files written."""

    step: AnyStep
    folder: Path  # that the paths of the step are relative to


class WritingEnded(Event, frozen=True, tag="writing.ended"):
    """The model writes no more, for whatever reason: it is done, it failed, or it was interrupted."""

    is_kept: ClassVar[bool] = False


class AttemptAbandoned(Event, frozen=True, tag="attempt.abandoned"):
    """What the attempt wrote does not stand. It is kept and shown struck through; a new attempt follows."""

    chars: int  # its length
    why: Literal["steered", "server_gone"]
    steer: str = ""  # what the user said instead


class SteerQueued(Event, frozen=True, tag="steer.queued"):
    """A steer that came after the answer's end. It is the first message of the queue now."""

    text: str


class TurnTimes(Waterfall, frozen=True, kw_only=True):
    """The times of one request to the model."""

    name: str  # locate, rewrite, answer

    @classmethod
    def of(cls, name: str, waterfall: Waterfall) -> Self:
        return cls(name=name, **msgspec.structs.asdict(waterfall))


class TimesMeasured(Event, frozen=True, tag="turn.times"):
    """Where the time of the model's requests went."""

    model: str
    turns: tuple[TurnTimes, ...]  # each with a `name` and the fields of a waterfall
    first_token_ms: float  # from Enter to the first text


class TurnEnded(Event, frozen=True, tag="turn.ended"):
    """The turn is over, and its partial answer, if any, is kept. A turn without this line was killed."""

    turn: int
    status: TurnStatus
    response_id: str = ""  # to continue from; "" for an edit
    total_tokens: int = 0  # of the conversation's log at the server; 0 if it is not known
    answer_tokens: int = 0  # of the last answer in it


class StepTaken(Event, frozen=True, tag="turn.step"):
    """A step of a model that calls tools: one of the lines of a task, below."""

    step: dict[str, Any]  # with its own `type`; the output of a tool is left out


class FileEdit(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a change to one file."""

    path: str
    unit: str
    diff: str  # unified
    outcome: str  # applied, rejected, nothing_to_change, shown_only or open


class Result(Event, frozen=True, tag="result"):
    """The last line of `--output-format stream-json`, and all that `json` prints. In no transcript."""

    schema: int
    id: str  # of the conversation: `--resume ID` goes on from here
    status: TurnStatus
    exit_code: int
    text: str  # the answer
    edits: list[FileEdit] = msgspec.field(default_factory=list)
    error: Failed | None = None
    total_tokens: int = 0  # of the conversation's log
