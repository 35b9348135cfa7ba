"""What a face asks of the face host: one JSON object a frame, its operation in `do`.

Owns the shapes of requests. Every request has an `id` of the face's own choice, and gets exactly one answer
with it. An unknown field is refused. Does not own what is answered (`answers`) nor what is told without being
asked (`events`).
"""

from typing import Literal

import msgspec

from vivace.agent.effort import Effort
from vivace.agent.turn_events import TurnKind

VERSION = 1  # of this protocol; a change that an old face would misunderstand gets a new one

DecisionName = Literal["accept", "reject", "hunks", "text"]
ChoiceName = Literal["edit", "file", "text", "stop"]


class Request(msgspec.Struct, frozen=True, kw_only=True, tag_field="do", forbid_unknown_fields=True):
    """What all requests are."""

    id: int


class Hello(Request, frozen=True, tag="hello"):
    """Say who you are, first of all. The answer is `Welcome`."""

    version: int = VERSION
    face: str = "browser"  # a name that people see in other faces
    folder: str = ""  # to work in; "": the one that the host was opened with last


class FolderOpen(Request, frozen=True, tag="folder.open"):
    """Work in another folder from now on. Files and new conversations are there."""

    path: str  # absolute, or from `~`


# ---- conversations as a list ------------------------------------------------------------------------


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


# ---- one conversation -------------------------------------------------------------------------------


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


class Decide(ConversationRequest, frozen=True, tag="conversation.decide"):
    """Answer a question of kind `edit`. The first answer counts; a later one is refused with `gone`."""

    question: str
    decision: DecisionName
    hunks: list[int] = []  # with `hunks`: the ids of those to write
    texts: list[str] = []  # with `text`: the new text of each file, in the question's order
    reason: str = ""  # with `reject`: for the model's next turn


class Resolve(ConversationRequest, frozen=True, tag="conversation.resolve"):
    """Answer a question of kind `conflict`."""

    question: str
    choice: ChoiceName
    text: str = ""  # with `text`: the file as the user has merged it


class Approve(ConversationRequest, frozen=True, tag="conversation.approve"):
    """Answer a question of kind `call`."""

    question: str
    is_allowed: bool
    is_kept: bool = False  # a yes to the same call from now on, too
    reason: str = ""  # of a no, for the model


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


# ---- files ------------------------------------------------------------------------------------------


class FilesTree(Request, frozen=True, tag="files.tree"):
    """List the files below a folder, without those that Git ignores."""

    folder: str = ""  # relative to the face's folder


class FilesFind(Request, frozen=True, tag="files.find"):
    """Find files whose path has these letters in this order, the best first."""

    words: str
    limit: int = 50


class FilesRead(Request, frozen=True, tag="files.read"):
    """Read a text file. The answer has its digest."""

    path: str  # relative to the face's folder, or absolute in it


class FilesWrite(Request, frozen=True, tag="files.write"):
    """Write a text file. Refused with `changed` if the file on disk has another digest."""

    path: str
    text: str
    digest: str  # of the text that was changed; "": there is no such file yet


class FilesWatch(Request, frozen=True, tag="files.watch"):
    """Tell when one of these files changes on disk. It replaces what was watched before."""

    paths: list[str]


class BuffersSet(Request, frozen=True, tag="buffers.set"):
    """Offer the unsaved text of a file: edits and mentions read it in place of the file."""

    path: str
    text: str | None  # null: the file counts again


# ---- one edit outside of a conversation -------------------------------------------------------------


