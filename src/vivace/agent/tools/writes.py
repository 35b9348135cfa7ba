"""Changes of files that tools have made in one turn, until the journal has them all as one entry.

Owns what a file is meanwhile: a second edit of the turn builds on the first. Each is read, and later written,
in the place that was judged. Does not write itself (`journal`).
"""

from dataclasses import dataclass, field
from pathlib import Path

from vivace.agent.edits.apply.files import DISK, Files
from vivace.agent.edits.apply.journal import Change, Journal
from vivace.agent.edits.apply.source import SourceFile, new_source, source_from_bytes
from vivace.agent.edits.apply.writing import Written, write_changes
from vivace.agent.permissions.paths import Place
from vivace.errors import FileProblem


@dataclass
class Staged:
    source: SourceFile  # as it was before the turn
    new_bytes: bytes | None  # None: the file is removed


@dataclass
class Writes:
    staged: dict[Path, Staged] = field(default_factory=dict)  # by the path with links followed
    files: Files = DISK  # what the turn began with, and who writes

    def read(self, place: Place) -> SourceFile:
        """Return a file as the turn has made it so far. Raise FileProblem if there is none."""
        if place.path not in self.staged:
            return self.files.read(place.path, place.path)
        data = self.staged[place.path].new_bytes
        if data is None:
            raise FileProblem(f"{place.shown} does not exist: it was removed just before.")
        return source_from_bytes(place.path, data, place.path)

    def exists(self, place: Place) -> bool:
        if place.path in self.staged:
            return self.staged[place.path].new_bytes is not None
        return self.files.is_there(place.path)

    def put(self, place: Place, new_bytes: bytes | None) -> None:
        """Make this the content of a file, or remove it."""
        known = self.staged.get(place.path)
        source = known.source if known else self._before(place)
        self.staged[place.path] = Staged(source, new_bytes)

    def _before(self, place: Place) -> SourceFile:
        if self.files.is_there(place.path):
            return self.files.read(place.path, place.path)
        return new_source(place.path, place.path)

    def changes(self) -> list[Change]:
        """Return what is to be written: files that end up as they were are not."""
        changes = [Change(each.source, each.new_bytes, "task") for each in self.staged.values()]
        return [change for change in changes if change.old_bytes != change.new_bytes]

    async def flush(self, journal: Journal, instruction: str) -> tuple[Written | None, list[Change]]:
        """Write all changes as one entry of the journal, and begin anew whatever came of it."""
        changes = self.changes()
        self.staged = {}
        if not changes:
            return None, changes
        return await write_changes(changes, instruction, journal, self.files), changes
