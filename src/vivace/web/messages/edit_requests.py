"""What a face asks about one edit outside of a conversation.

Owns the shapes. Does not own answers to what the agent asks (`question_requests`).
"""

from typing import Literal

import msgspec

from vivace.agent.effort import Effort
from vivace.web.messages.request import Request


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


class EditWritten(EditRequest, frozen=True, tag="edit.written"):
    """Say that the face has put the accepted text in place, or why it could not (`apply: "face"`)."""

    problem: str = ""  # "": it is in place
