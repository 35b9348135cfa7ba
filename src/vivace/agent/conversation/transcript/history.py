"""What a transcript's lines add up to: the turns, the queue, what the model has been told.

Owns the fold: one line in, the state after it. The same fold serves a conversation that goes on and one that
is read back from disk. Does no I/O and knows no server.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from vivace.agent.conversation.transcript import edit_records
from vivace.agent.conversation.transcript.records import AnyRecord
from vivace.agent.events import talk as talk_events
from vivace.agent.events import turn as turn_events
from vivace.agent.events.base import DAMAGED, Failed
from vivace.agent.events.talk import QueuedMessage
from vivace.agent.events.turn import (
    NO_MEMORY,
    CodePiece,
    MemoryUsed,
    TurnKind,
    TurnStatus,
)

T = TypeVar("T")
TITLE_CHARS = 200


@dataclass(eq=False)
class Attempt:
    """What the model wrote in one go. Two are equal if they say the same, in whatever pieces it came."""

    pieces: list[str] = field(default_factory=list)
    is_abandoned: bool = False
    steer: str = ""  # what the user said instead of it
    thoughts: list[str] = field(default_factory=list)  # before the text

    @property
    def reasoning(self) -> str:
        return "".join(self.thoughts)

    @property
    def text(self) -> str:
        return "".join(self.pieces)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Attempt) and self._said == other._said

    @property
    def _said(self) -> tuple[object, ...]:
        return self.text, self.is_abandoned, self.steer, self.reasoning


@dataclass
class EditResult:
    """What came of a change to one file."""

    path: str
    unit: str = ""
    diff: str = ""  # unified; of what was written, where it was written
    problems: list[str] = field(default_factory=list)
    outcome: str = "open"  # open, applied, undone, rejected, nothing_to_change, shown_only
    reason: str = ""  # of a rejection, in the user's words
    entry: int = 0  # in the undo journal; files that were changed together share it
    attempt: int = 0  # of the turn, in which it was made


@dataclass
class Turn:
    """One message of the user's, and all that came of it."""

    number: int
    text: str
    mentions: tuple[str, ...] = ()
    kind: TurnKind = "question"
    attempts: list[Attempt] = field(default_factory=list)
    edits: list[EditResult] = field(default_factory=list)
    status: TurnStatus | None = None  # None while it runs
    response_id: str = ""  # of the last response that the server began
    total_tokens: int = 0  # of the log after it
    answer_tokens: int = 0
    error: str = ""
    notes: list[str] = field(default_factory=list)  # what the model was told in front of the message
    places: tuple[str, ...] = ()  # of which the user was asked to choose one
    code: tuple[CodePiece, ...] = ()  # what the model read with it beside the mentions
    memory: MemoryUsed = NO_MEMORY  # what the model read with it of files and notes
    at_s: float = 0.0  # Unix time of its beginning
    is_retold: bool = False  # its log began anew, with the latest turns told again
    steps: list[dict[str, Any]] = field(default_factory=list)  # of a model that calls tools

    @property
    def is_answered(self) -> bool:
        """Return whether the server has a response of it, which the next turn goes on from."""
        return self.kind != "edit" and bool(self.response_id) and self.status not in (None, "failed")

    @property
    def calls(self) -> list[str]:
        """Return a line for each call of a tool: what it did, and what came of it."""
        titles = {step["call_id"]: step["title"] for step in self.steps if step["type"] == "tool.started"}
        ended = [step for step in self.steps if step["type"] == "tool.ended"]
        return [_call_in_words(step, titles.get(step["call_id"], "")) for step in ended]

    @property
    def refused_calls(self) -> int:
        """Return how many calls of tools were not allowed."""
        return sum(step["type"] == "tool.ended" and step["status"] == "refused" for step in self.steps)

    @property
    def answer(self) -> str:
        """Return the text that stands."""
        return "".join(attempt.text for attempt in self.attempts if not attempt.is_abandoned)


@dataclass
class Compaction:
    turn: int  # the last turn that it is about
    summary: str


