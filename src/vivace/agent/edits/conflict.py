"""A file that changed while an edit of it was made, in a way that cannot be merged: what the user may choose.

Owns the conflict: both texts, and the one with markers. A choice becomes a change of the file as it was when
the user saw it, so what is changed after that is never overwritten either. Asks nobody (`presenter`) and
writes nothing (`journal`).
"""

from dataclasses import dataclass
from pathlib import Path

from vivace.agent.edits.apply.files import DISK, Files
from vivace.agent.edits.apply.merging import has_markers, merge_ours_first, merge_with_markers
from vivace.agent.edits.apply.rebasing import Change, rebase
from vivace.agent.edits.apply.source import new_source, source_from_bytes
from vivace.agent.edits.proposal import whole_diff
from vivace.agent.edits.write.live_diff import Row
from vivace.errors import EditConflict, FileProblem


@dataclass(frozen=True)
class TakeEdit:
    """Write the edit, also over the lines that were changed meanwhile. What else was changed there stays."""


@dataclass(frozen=True)
class TakeFile:
    """Leave the file as it is now."""


@dataclass(frozen=True)
class TakeText:
    """Write this: the user has merged both."""

    text: bytes


@dataclass(frozen=True)
class Stop:
    """Write nothing, in any file of the edit."""


Resolution = TakeEdit | TakeFile | TakeText | Stop


@dataclass(frozen=True)
class Conflict:
    """What stands against writing one file of an edit."""

    change: Change
    current: bytes | None  # the file now; None: it is gone
    message: str  # in a sentence
    draft: bytes | None = None  # as the user left it in the editor, with markers still in it

    @property
    def path(self) -> Path:
        return self.change.source.path

    @property
    def before(self) -> bytes:
        """Return the file as it was when the edit was begun."""
        return self.change.old_bytes or b""

    @property
    def edited(self) -> bytes:
        """Return the file with the edit in it, and the edit's lines where both changed the same."""
        assert self.change.new_bytes is not None
        if self.current is None or self.change.old_bytes is None:
            return self.change.new_bytes
        return merge_ours_first(self.before, self.change.new_bytes, self.current, within=self.change.lines)

    @property
    def marked(self) -> bytes:
        """Return the file with both, between markers where they are in conflict."""
        if self.draft is not None:
            return self.draft
        assert self.change.new_bytes is not None
        return merge_with_markers(
            self.before, self.change.new_bytes, self.current or b"", within=self.change.lines
        )

    @property
    def file_rows(self) -> list[Row]:
        """Return what was changed in the file meanwhile, as a diff."""
        return _rows(self.path, self.before, self.current or b"")

    @property
    def edit_rows(self) -> list[Row]:
        """Return what taking the edit would change in the file as it is now, as a diff."""
        return _rows(self.path, self.current or b"", self.edited)

    def resolved(self, resolution: TakeEdit | TakeText) -> Change | None:
        """Return what is to be done to the file as it is now, or None if it is so already."""
        text = self.edited if isinstance(resolution, TakeEdit) else resolution.text
        if text == self.current:
            return None
        old = self.change.source
        source = new_source(self.path, old.target) if self.current is None else old.with_bytes(self.current)
        return Change(source, text, self.change.unit_name)


def find_conflict(change: Change, instruction: str, files: Files = DISK) -> Conflict | None:
    """Return what stands against writing this now, or None. A removal has no choices: raise EditConflict."""
    current = files.state(change.source.target)
    try:
        rebase(change, current, instruction)
    except EditConflict as error:
        if change.new_bytes is None:
            raise
        return Conflict(change, current, error.message)
    return None


def is_merged(resolution: TakeText) -> bool:
    """Return whether the user has taken out all markers."""
    return not has_markers(resolution.text)


def _rows(path: Path, old: bytes, new: bytes) -> list[Row]:
    """Return a diff; nothing where one of the texts is no text."""
    try:
        hunks = whole_diff(source_from_bytes(path, old), new)
    except FileProblem:
        return []
    return [row for hunk in hunks for row in hunk.rows_with_header]
