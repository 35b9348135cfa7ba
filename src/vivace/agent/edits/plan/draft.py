"""The files of an edit as its steps so far leave them, in memory.

Owns the way from a unit as it was read to where it is now, and the proposal at the end: bytes outside of the
units that were taken are those of the files as they were read. Reads and writes no files.
"""

from dataclasses import dataclass, field, replace
from pathlib import Path

from vivace.agent.edits.apply.source import SourceFile
from vivace.agent.edits.find.languages import language_for
from vivace.agent.edits.find.outline import list_units
from vivace.agent.edits.find.units import Unit
from vivace.agent.edits.proposal import FileProposal, Proposal, make_proposal, whole_diff

MAX_DIFF_ROWS = 24  # of what is done already, that the model reads


@dataclass
class _FileDraft:
    source: SourceFile  # as it was read
    current: SourceFile
    units: list[Unit]  # of `current`
    taken: list[tuple[Unit, int]] = field(default_factory=list)  # as read, and how many lines it grew
    last: FileProposal | None = None


class Draft:
    def __init__(self) -> None:
        self._files: dict[Path, _FileDraft] = {}

    def open(self, source: SourceFile, units: list[Unit]) -> None:
        """Add a file as it was read. One that is there already stays as it is."""
        self._files.setdefault(source.path, _FileDraft(source, source, units))

    def source(self, path: Path) -> SourceFile:
        """Return a file as it stands now."""
        return self._files[path].current

    def units(self, path: Path) -> list[Unit]:
        """Return the units of a file as it stands now."""
        return self._files[path].units

    def moved(self, path: Path, unit: Unit) -> Unit:
        """Return a unit, which no step has touched, where it is now."""
        above = sum(grown for done, grown in self._files[path].taken if done.last_line < unit.first_line)
        return _shifted(unit, above)

    def as_read(self, path: Path, unit: Unit) -> Unit:
        """Return a unit of the file as it stands now, which no step has touched, where it was at first."""
        lines = 0
        for done, grown in sorted(self._files[path].taken, key=lambda each: each[0].first_line):
            if done.last_line < unit.first_line - lines - grown:
                lines += grown
        return _shifted(unit, -lines)

    def take(self, unit: Unit, proposal: FileProposal) -> None:
        """Put a rewritten unit into its file. `unit` is the one as it was read."""
        draft = self._files[proposal.source.path]
        assert proposal.source is draft.current, "made from the file as it stands"
        after = proposal.source.with_bytes(proposal.new_bytes)
        after = replace(after, newline=draft.source.newline)
        draft.taken.append((unit, len(after.lines) - len(draft.current.lines)))
        draft.current, draft.last = after, proposal
        draft.units = list_units(after, language_for(after.path))

    def is_usable(self, path: Path) -> bool:
        """Return whether a step has changed this file, and the last one has no problems."""
        last = self._files[path].last
        return last is not None and bool(last.hunks) and not last.problems

    def diff(self) -> str:
        """Return the lines that the steps so far removed and added, for the model to read."""
        rows = []
        for draft in self._files.values():
            hunks = whole_diff(draft.source, draft.current.raw)
            changes = [row for hunk in hunks for row in hunk.rows if row.tag in "+-" and row.text.strip()]
            rows += [f"{row.tag}{row.text}" for row in changes]
        return "\n".join(rows[:MAX_DIFF_ROWS])

    def proposal(self, instruction: str) -> Proposal:
        """Return what all steps make of the files as they were read; only files that a step has changed."""
        return Proposal(tuple(_file(draft, instruction) for draft in self._files.values() if draft.taken))


def _file(draft: _FileDraft, instruction: str) -> FileProposal:
    units = sorted((unit for unit, _ in draft.taken), key=lambda unit: unit.first_line)
    if len(units) == 1:
        assert draft.last is not None
        return draft.last  # with its own checks
    name = ", ".join(unit.qualified_name for unit in units)
    first, last = units[0].first_line, max(unit.last_line for unit in units)
    span = Unit("lines", name, name, first, last)
    return make_proposal(draft.source, span, instruction, draft.current.raw)


def _shifted(unit: Unit, lines: int) -> Unit:
    if not lines:
        return unit
    return replace(
        unit,
        first_line=unit.first_line + lines,
        last_line=unit.last_line + lines,
        signature_first_line=unit.signature_first_line + lines,
    )
