"""Every event that a presenter is shown.

Owns the union, for type checks. Import an event itself from its module: `turn`, `edit`,
`talk` or `base`. Does not own how they are shown (`presenter`).
"""

from vivace.agent.events.base import Failed
from vivace.agent.events.edit import (
    AnswersCompared,
    ComparingAnswers,
    ConflictResolved,
    DiffGrew,
    EditApplied,
    EditDecided,
    EditNotApplied,
    EditPlanned,
    EditProposed,
    EditStarted,
    ImportsAdded,
    NamesUndefined,
    RepairStarted,
    UnitLeft,
    UnitLocated,
    UserTestsEnded,
    UserTestsStarted,
)
from vivace.agent.events.talk import (
    Compacted,
    CompactionStarted,
    CompactionUndone,
    EditsRedone,
    EditsUndone,
    FacesChanged,
    ModelChanged,
    ModelProgress,
    NoteAdded,
    OptionsChanged,
    PromptWarmed,
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
    TaskStepped,
    TimesMeasured,
    TurnEnded,
    TurnStarted,
    WritingEnded,
)

AgentEvent = (
    EditStarted
    | EditPlanned
    | UnitLocated
    | UnitLeft
    | DiffGrew
    | ComparingAnswers
    | AnswersCompared
    | RepairStarted
    | ImportsAdded
    | NamesUndefined
    | UserTestsStarted
    | UserTestsEnded
    | AttemptStarted
    | ReasoningGrew
    | AnswerGrew
    | WritingEnded
    | EditProposed
    | TimesMeasured
    | EditDecided
    | ConflictResolved
    | EditApplied
    | EditNotApplied
    | Failed
    | TurnStarted
    | IntentDecided
    | FileChosen
    | PlacesAsked
    | CodeRead
    | MemoryUsed
    | ResponseBegan
    | AttemptAbandoned
    | SteerQueued
    | TurnEnded
    | QueueChanged
    | PromptWarmed
    | ModelProgress
    | CompactionStarted
    | Compacted
    | CompactionUndone
    | HistoryReplayed
    | Rewound
    | EditsUndone
    | EditsRedone
    | NoteAdded
    | ModelChanged
    | OptionsChanged
    | Renamed
    | FacesChanged
    | TaskStepped
    | SideStarted
    | SideGrew
    | SideEnded
)
