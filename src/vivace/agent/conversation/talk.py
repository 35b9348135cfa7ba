"""What a face needs of a conversation, whether this process holds it or another one does.

Owns the interface, and what both kinds read from the state alike. `Conversation` is held by this process;
`AttachedConversation` belongs to another process and travels over a socket. A face gets either from
`sharing.opening.open_or_attach`, shows `turns`, and then calls `follow`. Does not own what the methods do.
"""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, Protocol, Self

import msgspec

from vivace.agent.conversation.connection import Connection
from vivace.agent.conversation.context import ContextUse
from vivace.agent.conversation.message.missing import check_mentions
from vivace.agent.conversation.message.prompt import opening_summary, told, turns_since_summary
from vivace.agent.conversation.transcript.export import to_markdown
from vivace.agent.conversation.transcript.history import History, Turn
from vivace.agent.conversation.transcript.record_log import RecordLog
from vivace.agent.conversation.transcript.records import AnyRecord
from vivace.agent.edits.apply.journal import Journal
from vivace.agent.edits.proposal import Proposal
from vivace.agent.effort import Effort
from vivace.agent.events.talk import Compacted, EditsRedone, EditsUndone, QueuedMessage, Rewound
from vivace.agent.events.turn import TurnKind
from vivace.agent.options import Approval, Options
from vivace.agent.permissions.policy import Policy
from vivace.agent.presenter import Presenter
from vivace.agent.prompting import Message

Offer = Callable[[Presenter, Journal], Awaitable[object]]  # shows a proposal, and writes what is taken


class TalkQueue(Protocol):
    """The messages that wait for the end of a turn."""

    @property
    def messages(self) -> tuple[QueuedMessage, ...]:
        """Return what waits, the next one first."""

    def add(self, text: str, mentions: Sequence[str] | None = None) -> object:
        """Queue a message behind the others. None: mentions are found in the text."""

    def change(self, message_id: int, text: str, mentions: Sequence[str] | None = None) -> None:
        """Give a message another text. No effect if it was taken up meanwhile."""

    def remove(self, message_id: int) -> None:
        """Drop a message. No effect if it was taken up meanwhile."""


