"""What an edit would make of its files, and what the user may decide about it.

Owns the proposal: its bytes, its hunks and its problems, and how it changes when the user takes only some
hunks or gives texts of their own. Does not write the files (`apply.journal`) and asks nobody.
"""

from dataclasses import dataclass, replace
from pathlib import Path

from vivace.agent.edits.apply.rebasing import Change
from vivace.agent.edits.apply.source import SourceFile, splice
from vivace.agent.edits.check.verify import verify
from vivace.agent.edits.find.languages import language_for
from vivace.agent.edits.find.units import Unit
from vivace.agent.edits.write.live_diff import Hunk, LiveDiff, Row


@dataclass(frozen=True)
class Accept:
    """Write all of it."""


@dataclass(frozen=True)
class AcceptHunks:
    """Write these hunks, by their index, and leave the rest as it was."""

    hunks: frozenset[int]


@dataclass(frozen=True)
class UseText:
    """Take these as the files' new contents instead. They are checked, shown and asked about again."""

    texts: tuple[bytes, ...]  # one for each file, in the proposal's order


@dataclass(frozen=True)
class Reject:
    """Write nothing."""

    reason: str = ""  # in the user's words, for the model's next turn


Decision = Accept | AcceptHunks | UseText | Reject


@dataclass(frozen=True)
class FileProposal:
    """What one file would become."""

    source: SourceFile
    unit: Unit  # that was rewritten; of several, the lines from the first to the last
    instruction: str
    new_bytes: bytes
    hunks: tuple[Hunk, ...]
    problems: tuple[str, ...]  # why it should not be written; empty when it may
    others: tuple["FileProposal", ...] = ()  # what other answers would make of it, the best first
    is_removed: bool = False  # the file goes, and does not only become empty
    faults: tuple[str, ...] = ()  # what it would newly break; only a person's own yes writes it

    @property
    def rows(self) -> list[Row]:
        """Return the unified diff, with hunk headers."""
        return [row for hunk in self.hunks for row in hunk.rows_with_header]

    @property
    def changes_bytes(self) -> bool:
        """Return whether the file would differ at all. A change of line ends alone has no hunks."""
        return self.new_bytes != self.source.raw

    @property
    def change(self) -> Change:
        """Return what the journal is to do."""
        return Change(self.source, None if self.is_removed else self.new_bytes, self.unit)

    def with_bytes(self, new_bytes: bytes) -> "FileProposal":
        """Return the proposal with the user's own text, checked again."""
        return make_proposal(self.source, self.unit, self.instruction, new_bytes)

    def with_hunks(self, chosen: frozenset[int]) -> "FileProposal":
        """Return the proposal with the chosen hunks only, checked again."""
        if len(chosen) == len(self.hunks):
            return self  # with its line ends, which are in no hunk
        source = self.source
        for index in sorted(chosen, reverse=True):  # from the end: line numbers above stay right
            hunk = self.hunks[index]
            last = hunk.old_first + hunk.old_count - 1
            raw = splice(source, hunk.old_first, last, hunk.new_text)
            source = replace(source.with_bytes(raw), newline=source.newline)
        return self.with_bytes(source.raw)


@dataclass(frozen=True)
class Proposal:
    """What all files of an edit would become. It is taken, left and undone as one."""

    files: tuple[FileProposal, ...]
    missing: tuple[str, ...] = ()  # units of the plan that could not be rewritten, and why

    @property
    def hunks(self) -> tuple[Hunk, ...]:
        """Return the hunks of all files, numbered through."""
        return tuple(hunk for file in self.files for hunk in file.hunks)

    @property
    def problems(self) -> tuple[str, ...]:
        """Return why it should not be written; nothing when it may."""
        if len(self.files) == 1:
            return self.files[0].problems
        return tuple(f"{file.source.path.name}: {each}" for file in self.files for each in file.problems)

    @property
    def faults(self) -> tuple[str, ...]:
        """Return what it would newly break, in sentences; nothing is known of the user's own text."""
        return tuple(dict.fromkeys(each for file in self.files for each in file.faults))

    @property
    def changed(self) -> tuple[FileProposal, ...]:
        """Return the files that would differ at all."""
        return tuple(file for file in self.files if file.changes_bytes)

    @property
    def paths_text(self) -> str:
        return ", ".join(str(file.source.path) for file in self.changed or self.files)

    def write_to(self, folder: Path) -> list[Path]:
        """Write the new texts into an empty folder, for an editor. Return the files, in order."""
        paths = []
        for number, file in enumerate(self.files):
            path = folder / str(number) / file.source.path.name  # two files may have one name
            path.parent.mkdir()
            path.write_bytes(file.new_bytes)
            paths.append(path)
        return paths

    def with_texts(self, texts: tuple[bytes, ...]) -> "Proposal":
        """Return the proposal with the user's own texts, checked again."""
        pairs = zip(self.files, texts, strict=True)
        return replace(self, files=tuple(file.with_bytes(text) for file, text in pairs))

    def with_hunks(self, chosen: frozenset[int]) -> "Proposal":
        """Return the proposal with the chosen hunks only, checked again."""
        files, before = [], 0
        for file in self.files:
            own = range(before, before + len(file.hunks))
            files.append(file.with_hunks(frozenset(index - before for index in own if index in chosen)))
            before += len(file.hunks)
        return replace(self, files=tuple(files))


def make_proposal(source: SourceFile, unit: Unit, instruction: str, new_bytes: bytes) -> FileProposal:
    """Compare the new bytes with the file as it was read, and check them."""
    problems = verify(source, language_for(source.path), unit, new_bytes, instruction)
    return FileProposal(source, unit, instruction, new_bytes, whole_diff(source, new_bytes), tuple(problems))


def whole_diff(source: SourceFile, new_bytes: bytes) -> tuple[Hunk, ...]:
    """Return the hunks of the whole file.

    What both texts begin and end with is set aside first: the alignment takes a byte per pair of lines.
    """
    old, new = source.lines, source.with_bytes(new_bytes).lines
    first = _common_lines(old, new)
    last = _common_lines(old[first:][::-1], new[first:][::-1])
    middle = slice(first, len(old) - last)
    diff = LiveDiff(old[middle], first + 1, above=old[:first], below=old[len(old) - last :])
    diff.feed(new[first : len(new) - last])
    return tuple(diff.hunks())


def _common_lines(one: tuple[str, ...], other: tuple[str, ...]) -> int:
    """Return how many lines both begin with."""
    pairs = zip(one, other, strict=False)
    return next((n for n, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))
