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
from vivace.agent.conversation.transcript.schema import (
    Error,
)
from vivace.agent.conversation.transcript.talk_records import (
    CompactionBegun,
    ConversationResumed,
    ConversationStarted,
    EditsBroughtBack,
    EditsTakenBack,
    ModelChosen,
    Note,
    Queue,
    SideBegun,
    SideDelta,
    SideOver,
    Summary,
    SummaryDropped,
    WasRenamed,
    WasRewound,
)
from vivace.agent.conversation.transcript.turn_records import (
    AnswerDelta,
    AttemptAbandoned,
    AttemptBegun,
    CodeGiven,
    FileNamed,
    Intent,
    MemoryGiven,
    PlacesNamed,
    ReasoningDelta,
    ResponseKnown,
    SteerLate,
    StepTaken,
    Times,
    ToldAgain,
    TurnBegun,
    TurnOver,
)

AnyRecord = (
    ConversationStarted
    | ConversationResumed
    | WasRenamed
    | ModelChosen
    | TurnBegun
    | Intent
    | FileNamed
    | PlacesNamed
    | CodeGiven
    | MemoryGiven
    | AttemptBegun
    | ResponseKnown
    | ReasoningDelta
    | AnswerDelta
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
    | Times
    | Error
    | TurnOver
    | Queue
    | SteerLate
    | CompactionBegun
    | Summary
    | SummaryDropped
    | ToldAgain
    | WasRewound
    | EditsTakenBack
    | EditsBroughtBack
    | Note
    | SideBegun
    | SideDelta
    | SideOver
)
