"""What happens in a turn of the user's and its model, whether it answers, edits or calls tools.

Owns shapes only. A `conversation` puts `TurnStarted` and `TurnEnded` around what `ask` and `edits.flow` say.
Does not own what is special to an edit (`edit_events`) nor what happens beside a turn (`talk_events`).
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from vivace.agent.loop.steps import AnyStep
from vivace.errors import VivaceError
from vivace.protocol.shapes.events import Waterfall

TurnKind = Literal["question", "edit", "task"]  # task: the model calls tools
TurnStatus = Literal["completed", "cut", "stopped", "failed"]  # cut: at the limit of the answer's tokens


@dataclass(frozen=True)
class TurnStarted:
    """A message of the user's was taken up. `TurnEnded` follows, whatever happens."""

    turn: int  # 1 for the first of the conversation
    text: str
    mentions: tuple[str, ...]  # `path` or `path:name`, without the @
    at_s: float = 0.0  # Unix time


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
class PlacesAsked:
    """Several places could be meant. The turn ends with `PlaceUnclear`; the next message may say which."""

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
class ResponseBegan:
    """The server has begun a response. By its id the conversation can go on later."""

    response_id: str


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
class TaskStepped:
    """A model that can call tools has made a step: text, a call, its plan, files written."""

    step: AnyStep
    folder: Path  # that the paths of the step are relative to


@dataclass(frozen=True)
class WritingEnded:
    """The model writes no more, for whatever reason: it is done, it failed, or it was interrupted."""


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
class Failed:
    """It ended with an error, and nothing was written."""

    error: VivaceError


@dataclass(frozen=True)
class TurnEnded:
    """The turn is over, and its partial answer, if any, is kept."""

    turn: int
    status: TurnStatus
    response_id: str = ""  # to continue from; "" for an edit
    total_tokens: int = 0  # of the conversation's log at the server; 0 if it is not known
    answer_tokens: int = 0  # of the last answer in it
