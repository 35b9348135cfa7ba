"""An edit of a file that somebody else changed meanwhile: merged with that, or refused with nothing lost.

Owns what a change is, whether it still fits the file as it is now, and where the texts of refused edits are
kept. Does not write the user's files: see `journal`.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from vivace.agent.edits.apply.merging import merge, moved_range
from vivace.agent.edits.apply.replacing import create_private_file
from vivace.agent.edits.apply.source import SourceFile, source_from_bytes
from vivace.agent.edits.check.verify import syntax_problems, verify
from vivace.agent.edits.find.languages import language_for
from vivace.agent.edits.find.units import Unit
from vivace.errors import EditConflict, FileProblem, WriteProblem

MAX_KEPT = 100


@dataclass(frozen=True)
class Change:
    """What one file shall become."""

    source: SourceFile  # as it was read; `new_source` for a file that is yet to be made
    new_bytes: bytes | None  # None: the file is removed
    unit: Unit | str  # with a unit a merged result is checked as the edit was; with a name, only its syntax

    @property
    def old_bytes(self) -> bytes | None:
        return self.source.raw if self.source.exists else None

    @property
    def lines(self) -> tuple[int, int] | None:
        """Return the unit's lines, from 0, the end excluded. None: anywhere."""
        return None if isinstance(self.unit, str) else (self.unit.first_line - 1, self.unit.last_line)

    @property
    def unit_name(self) -> str:
        return self.unit if isinstance(self.unit, str) else self.unit.qualified_name


def rebase(change: Change, current: bytes | None, instruction: str) -> bytes | None:
    """Return what the file, which is `current` now, shall become. Raise EditConflict if that is not clear."""
    if current in (change.old_bytes, change.new_bytes):
        return change.new_bytes
    path = change.source.path
    if current is None:
        raise EditConflict(f"{path} is gone since it was read.", "Nothing was written.")
    untouched = "It was left untouched, as the other program wrote it."
    if change.old_bytes is None:
        raise EditConflict(f"{path} has been made by another program meanwhile.", untouched)
    if change.new_bytes is None:
        raise EditConflict(f"{path} has changed since it was read, so it was not removed.", untouched)
    merged = merge(change.old_bytes, change.new_bytes, current, within=change.lines)
    if merged is None:
        raise EditConflict(f"{path} has changed since it was read, in the same lines.", untouched)
    if problems := _problems(change, current, merged, instruction):
        message = f"{path} has changed since it was read, and the edit does not go with that: "
        raise EditConflict(message + " ".join(problems), untouched)
    return merged


def merge_problems(path: Path, current: bytes, merged: bytes) -> list[str]:
    """Return why `merged` should not take the place of `current`: it does not parse as well."""
    try:
        now, after = source_from_bytes(path, current), source_from_bytes(path, merged)
    except FileProblem as error:
        return [error.message]
    return syntax_problems(now, language_for(path), after)


def keep_texts(folder: Path, changes: Sequence[Change], problem: WriteProblem) -> None:
    """Save the proposed texts of an edit that could not be written, and let its error say where."""
    kept = []
    with suppress(
        WriteProblem, OSError
    ):  # the disk may be full: then the first problem is all there is to say
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        numbers = sorted(int(file.name[:6]) for file in folder.iterdir() if file.name[:6].isdecimal())
        number = numbers[-1] + 1 if numbers else 1
        for change in changes:
            if change.new_bytes is not None:
                kept.append(folder / f"{number:06d}-{change.source.path.name[-60:]}")
                create_private_file(kept[-1], change.new_bytes)
        _prune(folder)
    problem.kept = tuple(file for file in kept if file.exists())
    if problem.kept:
        where = ", ".join(map(str, problem.kept))
        problem.hint = f"{problem.hint} The proposed text is kept: {where}".strip()


def _problems(change: Change, current: bytes, merged: bytes, instruction: str) -> list[str]:
    """Check the merged file as the edit was checked, with the unit where it is now."""
    if isinstance(change.unit, str) or change.lines is None:
        return merge_problems(change.source.path, current, merged)
    try:
        now = change.source.with_bytes(current)
    except FileProblem as error:
        return [error.message]
    first, last = moved_range(change.source.raw, current, *change.lines)
    unit = replace(change.unit, first_line=first + 1, last_line=max(first, last))
    return verify(now, language_for(now.path), unit, merged, instruction)


def _prune(folder: Path) -> None:
    for file in sorted(folder.iterdir())[:-MAX_KEPT]:
        with suppress(OSError):
            file.unlink()