class LineRange(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Lines of a file, from 1, both included."""

    first_line: int
    last_line: int


class EditPlace(Request, frozen=True, kw_only=True):
    """What an edit is about. With neither selection, unit nor line the model looks for what may change."""

    path: str  # absolute
    text: str | None = None  # of the unsaved buffer; null: the file on disk
    selection: LineRange | None = None  # what may change
    unit: str = ""  # the name of what may change
    line: int = 0  # the function or class around this line may change, if there is one


class EditStart(EditPlace, frozen=True, tag="edit.start"):
    """Edit one file outside of a conversation. The answer names the edit, whose events follow."""

    instruction: str
    apply: Literal["host", "face"] = (
        "host"  # face: the accepted text comes as `edit.accepted`, and is not written
    )
    effort: Effort | None = None
    model: str | None = None


class EditPrefill(EditPlace, frozen=True, tag="edit.prefill"):
    """Let the model read what an edit needs while its instruction is typed. Only the last draft counts."""

    draft: str = ""


class EditRequest(Request, frozen=True, kw_only=True):
    """What all requests about a running edit are."""

    edit: str


class EditSteer(EditRequest, frozen=True, tag="edit.steer"):
    """Give another instruction; what was written is kept as far as it serves."""

    text: str


class EditStop(EditRequest, frozen=True, tag="edit.stop"):
    """End the edit. Nothing is written."""


class EditDecide(EditRequest, frozen=True, tag="edit.decide"):
    """Answer the edit's question of kind `edit`."""

    question: str
    decision: DecisionName
    hunks: list[int] = []
    texts: list[str] = []
    reason: str = ""


class EditResolve(EditRequest, frozen=True, tag="edit.resolve"):
    """Answer the edit's question of kind `conflict`."""

    question: str
    choice: ChoiceName
    text: str = ""


class EditWritten(EditRequest, frozen=True, tag="edit.written"):
    """Say that the face has put the accepted text in place, or why it could not (`apply: "face"`)."""

    problem: str = ""  # "": it is in place


# ---- background tasks, and what there is ------------------------------------------------------------


class TasksList(Request, frozen=True, tag="tasks.list"):
    """List the background tasks, the newest first."""


class TasksStart(Request, frozen=True, tag="tasks.start"):
    """Begin a task in a copy of the face's folder."""

    instruction: str
    policy: str = "workspace"  # a permission mode
    conversation: str = ""  # whose talk it is told


class TaskRequest(Request, frozen=True, kw_only=True):
    """What all requests about a task are."""

    task: str


class TasksLog(TaskRequest, frozen=True, tag="tasks.log"):
    """Return lines of a task's log."""

    after: int = 0  # lines that the face has already


class TasksDiff(TaskRequest, frozen=True, tag="tasks.diff"):
    """Return what a task has changed, as a unified diff."""


class TasksSteer(TaskRequest, frozen=True, tag="tasks.steer"):
    """Tell a running task something."""

    text: str


class TasksAnswer(TaskRequest, frozen=True, tag="tasks.answer"):
    """Answer what a task asks."""

    is_allowed: bool
    reason: str = ""


class TasksStop(TaskRequest, frozen=True, tag="tasks.stop"):
    """End a task. What it wrote stays in its copy."""


class TasksResume(TaskRequest, frozen=True, tag="tasks.resume"):
    """Let a task go on."""

    text: str = ""  # what more to do


class TasksTake(TaskRequest, frozen=True, tag="tasks.take"):
    """Offer what a task has changed as an edit of this conversation."""

    conversation: str


class ModelsList(Request, frozen=True, tag="models.list"):
    """List the models that can answer."""


class MetricsRead(Request, frozen=True, tag="metrics.read"):
    """Return how fast the server was over the last hour."""


class ResultsList(Request, frozen=True, tag="results.list"):
    """Return the results of `vivace bench` and `vivace eval` that were kept, the newest first."""

    limit: int = 100


AnyRequest = (
    Hello
    | FolderOpen
    | ConversationsList
    | ConversationsSearch
    | ConversationsRename
    | ConversationsDelete
    | ConversationsFork
    | ConversationOpen
    | ConversationClose
    | ConversationSend
    | ConversationSteer
    | QueueAdd
    | QueueEdit
    | QueueRemove
    | ConversationStop
    | AnswerNow
    | Prefill
    | Decide
    | Resolve
    | Approve
    | Undo
    | Redo
    | Rewind
    | Compact
    | Context
    | Btw
    | NoteRequest
    | Export
    | ConversationSet
    | FilesTree
    | FilesFind
    | FilesRead
    | FilesWrite
    | FilesWatch
    | BuffersSet
    | EditStart
    | EditPrefill
    | EditSteer
    | EditStop
    | EditDecide
    | EditResolve
    | EditWritten
    | TasksList
    | TasksStart
    | TasksLog
    | TasksDiff
    | TasksSteer
    | TasksAnswer
    | TasksStop
    | TasksResume
    | TasksTake
    | ModelsList
    | MetricsRead
    | ResultsList
)

decode_request = msgspec.json.Decoder(AnyRequest).decode
