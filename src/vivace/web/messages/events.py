"""What the face host tells without being asked, in frames

    {"conversation": "ID", "seq": 12, "event": {"type": …}}

or with `"edit": "ID"` in place of the conversation; events of the face itself have neither. Most events are
records of the transcript, which have their own page. Owns those that no transcript keeps. `seq` counts what
happened in a conversation: text that grows quickly is joined, and then the last number stands for all.
"""

from typing import Literal

import msgspec

from vivace.agent.conversation.transcript.records import AnyRecord


class Transient(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", omit_defaults=True):
    """What all events are that no transcript keeps."""


class LiveDiff(Transient, frozen=True, tag="live.diff"):
    """More of the new text of a unit. It stands for the record `edit.delta`, which is not sent as well."""

    path: str  # absolute
    unit: str
    first_line: int  # of the old unit in its file, from 1
    last_line: int  # the last line of the old unit; first_line - 1: it is new, and stands before first_line
    delta: str
    is_first: bool = False  # the text begins anew: forget what came before of this unit


class LiveWarm(Transient, frozen=True, tag="live.warm"):
    """The model has read this much of what is being typed."""

    warm_tokens: int
    prompt_tokens: int


class LiveState(Transient, frozen=True, tag="live.state"):
    """Something that every face shows about the conversation has changed."""

    model: str
    effort: str
    policy: str  # the permission mode
    approval: str  # of edits: ask, yes or no
    faces: int  # how many have it open
    activity: str = ""  # what is done before the model can answer, such as a download; "": ready
    window_tokens: int = 0  # of the model; 0: not known yet
    title: str = ""


class LiveActivity(Transient, frozen=True, tag="live.activity"):
    """What an edit outside of a conversation waits for, such as a download."""

    activity: str = ""  # in words; "": nothing any more


class HunkAsked(msgspec.Struct, frozen=True, kw_only=True):
    """One change of a file, with the lines around it."""

    hunk: int  # its id, numbered through all files of the question
    old_first: int  # line numbers of the file, from 1
    old_count: int
    new_first: int
    new_count: int
    rows: list[tuple[str, str]]  # each a tag (" ", "-" or "+") and a line


class FileAsked(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What one file would become."""

    path: str  # absolute
    unit: str
    old_text: str
    new_text: str
    hunks: list[HunkAsked]
    problems: list[str] = []  # why it should not be written
    is_removed: bool = False  # the file goes


class Question(Transient, frozen=True, tag="question"):
    """The user is asked. It is open until `question.closed`; whoever answers first counts."""

    question: str  # its id
    kind: Literal["edit", "conflict", "call"]
    files: list[FileAsked] = []  # edit: all that would be written, taken or left as one
    missing: list[str] = []  # edit: units of the plan that could not be rewritten, and why
    path: str = ""  # conflict: the file that changed meanwhile
    message: str = ""  # conflict: what is wrong, in a sentence
    before_text: str = ""  # conflict: the file as it was when the edit was begun
    current_text: str | None = None  # conflict: the file now; null: it is gone
    edit_text: str = ""  # conflict: the file if the edit is taken
    marked_text: str = ""  # conflict: both, between markers, to be merged by hand
    tool: str = ""  # call: of the model
    title: str = ""  # call: what it does, in a line
    shown: str = ""  # call: all of what would run, nothing hidden and nothing cut; to be shown as it is
    digest: str = ""  # call: names it in the answer
    reason: str = ""  # call: why it is not simply allowed
    can_be_kept: bool = False  # call: a yes may count for the same call from now on


class QuestionClosed(Transient, frozen=True, tag="question.closed"):
    """The question was answered by somebody, or the turn was stopped."""

    question: str


class AcceptedFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file that the face is to write."""

    path: str
    text: str


class EditAccepted(Transient, frozen=True, tag="edit.accepted"):
    """With `apply: "face"`: put these texts in place, then send `edit.written`."""

    files: list[AcceptedFile]


class EditEnded(Transient, frozen=True, tag="edit.ended"):
    """The last event of an edit outside of a conversation."""

    status: Literal["applied", "rejected", "nothing_to_change", "stopped", "failed"]


class ConversationLost(Transient, frozen=True, tag="conversation.lost"):
    """The conversation is no longer open here. Open it again to go on."""

    message: str


class FileChanged(Transient, frozen=True, tag="file.changed"):
    """A watched file has other bytes on disk."""

    path: str  # as it was named in `files.watch`
    digest: str  # "": it is gone


AnyTransient = (
    LiveDiff
    | LiveWarm
    | LiveState
    | LiveActivity
    | Question
    | QuestionClosed
    | EditAccepted
    | EditEnded
    | ConversationLost
    | FileChanged
)
AnyEvent = AnyRecord | AnyTransient


class EventFrame(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One event on its way to a face."""

    event: AnyEvent
    seq: int = 0
    conversation: str = ""
    edit: str = ""
