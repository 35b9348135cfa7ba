"""What all lines of a transcript and of a task's log are: one JSON object a line, with a `type`.

Owns the version of the published schema. A reader must pass over types and fields that it does not know; a
change that such a reader would misunderstand gets a new `SCHEMA`. Does not own the lines themselves
(`turn_records`, `edit_records`, `talk_records`, and `loop.steps`).
"""

from typing import ClassVar

import msgspec

DAMAGED = "transcript_damaged"  # the code of an error that stands where lines cannot be read
SCHEMA = 2  # 1: without `reasoning.delta`, `turn.code`, `turn.retold` and edits of several files


class Record(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", omit_defaults=True):
    """What all lines are."""

    is_delta: ClassVar[bool] = False


class Error(Record, frozen=True, tag="error"):
    """The turn failed."""

    code: str
    message: str
    hint: str = ""
