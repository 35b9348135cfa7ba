"""The lines of a conversation around its turns: its beginning, the queue, summaries, rewinding.

Owns shapes of the published schema (`schema`). Does not own the turns (`turn_records`).
"""

from typing import ClassVar

import msgspec

from vivace.agent.conversation.transcript.schema import Record
from vivace.agent.talk_events import QueuedMessage
from vivace.agent.turn_events import TurnStatus


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


class WasRenamed(Record, frozen=True, tag="conversation.renamed"):
    """The user gave the conversation another name."""

    title: str  # "" takes the name away


class ModelChosen(Record, frozen=True, tag="model.chosen"):
    """Another model answers from now on."""

    model: str  # that answers


class Queue(Record, frozen=True, tag="queue.changed"):
    """The messages that wait, the next one first."""

    messages: list[QueuedMessage]  # each with id, text and mentions


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


class WasRewound(Record, frozen=True, tag="rewound"):
    """The turns from this one on were taken back."""

    turn: int
    is_talk: bool  # the model does not know of them any more
    is_code: bool  # their edits were undone
    paths: list[str] = msgspec.field(default_factory=list)  # of files that have their old bytes again
    entries: list[int] = msgspec.field(default_factory=list)  # of the undo journal that were taken back


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
