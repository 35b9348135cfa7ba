"""What happens to a conversation around its turns: its beginning, the queue, summaries, rewinding.

Owns shapes only. Does not own the turns (`turn`) nor how anything is shown (`presenter`).
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

from vivace.agent.events.base import Event
from vivace.agent.events.turn import TurnStatus
from vivace.agent.options import Options
from vivace.protocol.shapes.events import WaitProgress


class ConversationStarted(Event, frozen=True, tag="conversation.started"):
    """The first line of every transcript."""

    schema: int  # the version of this format
    id: str  # of the conversation
    folder: str  # where it takes place
    model: str  # that answers
    at_s: float  # Unix time
    forked_from: str = ""  # the id of another conversation; its turns follow


class ConversationResumed(Event, frozen=True, tag="conversation.resumed"):
    """Somebody took the conversation up again."""

    id: str  # of the conversation
    at_s: float  # Unix time


class Renamed(Event, frozen=True, tag="conversation.renamed"):
    """The user gave the conversation another name."""

    title: str  # "" takes the name away


class ModelChanged(Event, frozen=True, tag="model.chosen"):
    """Another model answers from the next turn on."""

    model: str


@dataclass(frozen=True)
class QueuedMessage:
    """A message that waits for the end of the turn."""

    id: int
    text: str
    mentions: tuple[str, ...] | None = None  # None: those in the text


class QueueChanged(Event, frozen=True, tag="queue.changed"):
    """The messages that wait, the next one first."""

    messages: tuple[QueuedMessage, ...]  # each with id, text and mentions


class PromptWarmed(Event, frozen=True, tag="prompt.warmed"):
    """The model has read this much of what is being typed. It comes often."""

    is_kept: ClassVar[bool] = False
    warm_tokens: int
    prompt_tokens: int  # of the draft, with all that stands before it


class ModelProgress(Event, frozen=True, tag="model.progress"):
    """Something that was asked waits for its model to be loaded or to read. It comes often."""

    is_kept: ClassVar[bool] = False
    progress: WaitProgress | None  # None: no longer

    @property
    def in_words(self) -> str:
        """Say what is waited for; "" if nothing is."""
        if self.progress is None:
            return ""
        if self.progress.stage == "reading":
            return f"reading: {self.progress.amount}"
        name = self.progress.model.rpartition("/")[2]  # of a file without its folder
        return f"loading {name}: {self.progress.amount}"

    @property
    def is_loading(self) -> bool:
        return self.progress is not None and self.progress.stage == "loading"


class CompactionStarted(Event, frozen=True, tag="compaction.started"):
    """The model writes a summary of the conversation."""

    why: Literal["asked", "window"]  # window: the conversation had nearly filled it


class Compacted(Event, frozen=True, tag="compaction.done"):
    """The model reads this summary instead of the turns up to `turn`. Can be undone."""

    turn: int  # the last turn that the summary is about
    summary: str  # with the user's own words and the decisions
    before_tokens: int


class CompactionUndone(Event, frozen=True, tag="compaction.undone"):
    """The last summary is not used any more: the model reads the turns themselves again."""


class Rewound(Event, frozen=True, tag="rewound"):
    """The conversation stands before this turn again: its talk, its code, or both."""

    turn: int
    is_talk: bool  # the model does not know of the later turns any more
    is_code: bool  # their edits were undone
    paths: tuple[str, ...] = ()  # of files that have their old bytes again
    entries: tuple[int, ...] = ()  # of the undo journal that were taken back


class EditsUndone(Event, frozen=True, tag="edits.undone"):
    """Edits of this conversation were undone. `edits.redone` may follow."""

    paths: tuple[str, ...]
    entries: tuple[int, ...]  # of the undo journal


class EditsRedone(Event, frozen=True, tag="edits.redone"):
    """Edits of this conversation that were undone are in their files again."""

    paths: tuple[str, ...]
    entries: tuple[int, ...]  # of the undo journal


class NoteAdded(Event, frozen=True, tag="note"):
    """Something that the model is told in front of the next message."""

    text: str


class OptionsChanged(Event, frozen=True, tag="options.changed"):
    """A face has set how hard edits are tried, what asks, or which tests are run."""

    is_kept: ClassVar[bool] = False
    options: Options


class FacesChanged(Event, frozen=True, tag="faces.changed"):
    """These other faces have the conversation open, such as `browser`."""

    is_kept: ClassVar[bool] = False
    others: tuple[str, ...]


class SideStarted(Event, frozen=True, tag="side.started"):
    """A question beside the conversation, on a fork of its KV. The conversation does not know of it."""

    question: str


class SideGrew(Event, frozen=True, tag="side.delta"):
    """More of the answer beside the conversation."""

    is_delta: ClassVar[bool] = True
    text: str


class SideEnded(Event, frozen=True, tag="side.ended"):
    """The answer beside the conversation is over."""

    status: TurnStatus
