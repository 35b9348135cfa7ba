"""The lines of an edit: its plan, the new text, how it was checked, and what the user decided.

Owns shapes of the published schema (`events.base`). Does not own the turn around it (`events.turn`).
"""

from typing import ClassVar

import msgspec

from vivace.agent.events.base import Event


class EditDelta(Event, frozen=True, tag="edit.delta"):
    """More of the new text of a unit, as the model writes it."""

    is_delta: ClassVar[bool] = True
    text: str


class PlannedPart(msgspec.Struct, frozen=True, kw_only=True):
    """A unit of a plan."""

    path: str
    unit: str
    lines: str  # 12 or 12-20, in the file as it was read
    why: str  # such as "calls load"


class Planned(Event, frozen=True, tag="edit.planned"):
    """Several units are rewritten, in this order. It comes again when the plan has grown."""

    units: list[PlannedPart]


class UnitStays(Event, frozen=True, tag="edit.unit_left"):
    """A unit of the plan stays as it is."""

    path: str
    unit: str
    problem: str = ""  # why its new text cannot be used; "" if it needs no change


class UnitChosen(Event, frozen=True, tag="edit.located"):
    """The part of the file that is rewritten."""

    path: str
    unit: str
    lines: str  # 12 or 12-20
    by: str  # user or model


class Compared(Event, frozen=True, tag="edit.compared"):
    """Other answers were written, and one was chosen among all."""

    answers: int  # different ones that could be used
    examples: int = 0  # that were run in the sandbox
    held: int = 0  # of them, for the one that was chosen
    calls: int = 0  # with made-up arguments, also in the sandbox, that compare new with old code


class RepairBegun(Event, frozen=True, tag="edit.repairing"):
    """The model is told what is wrong with its answer, and writes it once more."""

    complaint: str  # as the model reads it


class Imported(Event, frozen=True, tag="edit.imports"):
    """Imports that the new text needs were added to the file's import block."""

    imports: list[str]  # the lines that were added or changed


class Undefined(Event, frozen=True, tag="edit.undefined"):
    """The change leaves names in a file that nothing defines, and no import is known for."""

    path: str
    names: list[str]


class Tested(Event, frozen=True, tag="edit.tested"):
    """The tests that the user allowed were run over a copy of the folder with the change, or could not be."""

    passed: bool
    tried: int  # answers, the best first; 0: nothing was run
    why_not: str = ""  # they were not run
    output: str = ""  # the end of what they said about the best answer, if none passed


class EditShown(Event, frozen=True, tag="edit.proposed"):
    """The change as a whole, before the user's decision. It comes again when the user has changed it."""

    path: str
    unit: str
    diff: str  # unified
    problems: list[str] = msgspec.field(default_factory=list)  # why it cannot be used
    by: str = "model"  # or user


class Decided(Event, frozen=True, tag="edit.decided"):
    """The user's decision, or that of `--yes`."""

    decision: str  # accept, hunks, text or reject
    reason: str = ""  # of a rejection, in the user's words


class ConflictDecided(Event, frozen=True, tag="edit.conflict"):
    """The file had changed meanwhile, in the same lines. The user said what to do."""

    path: str
    choice: str  # edit, file, text (merged by the user) or stop


class EditWritten(Event, frozen=True, tag="edit.applied"):
    """The file was written, and can be undone."""

    path: str
    diff: str  # what was written
    entry: int  # the number in the undo journal; 0: in an editor's buffer, which is not saved


class EditDropped(Event, frozen=True, tag="edit.not_applied"):
    """The file is as it was."""

    path: str
    reason: str  # rejected, nothing_to_change or shown_only
