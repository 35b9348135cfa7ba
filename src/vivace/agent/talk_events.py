"""What happens to a conversation around its turns: the queue, summaries, rewinding, questions beside it.

Owns shapes only. Does not own the turns (`turn_events`) nor how anything is shown (`presenter`).
"""

from dataclasses import dataclass
from typing import Literal

from vivace.agent.options import Options
from vivace.agent.turn_events import TurnStatus
from vivace.protocol.shapes.events import WaitProgress


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
class ModelProgress:
    """Something that was asked waits for its model to be loaded or to read. Told often, and not kept."""

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
class ModelChanged:
    """Another model answers from the next turn on."""

    model: str


@dataclass(frozen=True)
class OptionsChanged:
    """A face has set how hard edits are tried, what asks, or which tests are run. Not kept."""

    options: Options


@dataclass(frozen=True)
class Renamed:
    """The user gave the conversation another name; "" takes it away."""

    title: str


@dataclass(frozen=True)
class FacesChanged:
    """These other faces have the conversation open, such as `browser`. Not kept."""

    others: tuple[str, ...]


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