@dataclass
class Side:
    """A question beside the conversation, and its answer."""

    after_turn: int
    question: str
    pieces: list[str] = field(default_factory=list)

    @property
    def answer(self) -> str:
        return "".join(self.pieces)


@dataclass
class History:
    """The state of a conversation."""

    id: str = ""
    folder: str = ""
    model: str = ""
    started_at_s: float = 0.0
    forked_from: str = ""
    given_title: str = ""  # by the user
    all_turns: list[Turn] = field(default_factory=list)  # with those that were rewound
    turns: list[Turn] = field(default_factory=list)  # those that stand
    compactions: list[Compaction] = field(default_factory=list)
    queue: tuple[QueuedMessage, ...] = ()
    notes: list[str] = field(default_factory=list)  # for the next message
    sides: list[Side] = field(default_factory=list)
    is_damaged: bool = False  # lines of its file could not be read, or not be trusted

    def take(self, record: AnyRecord) -> None:
        """Add one line."""
        match record:
            # First, because most lines are these.
            case turn_events.AnswerGrew(text=text) | edit_records.EditDelta(text=text):
                if self.turns:
                    _last(self.turns[-1].attempts, Attempt()).pieces.append(text)
            case turn_events.ReasoningGrew(text=text):
                if self.turns:
                    _last(self.turns[-1].attempts, Attempt()).thoughts.append(text)
            case talk_events.ConversationStarted():
                self.id, self.folder, self.model = record.id, record.folder, record.model
                self.started_at_s, self.forked_from = record.at_s, record.forked_from
            case talk_events.ConversationResumed():
                self.close()
            case talk_events.Renamed(title=title):
                self.given_title = title
            case talk_events.ModelChanged(model=model):
                self.model = model
            case turn_events.TurnStarted():
                self._begin(record)
            case talk_events.QueueChanged(messages=messages):
                self.queue = tuple(messages)
            case talk_events.Compacted(turn=turn, summary=summary):
                self.compactions.append(Compaction(turn, summary))
            case talk_events.CompactionUndone():
                del self.compactions[-1:]
            case talk_events.Rewound():
                self._rewind(record)
            case talk_events.EditsUndone(entries=entries):
                self._mark(entries, "undone")
            case talk_events.EditsRedone(entries=entries):
                self._mark(entries, "applied")
            case talk_events.NoteAdded(text=text):
                self.notes.append(text)
            case talk_events.SideStarted(question=question):
                self.sides.append(Side(self.turns[-1].number if self.turns else 0, question))
            case talk_events.SideGrew(text=text):
                _last(self.sides, Side(0, "")).pieces.append(text)
            case Failed(code=code) if code == DAMAGED:
                self.is_damaged = True
                if self.turns:
                    _take_in_turn(self.turns[-1], record)
            case _ if self.turns:
                _take_in_turn(self.turns[-1], record)

    @property
    def title(self) -> str:
        """Return the name that the user gave, or the first message on one line; "" if there is neither."""
        first = self.turns[0].text if self.turns else ""
        return self.given_title or " ".join(first.split())[:TITLE_CHARS]

    @property
    def is_running(self) -> bool:
        return bool(self.turns) and self.turns[-1].status is None

    @property
    def compaction(self) -> Compaction | None:
        """Return the summary that the model reads instead of the turns before, if there is one."""
        return self.compactions[-1] if self.compactions else None

    @property
    def last_mention(self) -> str:
        """Return the path that was edited or the mention that was made last; "" if there is none."""
        for turn in reversed(self.turns):
            if turn.edits:
                return turn.edits[-1].path
            if turn.mentions:
                return turn.mentions[-1]
            if turn.code:
                return turn.code[-1].path
        return ""

    def close(self) -> None:
        """End a turn that has no end: the process that ran it was killed."""
        if self.is_running:
            self.turns[-1].status = "stopped"

    def _begin(self, record: turn_events.TurnStarted) -> None:
        turn = Turn(record.turn, record.text, tuple(record.mentions), notes=self.notes, at_s=record.at_s)
        self.notes = []
        self.all_turns.append(turn)
        self.turns.append(turn)

    def _mark(self, entries: Sequence[int], outcome: str) -> None:
        for edit in (edit for turn in self.all_turns for edit in turn.edits if edit.entry in entries):
            edit.outcome = outcome

    def _rewind(self, record: talk_events.Rewound) -> None:
        later = [turn for turn in self.turns if turn.number >= record.turn]
        self._mark(record.entries, "undone")
        if record.is_talk:
            self.turns = [turn for turn in self.turns if turn not in later]
            self.compactions = [each for each in self.compactions if each.turn < record.turn]
            self.notes = []


