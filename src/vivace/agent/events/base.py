"""What all events are: frozen structs, one JSON object a line where they are stored, each with a `type`.

Owns the version of the published schema. A reader must pass over types and fields that it does not know; a
change that such a reader would misunderstand gets a new `SCHEMA`. Does not own the events themselves (`turn`,
`edit`, `talk`, `task`).
"""

from typing import ClassVar, Self

import msgspec

from vivace.errors import FAILED, TurnFault, VivaceError

DAMAGED = "transcript_damaged"  # the code of an error that stands where lines cannot be read
SCHEMA = 2  # 1: without `reasoning.delta`, `turn.code`, `turn.retold` and edits of several files


class Event(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", omit_defaults=True):
    """What all events are."""

    is_delta: ClassVar[bool] = False  # more of a text that grows: several can be joined
    is_kept: ClassVar[bool] = True  # in the transcript


class Failed(Event, frozen=True, tag="error"):
    """Something ended with an error, and nothing was written."""

    code: str
    message: str
    hint: str = ""
    exit_code: int = FAILED  # of a command that ends so

    @classmethod
    def of(cls, error: VivaceError) -> Self:
        return cls(code=error.code, message=error.message, hint=error.hint, exit_code=error.exit_code)

    def as_exception(self) -> VivaceError:
        """Return the exception of this code; a code that is not known here makes a `TurnFault`."""
        kinds = [VivaceError]
        for kind in kinds:
            kinds += kind.__subclasses__()
        known = next((kind for kind in kinds if kind.code == self.code), TurnFault)
        try:
            return known(self.message, self.hint)
        except TypeError:  # it takes something else
            return TurnFault(self.message, self.hint)
