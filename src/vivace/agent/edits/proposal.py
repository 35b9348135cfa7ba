"""What an edit would make of a file, and what the user may decide about it.

Owns the proposal: its bytes, its hunks and its problems, and how it changes when the user takes only some
hunks or gives a text of their own. Pure data; writes nothing (`apply.journal`) and asks nobody.
"""

from dataclasses import dataclass, replace

from vivace.agent.edits.apply.source import SourceFile, source_from_bytes, splice
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
    """Take this as the file's new content instead. It is checked, shown and asked about again."""

    new_bytes: bytes


@dataclass(frozen=True)
class Reject:
    """Write nothing."""

    reason: str = ""  # in the user's words, for the model's next turn


Decision = Accept | AcceptHunks | UseText | Reject


@dataclass(frozen=True)
class Proposal:
    """What the file would become."""

    source: SourceFile
    unit: Unit
    instruction: str
    new_bytes: bytes
    hunks: tuple[Hunk, ...]
    problems: tuple[str, ...]  # why it should not be written; empty when it may

    @property
    def rows(self) -> list[Row]:
        """Return the unified diff, with hunk headers."""
        return [row for hunk in self.hunks for row in hunk.rows_with_header]

    @property
    def changes_bytes(self) -> bool:
        """Return whether the file would differ at all. A change of line ends alone has no hunks."""
        return self.new_bytes != self.source.raw

    def with_bytes(self, new_bytes: bytes) -> "Proposal":
        """Return the proposal with the user's own text, checked again."""
        return make_proposal(self.source, self.unit, self.instruction, new_bytes)

    def with_hunks(self, chosen: frozenset[int]) -> "Proposal":
        """Return the proposal with the chosen hunks only, checked again."""
        if len(chosen) == len(self.hunks):
            return self  # with its line ends, which are in no hunk
        source = self.source
        for index in sorted(chosen, reverse=True):  # from the end: line numbers above stay right
            hunk = self.hunks[index]
            last = hunk.old_first + hunk.old_count - 1
            raw = splice(source, hunk.old_first, last, hunk.new_text)
            source = replace(source_from_bytes(source.path, raw), newline=source.newline)
        return self.with_bytes(source.raw)


def make_proposal(source: SourceFile, unit: Unit, instruction: str, new_bytes: bytes) -> Proposal:
    """Compare the new bytes with the file as it was read, and check them."""
    problems = verify(source, language_for(source.path), unit, new_bytes, instruction)
    return Proposal(source, unit, instruction, new_bytes, whole_diff(source, new_bytes), tuple(problems))


def whole_diff(source: SourceFile, new_bytes: bytes) -> tuple[Hunk, ...]:
    """Return the hunks of the whole file.

    What both texts begin and end with is set aside first: the alignment takes a byte per pair of lines.
    """
    old, new = source.lines, source_from_bytes(source.path, new_bytes).lines
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