def _call_in_words(ended: dict[str, Any], title: str) -> str:
    status = "" if ended["status"] == "done" else f"{ended['status']}: "
    return f"{ended['tool']} {title}".strip() + f" ({status}{ended.get('summary', '')})"


def _take_in_turn(turn: Turn, record: AnyRecord) -> None:
    match record:
        case turn_events.IntentDecided(kind=kind):
            turn.kind = kind
        case turn_events.PlacesAsked(places=places):
            turn.places = tuple(places)
        case turn_events.CodeRead(pieces=pieces):
            turn.code = tuple(pieces)
        case turn_events.MemoryUsed(files=files, notes=notes, problem=problem):
            turn.memory = MemoryUsed(tuple(files), tuple(notes), problem)
        case turn_events.HistoryReplayed():
            turn.is_retold = True
        case turn_events.StepTaken(step=step):
            turn.steps.append(step)
        case turn_events.AttemptStarted():
            turn.attempts.append(Attempt())
        case turn_events.AttemptAbandoned(chars=chars, steer=steer):
            attempt = _last(turn.attempts, Attempt())
            attempt.is_abandoned, attempt.steer = chars > 0, steer  # 0: it was whole, and stands
        case turn_events.ResponseBegan(response_id=response_id):
            turn.response_id = response_id
        case Failed(message=message):
            turn.error = f"{turn.error}\n{message}".lstrip("\n")
        case turn_events.TurnEnded():
            turn.status, turn.total_tokens = record.status, record.total_tokens
            turn.answer_tokens = record.answer_tokens
            turn.response_id = record.response_id or turn.response_id
        case _:
            _take_edit(turn, record)


def _take_edit(turn: Turn, record: AnyRecord) -> None:
    match record:
        case edit_records.UnitChosen(path=path, unit=unit):
            edit = _edit_of(turn, path)
            edit.unit = f"{edit.unit}, {unit}" if edit.unit else unit
        case edit_records.EditShown(path=path, unit=unit, diff=diff, problems=problems):
            edit = _edit_of(turn, path)
            edit.unit, edit.diff, edit.problems = unit, diff, problems
        case edit_records.Decided(reason=reason):
            for edit in turn.edits:
                edit.reason = reason if edit.attempt == len(turn.attempts) else edit.reason
        case edit_records.EditWritten(path=path, diff=diff, entry=entry):
            edit = _edit_of(turn, path)
            if edit.entry not in (0, entry):  # a model with tools may write a file several times in a turn
                edit = EditResult(path, attempt=edit.attempt)
                turn.edits.append(edit)
            edit.outcome, edit.diff, edit.entry = "applied", diff, entry
        case edit_records.EditDropped(path=path, reason=reason):
            _edit_of(turn, path).outcome = reason


def _edit_of(turn: Turn, path: str) -> EditResult:
    """Return what the attempt at hand makes of this file: one result, however many units it rewrites."""
    attempt = len(turn.attempts)
    for edit in reversed(turn.edits):
        if (edit.path, edit.attempt) == (path, attempt):
            return edit
    turn.edits.append(EditResult(path, attempt=attempt))
    return turn.edits[-1]


def _last(kept: list[T], fallback: T) -> T:
    """Return the last one. If the line that began it is lost, begin one now."""
    if not kept:
        kept.append(fallback)
    return kept[-1]
