"""Messages from the process that holds a conversation to a face that is attached to it.

Owns their shapes. Does not own the bodies of events (`event_codec`).
"""

from typing import Any

import msgspec

from vivace.agent.conversation.sharing.wire.forms import (
    ConflictForm,
    DiffKnown,
    Message,
    ProposalKnown,
    SourceKnown,
)
from vivace.agent.events.base import Failed
from vivace.agent.events.task import ApprovalAsked
from vivace.agent.options import Options


class Welcome(Message, frozen=True, tag="welcome"):
    """The first answer. The records up to the last moment of rest follow, then `Joined`."""

    version: int
    faces: tuple[str, ...]  # the names of those that have it open, the holder's first
    options: Options = Options()


class Records(Message, frozen=True, tag="records"):
    """Some of the lines so far, in order."""

    records: list[msgspec.Raw]


class AtRest(Message, frozen=True, tag="at_rest"):
    """Nothing runs now. What was named by a number is not named again."""


class Joined(Message, frozen=True, tag="joined"):
    """All lines were sent. What has happened since comes as events, then whatever happens next."""


class Shown(Message, frozen=True, tag="shown"):
    """An event. Its body depends on its name."""

    name: str
    body: msgspec.Raw


class Asked(Message, frozen=True, tag="asked"):
    """A question to the user. The first answer of any face counts."""

    question: str
    proposal: int | None = None
    conflict: ConflictForm | None = None
    call: ApprovalAsked | None = None


class Closed(Message, frozen=True, tag="closed"):
    """The question was answered, or the edit was interrupted."""

    question: str


class Done(Message, frozen=True, tag="done"):
    """A command has ended."""

    id: int
    value: Any = None


class Refused(Message, frozen=True, tag="refused"):
    """A command has failed."""

    id: int
    error: Failed


FromHolder = (
    Welcome
    | Records
    | Joined
    | AtRest
    | SourceKnown
    | ProposalKnown
    | DiffKnown
    | Shown
    | Asked
    | Closed
    | Done
    | Refused
)
