"""Messages from an attached face to the process that holds the conversation.

Owns their shapes. Does not own what a command does (`sharing.commands`).
"""

from vivace.agent.conversation.sharing.wire.forms import (
    DecisionForm,
    Message,
    ProposalKnown,
    ResolutionForm,
    SourceKnown,
)
from vivace.agent.events.turn import TurnKind
from vivace.agent.options import Options


class Hello(Message, frozen=True, tag="hello"):
    """The first message."""

    version: int
    name: str  # such as terminal
    is_asking: bool = False  # only for who has it open; the connection ends with `Welcome`


class Command(Message, frozen=True, kw_only=True):
    """Something to do. With an id, `Done` or `Refused` answers it."""

    id: int = 0


class Send(Command, frozen=True, tag="send"):
    text: str
    mentions: tuple[str, ...] | None = None
    kind: TurnKind | None = None


class RunQueue(Command, frozen=True, tag="queue.run"):
    pass


class OfferProposal(Command, frozen=True, tag="offer"):
    text: str
    sources: tuple[SourceKnown, ...]
    proposal: ProposalKnown


class Steer(Command, frozen=True, tag="steer"):
    text: str


class Stop(Command, frozen=True, tag="stop"):
    pass


class AnswerNow(Command, frozen=True, tag="answer_now"):
    pass


class AddNote(Command, frozen=True, tag="note"):
    text: str


class Prefill(Command, frozen=True, tag="prefill"):
    draft: str
    mentions: tuple[str, ...] | None = None


class AskBeside(Command, frozen=True, tag="btw"):
    question: str


class Cancel(Command, frozen=True, tag="cancel"):
    """End the command with that id, which is a question beside."""

    command: int


class Rewind(Command, frozen=True, tag="rewind"):
    turn: int
    code: bool = True
    talk: bool = True


class Undo(Command, frozen=True, tag="undo"):
    entry: int = 0


class Redo(Command, frozen=True, tag="redo"):
    entry: int = 0


class Compact(Command, frozen=True, tag="compact"):
    pass


class UndoCompact(Command, frozen=True, tag="compact.undo"):
    pass


class CountContext(Command, frozen=True, tag="context"):
    draft: str = ""
    mentions: tuple[str, ...] | None = None


class Rename(Command, frozen=True, tag="rename"):
    title: str


class QueueAdd(Command, frozen=True, tag="queue.add"):
    text: str
    mentions: tuple[str, ...] | None = None


class QueueChange(Command, frozen=True, tag="queue.change"):
    message: int
    text: str
    mentions: tuple[str, ...] | None = None


class QueueRemove(Command, frozen=True, tag="queue.remove"):
    message: int


class UseOptions(Command, frozen=True, tag="options"):
    options: Options


class UseModel(Command, frozen=True, tag="model"):
    model: str


class Answer(Command, frozen=True, tag="answer"):
    """The user's answer to a question. It has no effect if another face was first."""

    question: str
    decision: DecisionForm | None = None
    resolution: ResolutionForm | None = None
    is_allowed: bool = False
    is_kept: bool = False
    reason: str = ""
    digest: str = ""  # of the call that the user saw


AnyCommand = (
    Send
    | RunQueue
    | OfferProposal
    | Steer
    | Stop
    | AnswerNow
    | AddNote
    | Prefill
    | AskBeside
    | Cancel
    | Rewind
    | Undo
    | Redo
    | Compact
    | UndoCompact
    | CountContext
    | Rename
    | QueueAdd
    | QueueChange
    | QueueRemove
    | UseOptions
    | UseModel
    | Answer
)
FromFace = Hello | AnyCommand
