"""What a face asks of the face host: one JSON object a frame, its operation in `do`.

Owns the list of all requests, and how one is read. Every request has an `id` of the face's own choice, and
gets exactly one answer with it. An unknown field is refused. Does not own the shapes (a module for each
topic), what is answered (`answers`), nor what is told without being asked (`events`).
"""

import msgspec

from vivace.web.messages.conversation_requests import (
    AnswerNow,
    Btw,
    Compact,
    Context,
    ConversationClose,
    ConversationOpen,
    ConversationsDelete,
    ConversationSend,
    ConversationSet,
    ConversationsFork,
    ConversationsList,
    ConversationsRename,
    ConversationsSearch,
    ConversationSteer,
    ConversationStop,
    Export,
    NoteRequest,
    Prefill,
    QueueAdd,
    QueueEdit,
    QueueRemove,
    Redo,
    Rewind,
    Undo,
)
from vivace.web.messages.edit_requests import (
    EditPrefill,
    EditStart,
    EditSteer,
    EditStop,
    EditWritten,
)
from vivace.web.messages.figure_requests import (
    MetricsRead,
    ModelsList,
    ResultsList,
)
from vivace.web.messages.file_requests import (
    BuffersSet,
    FilesFind,
    FilesRead,
    FilesTree,
    FilesWatch,
    FilesWrite,
)
from vivace.web.messages.question_requests import (
    Approve,
    Decide,
    EditDecide,
    EditResolve,
    Resolve,
)
from vivace.web.messages.request import (
    FolderOpen,
    Hello,
)
from vivace.web.messages.task_requests import (
    TasksAnswer,
    TasksDiff,
    TasksList,
    TasksLog,
    TasksResume,
    TasksStart,
    TasksSteer,
    TasksStop,
    TasksTake,
)

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
