"""Every line of a transcript and of `vivace -p --output-format stream-json`, in the order of its page.

Owns the union. Does not own the file (`file`), nor what the lines add up to (`history`).
"""

from vivace.agent.conversation.transcript.edit_records import (
    Compared,
    ConflictDecided,
    Decided,
    EditDelta,
    EditDropped,
    EditShown,
    EditWritten,
    Imported,
    Planned,
    RepairBegun,
    Tested,
    Undefined,
    UnitChosen,
    UnitStays,
)
from vivace.agent.events.base import (
    Failed,
)
from vivace.agent.events.talk import (
    Compacted,
    CompactionStarted,
    CompactionUndone,
    ConversationResumed,
    ConversationStarted,
    EditsRedone,
    EditsUndone,
    ModelChanged,
    NoteAdded,
    QueueChanged,
    Renamed,
    Rewound,
    SideEnded,
    SideGrew,
    SideStarted,
)
from vivace.agent.events.turn import (
    AnswerGrew,
    AttemptAbandoned,
    AttemptStarted,
    CodeRead,
    FileChosen,
    HistoryReplayed,
    IntentDecided,
    MemoryUsed,
    PlacesAsked,
    ReasoningGrew,
    ResponseBegan,
    SteerQueued,
    StepTaken,
    TimesMeasured,
    TurnEnded,
    TurnStarted,
)

AnyRecord = (
    ConversationStarted
    | ConversationResumed
    | Renamed
    | ModelChanged
    | TurnStarted
    | IntentDecided
    | FileChosen
    | PlacesAsked
    | CodeRead
    | MemoryUsed
    | AttemptStarted
    | ResponseBegan
    | ReasoningGrew
    | AnswerGrew
    | EditDelta
    | AttemptAbandoned
    | Planned
    | UnitStays
    | UnitChosen
    | Compared
    | RepairBegun
    | Imported
    | Undefined
    | Tested
    | EditShown
    | Decided
    | ConflictDecided
    | EditWritten
    | EditDropped
    | StepTaken
    | TimesMeasured
    | Failed
    | TurnEnded
    | QueueChanged
    | SteerQueued
    | CompactionStarted
    | Compacted
    | CompactionUndone
    | HistoryReplayed
    | Rewound
    | EditsUndone
    | EditsRedone
    | NoteAdded
    | SideStarted
    | SideGrew
    | SideEnded
)
