"""What a face asks about conversations: the list of them, and one that it has open.

Owns the shapes. Does not own answers to what the agent asks (`question_requests`).
"""

from typing import Literal

from vivace.agent.effort import Effort
from vivace.agent.events.turn import TurnKind
from vivace.web.messages.request import Request


class ConversationsList(Request, frozen=True, tag="conversations.list"):
    """List conversations, the one that was used last first."""

    folder: str = ""  # only those of this folder; "": all
    limit: int = 200


class ConversationsSearch(Request, frozen=True, tag="conversations.search"):
    """Find conversations by words that were said in them."""

    words: str
    limit: int = 50


class ConversationsRename(Request, frozen=True, tag="conversations.rename"):
    """Give a conversation a title."""

    conversation: str
    title: str


class ConversationsDelete(Request, frozen=True, tag="conversations.delete"):
    """Delete a conversation for ever. Refused while it is open somewhere else."""

    conversation: str


class ConversationsFork(Request, frozen=True, tag="conversations.fork"):
    """Make a conversation that goes on from here on its own. It is not opened. The answer names it."""

    conversation: str


class ConversationOpen(Request, frozen=True, tag="conversation.open"):
    """Open a conversation, or begin a new one. The answer is a `Snapshot`; its events follow."""

    conversation: str = ""  # "": begin a new one
    folder: str = ""  # of a new one; "": the face's folder
    epoch: str = ""  # after a reconnect: of the last snapshot
    after: int = (
        0  # after a reconnect: the last `seq` that arrived; what came since is answered if it is kept
    )


class ConversationRequest(Request, frozen=True, kw_only=True):
    """What all requests about an open conversation are."""

    conversation: str


class ConversationClose(ConversationRequest, frozen=True, tag="conversation.close"):
    """Hear no more of it. A turn that runs goes on."""


class ConversationSend(ConversationRequest, frozen=True, tag="conversation.send"):
    """Send a message. Answered when the turn has begun; refused with `conversation_busy` while one runs."""

    text: str
    mentions: list[str] | None = None  # `path` or `path:name`; null: those in the text
    kind: TurnKind | None = None  # null: decided by the words or the model


class ConversationSteer(ConversationRequest, frozen=True, tag="conversation.steer"):
    """Turn the running turn around. With none running, the text is sent."""

    text: str


class QueueAdd(ConversationRequest, frozen=True, tag="conversation.queue.add"):
    """Let a message wait for the end of the turn."""

    text: str
    mentions: list[str] | None = None
    is_first: bool = False


class QueueEdit(ConversationRequest, frozen=True, tag="conversation.queue.edit"):
    """Change a message that waits."""

    message: int  # its id in `queue.changed`
    text: str


class QueueRemove(ConversationRequest, frozen=True, tag="conversation.queue.remove"):
    """Take a message out of the queue."""

    message: int


class ConversationStop(ConversationRequest, frozen=True, tag="conversation.stop"):
    """End the running turn and keep its partial."""


class AnswerNow(ConversationRequest, frozen=True, tag="conversation.answer_now"):
    """Let a model that thinks begin its answer."""


class Prefill(ConversationRequest, frozen=True, tag="conversation.prefill"):
    """Let the model read what is being typed. Send it as often as you like: only the last draft counts."""

    draft: str
    mentions: list[str] | None = None


class Undo(ConversationRequest, frozen=True, tag="conversation.undo"):
    """Take back an edit of the conversation. What came later is kept, or the request is refused."""

    entry: int = 0  # of `edit.applied`; 0: the newest edit that stands


class Redo(ConversationRequest, frozen=True, tag="conversation.redo"):
    """Bring back an edit that was undone, with all that was undone in the same step."""

    entry: int = 0  # of `edit.applied`; 0: what was undone last


class Rewind(ConversationRequest, frozen=True, tag="conversation.rewind"):
    """Go back to before a turn: its and later edits, the words, or both."""

    turn: int
    code: bool = True
    talk: bool = True


class Compact(ConversationRequest, frozen=True, tag="conversation.compact"):
    """Let the model read a summary instead of the turns so far."""

    is_undone: bool = False  # true: take the last summary back


class Context(ConversationRequest, frozen=True, tag="conversation.context"):
    """Count what is in the prompt. The answer is `ContextCounted`."""

    draft: str = ""


class Btw(ConversationRequest, frozen=True, tag="conversation.btw"):
    """Ask beside the conversation, on a fork of its KV. The answer comes as `side.…` events."""

    question: str


class NoteRequest(ConversationRequest, frozen=True, tag="conversation.note"):
    """Tell the model this in front of the next message."""

    text: str


class Export(ConversationRequest, frozen=True, tag="conversation.export"):
    """Return the conversation as Markdown."""


class ConversationSet(ConversationRequest, frozen=True, tag="conversation.set"):
    """Change what answers from the next turn on. What is null stays."""

    model: str | None = None
    effort: Effort | None = None
    policy: str | None = None  # a permission mode: workspace, ask, read-only or full
    approval: Literal["ask", "yes"] | None = None  # yes: edits are written without a question
