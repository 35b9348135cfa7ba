"""The base of all messages, and values that need a form of their own to travel.

Owns the shapes of files, proposals, diffs and decisions. Does not own how values become them (`event_codec`,
`answers`).
"""

import msgspec

from vivace.agent.edits.find.units import Unit
from vivace.agent.edits.write.live_diff import Row


class Message(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", omit_defaults=True):
    """What all messages are."""


class SourceKnown(Message, frozen=True, tag="source"):
    """A file as it was read. Later messages name it by its number."""

    number: int
    path: str
    target: str
    raw: bytes
    newline: str
    exists: bool


class HunkForm(msgspec.Struct, frozen=True, array_like=True):
    old_first: int
    old_count: int
    new_first: int
    new_count: int
    rows: tuple[Row, ...]


class FileForm(msgspec.Struct, frozen=True):
    """What one file of a proposal would become."""

    source: int
    unit: Unit
    instruction: str
    new_bytes: bytes
    hunks: tuple[HunkForm, ...]
    problems: tuple[str, ...] = ()
    is_removed: bool = False
    faults: tuple[str, ...] = ()


class ProposalKnown(Message, frozen=True, tag="proposal"):
    """A proposal. Later messages name it by its number."""

    number: int
    files: tuple[FileForm, ...]
    missing: tuple[str, ...] = ()


class DiffKnown(Message, frozen=True, tag="diff"):
    """A unit that is rewritten now. Later messages name its diff by its number."""

    number: int
    old_lines: tuple[str, ...]
    first_line: int


class DecisionForm(msgspec.Struct, frozen=True):
    """A decision about a proposal."""

    kind: str  # accept, hunks, text or reject
    hunks: tuple[int, ...] = ()
    texts: tuple[bytes, ...] = ()
    reason: str = ""


class ResolutionForm(msgspec.Struct, frozen=True):
    """What is to be done about a file that changed meanwhile."""

    kind: str  # edit, file, text or stop
    text: bytes = b""


class ConflictForm(msgspec.Struct, frozen=True):
    source: int
    new_bytes: bytes | None
    unit: Unit | str
    current: bytes | None
    message: str
    draft: bytes | None = None
