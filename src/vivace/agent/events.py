"""What happens while the agent works, as values that any face can show: terminal, JSON, editor, browser.

Owns shapes only. `edits.flow` and `ask` say them in this order: started, located, grew …, ended, proposed,
measured, decided, applied or not applied. Does not own how they are shown (`presenter`).
"""

from dataclasses import dataclass
from typing import Literal

from vivace.agent.edits.apply.journal import Entry
from vivace.agent.edits.apply.source import SourceFile
from vivace.agent.edits.find.units import Unit
from vivace.agent.edits.proposal import Decision, Proposal
from vivace.agent.edits.write.live_diff import LiveDiff, Row
from vivace.errors import VivaceError
from vivace.protocol.shapes.events import Waterfall

Reason = Literal["rejected", "nothing_to_change", "shown_only"]  # why nothing was written


@dataclass(frozen=True)
class EditStarted:
    """The file was read. Without a unit the model is asked which one to change."""

    source: SourceFile
    unit: Unit | None
    instruction: str


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
class AnswerStarted:
    """A question was asked; the model reads it now."""


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
class EditApplied:
    """The file has its new bytes, and the journal has the old ones."""

    proposal: Proposal
    entry: Entry
    apply_ms: float


@dataclass(frozen=True)
class EditNotApplied:
    """The file is as it was."""

    proposal: Proposal
    reason: Reason


@dataclass(frozen=True)
class Failed:
    """It ended with an error, and nothing was written."""

    error: VivaceError


AgentEvent = (
    EditStarted
    | UnitLocated
    | DiffGrew
    | AnswerStarted
    | AnswerGrew
    | WritingEnded
    | EditProposed
    | TimesMeasured
    | EditDecided
    | EditApplied
    | EditNotApplied
    | Failed
)