class Talk(ABC):
    """A conversation as a face knows it. All methods belong to one event loop."""

    def __init__(self, history: History, log: RecordLog, connection: Connection) -> None:
        self._history = history
        self._log = log
        self._connection = connection

    # ---- what it is -------------------------------------------------------------------------------

    @property
    def id(self) -> str:
        return self._history.id

    @property
    def folder(self) -> Path:
        return Path(self._history.folder)

    @property
    def title(self) -> str:
        """Return the name that the user gave it, or how its first message begins."""
        return self._history.title

    @property
    def turns(self) -> Sequence[Turn]:
        """Return the turns that stand, oldest first. The last may be running."""
        return self._history.turns

    @property
    def history(self) -> History:
        """Return the whole state, to be read only."""
        return self._history

    @property
    def records(self) -> list[AnyRecord]:
        """Return all lines of the transcript so far, with deltas joined."""
        return self._log.records

    @property
    def connection(self) -> Connection:
        """Return this process's way to the server, to open it before the first turn or to renew it."""
        return self._connection

    @property
    @abstractmethod
    def queue(self) -> TalkQueue:
        """Return the messages that wait."""

    @property
    @abstractmethod
    def is_running(self) -> bool:
        """Return whether a turn runs."""

    @property
    @abstractmethod
    def is_held(self) -> bool:
        """Return whether this process holds the conversation, and not another one."""

    @property
    @abstractmethod
    def others(self) -> tuple[str, ...]:
        """Return the names of the other faces that have it open, such as `browser`."""

    # ---- what may be set --------------------------------------------------------------------------

    @property
    @abstractmethod
    def options(self) -> Options: ...

    @abstractmethod
    def use(self, options: Options) -> None:
        """Use these options from now on. Every face is told."""

    @property
    def model(self) -> str:
        return self._history.model

    @model.setter
    def model(self, name: str) -> None:
        if name != self.model:
            self.use_model(name)

    @abstractmethod
    def use_model(self, name: str) -> None:
        """Let another model answer from the next turn on."""

    @property
    def approval(self) -> Approval:
        """Return whether the user is asked about each edit (`ask`), or yes or no was said beforehand."""
        return self.options.approval

    @approval.setter
    def approval(self, approval: Approval) -> None:
        self._change(approval=approval)

    @property
    def policy(self) -> Policy:
        """Return what calls of tools may do by themselves. A change counts from the next call on."""
        return self.options.policy

    @policy.setter
    def policy(self, policy: Policy) -> None:
        self._change(policy=policy)

    @property
    def effort(self) -> Effort:
        """Return how hard edits are tried. It may be changed between any two turns."""
        return self.options.effort

    @effort.setter
    def effort(self, effort: Effort) -> None:
        self._change(effort=effort)

    def use_tests(self, line: str) -> None:
        """Let edits run these tests from the next turn on; none if the line is empty."""
        self._change(test_command=line)

    def _change(self, **changes: Any) -> None:
        options = msgspec.structs.replace(self.options, **changes)
        if options != self.options:
            self.use(options)

    # ---- talking ----------------------------------------------------------------------------------

    @abstractmethod
    def follow(self) -> None:
        """Begin to show events to the face. Those of a running turn come first, from its start."""

    def check_message(self, text: str) -> None:
        """Raise FileProblem or UnitNotFound if a mention in it means what is not there. Reads the disk.

        A face asks this before it sends, steers or queues a message, so that its user can correct it.
        """
        check_mentions(text, self.folder)

    @abstractmethod
    async def send(
        self, text: str, mentions: Sequence[str] | None = None, *, kind: TurnKind | None = None
    ) -> Turn:
        """Run one turn to its end, then those that are queued. Return the last one.

        Without `mentions` they are found in the text, which `check_message` sees first; without `kind` it
        is decided whether the text is a question or an edit. What goes wrong in a turn is shown as `Failed`,
        and the turn's status says so. A turn that was stopped or failed leaves the queue as it is. Raise
        `ConversationBusy` if a turn runs.
        """

    @abstractmethod
    async def run_queue(self) -> None:
        """Send what is queued, unless a turn runs already."""

    @abstractmethod
    async def offer(self, text: str, proposal: Proposal) -> Turn:
        """Run one turn that asks about a proposal which no model has to write. `text` is its message."""

    @abstractmethod
    async def make_offer(self, text: str, offer: Offer) -> Turn:
        """Run one turn that only offers changes, which `offer` shows and writes. `text` is its message."""

    @abstractmethod
    async def wait_idle(self) -> None:
        """Return when no turn runs."""

    @abstractmethod
    async def steer(self, text: str) -> None:
        """Turn the running turn around; its partial is kept. Too late for that, the text is sent next."""

    @abstractmethod
    def stop(self) -> None:
        """End the running turn and keep its partial, and the queue as it is. No effect if none runs."""

    @abstractmethod
    def answer_now(self) -> None:
        """Let a model that thinks begin its answer. No effect if it does not think, or nothing runs."""

    @abstractmethod
    def note(self, text: str) -> None:
        """Tell the model this in front of the next message."""

    @abstractmethod
    async def prefill(self, draft: str, mentions: Sequence[str] | None = None) -> None:
        """Let the model read what is being typed, as far as it goes. `PromptWarmed` says how far."""

    @abstractmethod
    async def btw(self, question: str) -> str:
        """Answer a question on a fork of the conversation's KV, which stays as it is. Cancel it to stop."""

    # ---- what was said before ---------------------------------------------------------------------

    @abstractmethod
    async def rewind(self, turn: int, *, code: bool = True, talk: bool = True) -> Rewound:
        """Go back to before this turn: undo its and later edits (`code`), forget the words (`talk`), or both.

        Raise `NothingToUndo` if a file has changed since in the same lines: then none is undone.
        """

    @abstractmethod
    async def undo(self, entry: int = 0) -> EditsUndone:
        """Take back the edit with this entry in the journal, or the newest one (0). What came later is kept.

        Raise `NothingToUndo` if there is none, or if later changes are in the same lines.
        """

    @abstractmethod
    async def redo(self, entry: int = 0) -> EditsRedone:
        """Bring back the edit with this entry, or what was undone last (0), with all that was undone with it.

        Raise `NothingToUndo` if there is none, or if later changes are in the same lines.
        """

    @abstractmethod
    async def fork(self, face: Presenter | None = None) -> "Talk":
        """Return a conversation that goes on from here on its own. This one stays as it is."""

    @abstractmethod
    async def compact(self) -> Compacted:
        """Let the model read a summary instead of the turns so far. `undo_compact` takes it back."""

    @abstractmethod
    async def undo_compact(self) -> None:
        """Let the model read the turns themselves again."""

    @abstractmethod
    async def context(self, draft: str = "", mentions: Sequence[str] | None = None) -> ContextUse:
        """Count what is in the prompt, with the draft of the next message, against the window."""

    @abstractmethod
    async def rename(self, title: str) -> None:
        """Give the conversation a name. An empty one takes the name away."""

    def handed_over(self) -> list[Message]:
        """Return what was said so far, for somebody else to go on from."""
        before = turns_since_summary(self._history)
        return [*opening_summary(self._history.compaction), *told(before, self.folder)]

    def export(self) -> str:
        """Return the conversation as Markdown."""
        return to_markdown(self._history)

    @abstractmethod
    async def close(self) -> None:
        """Let go of the conversation. Whoever holds it stops what runs; another face goes on with it."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
