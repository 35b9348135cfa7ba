"""Edits written, taken back and brought back. Old and new bytes are on disk before a file is touched.

Every step is one entry (`entries`) of one or several files: an edit, an undo, a redo, a rewind. An undo is an
entry like an edit, and is taken back in the same way (`reversing`).

A kill in the middle leaves an entry pending. Whoever opens the journal next heals it, by one rule: as soon as
one of its files no longer has its old bytes, the entry stands and its other files are written; while all have
their old bytes, it is forgotten. A file that somebody changed since the kill is merged, or left as it is.

What a task wrote is recorded with its workspace, and no protected name of that is written: not when the task
writes, nor when it is undone, brought back or healed. What users do by name, they may do anywhere.

Owns the order of recording and writing, and which entry is taken back. Does not own how bytes reach the disk
(`replacing`), nor whether an edit still fits its file (`rebasing`).
"""

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from vivace.agent.door import real_path
from vivace.agent.edits.apply.entries import Entry, EntryFolder, Kind, Step
from vivace.agent.edits.apply.merging import merge
from vivace.agent.edits.apply.rebasing import Change, keep_texts, rebase
from vivace.agent.edits.apply.replacing import Replacement, mode_of, read_state, replace_files, sha256_of
from vivace.agent.edits.apply.reversing import reversed_steps
from vivace.agent.edits.apply.source import SourceFile
from vivace.agent.edits.find.units import Unit
from vivace.agent.permissions.paths import locate, protecting
from vivace.errors import NothingToUndo, WriteProblem

__all__ = ["Change", "Entry", "Journal", "step_of"]

_OPPOSITE: dict[Kind, Kind] = {"edit": "undo", "undo": "redo", "redo": "undo"}
_LIST_HINT = "See `vivace undo --list`."


@dataclass(frozen=True)
class Journal:
    """The entries in `folder`, shared by all processes of one user."""

    folder: Path
    root: Path | None = None  # the workspace of the task that writes; None: its user does, by name

    def apply(self, source: SourceFile, new_bytes: bytes, instruction: str, unit: Unit | str) -> Entry:
        """Record the edit of one file, then write it, as `apply_all` does."""
        return self.apply_all([Change(source, new_bytes, unit)], instruction)

    def apply_all(self, changes: Sequence[Change], instruction: str) -> Entry:
        """Record an edit of one or several files as one entry, then write it. No edit is written otherwise.

        A file that has changed since it was read is merged; `is_merged` of its `FileChange` says so. Raise
        EditConflict where it cannot be merged, WriteProblem where it cannot be written. Then every file is as
        it was, and the proposed texts are saved where the error's `kept` says.
        """
        assert changes, "an edit of nothing"
        assert len({change.source.target for change in changes}) == len(changes), "one change a file"
        assert all(change.old_bytes != change.new_bytes for change in changes), "nothing to undo"
        try:
            with self._locked([str(change.source.target) for change in changes]):
                steps = [
                    step_of(change, read_state(change.source.target), instruction, self.root)
                    for change in changes
                ]
                return self._carry_out("edit", instruction, steps)
        except WriteProblem as problem:
            self.keep(changes, problem)
            raise

    def record(self, steps: Sequence[Step], instruction: str) -> Entry:
        """Record an edit that somebody else has written, such as an editor, so that it can be undone."""
        with self._locked([str(step.path) for step in steps]):
            entry = self._entries.write_pending("edit", instruction, steps, ())
            self._entries.finish(entry.number)
            return entry

    def keep(self, changes: Sequence[Change], problem: WriteProblem) -> None:
        """Save the proposed texts of an edit that could not be written. The problem says where."""
        keep_texts(self.folder / "kept", changes, problem)

    def undo(self, path: Path | None = None, *, number: int | None = None) -> Entry:
        """Take back the newest edit (of the file or folder `path`), or entry `number`. Return the undo.

        What came after the edit is kept. An edit whose files have their old bytes already is passed over.
        Raise NothingToUndo if there is no such edit, or if what came after it is in the same lines.
        """
        with self._locked(_real(path)):
            return self._take_back("edit", path, number)

    def redo(self, path: Path | None = None, *, number: int | None = None) -> Entry:
        """Take back the newest undo (of `path`), or the one that took back `number`. Return the redo."""
        with self._locked(_real(path)):
            return self._take_back("undo", path, number)

    def undo_all(self, numbers: Collection[int]) -> Entry | None:
        """Take back these entries as one step, which `redo` takes back as one. Return the undo.

        Those that are taken back already are left out; return None if all are. Raise NothingToUndo, with
        nothing done, if what came after one of them is in the same lines.
        """
        with self._locked(None):
            standing = self.standing()
            chosen = [each for each in self.entries() if each.number in standing and each.number in numbers]
            return self._reverse(chosen, "undo", " · ".join(each.instruction for each in reversed(chosen)))

    def rewind(self, number: int, path: Path | None = None) -> Entry:
        """Lead the files (of `path`) back to where they were after entry `number`, as one step."""
        with self._locked(_real(path)):
            later = [each for each in self._undamaged(path) if each.number > number]
            entry = self._reverse(later, "undo", f"everything after {number}")
        if entry is None:
            raise NothingToUndo(f"There is nothing to undo after {number}.", _LIST_HINT)
        return entry

    def heal(self) -> list[Entry]:
        """Finish or forget what a killed process has left. Return the entries that were finished.

        Call it before a file is read for an edit. What can be neither stays for the next time.
        """
        if not self._entries.has_pending():
            return []
        with self._entries.lock():
            return self._heal([])

    def entries(self, path: Path | None = None) -> Iterator[Entry]:
        """Yield the entries (of `path`), the newest first, without damaged ones."""
        wanted = _real(path)
        for each in self._entries.newest_first():
            if isinstance(each, Entry) and each.touches(wanted):
                yield each

    def standing(self) -> set[int]:
        """Return the numbers of the entries that stand: those that no standing entry has taken back."""
        taken_back: set[int] = set()
        standing = set()
        for entry in self.entries():  # an entry is only ever taken back by a newer one
            if entry.number not in taken_back:
                standing.add(entry.number)
                taken_back.update(entry.reverses)
        return standing

    @property
    def _entries(self) -> EntryFolder:
        return EntryFolder(self.folder)

    def _take_back(self, kind: Kind, path: Path | None, number: int | None) -> Entry:
        verb = "undo" if kind == "edit" else "redo"
        standing = self.standing()
        chosen = [self._numbered(kind, number, standing)] if number is not None else self._undamaged(path)
        for entry in chosen:
            if number is not None or (entry.kind == kind and entry.number in standing):
                done = self._reverse([entry], _OPPOSITE[entry.kind], entry.instruction)
                if done is not None:
                    return done
        if number is not None:
            raise NothingToUndo(f"There is nothing to {verb} in {number}: the files are so already.")
        where = f" in {path}" if path is not None else ""
        raise NothingToUndo(
            f"There is no edit to {verb}{where}.", f"Only edits made by vivace can be {verb}ne."
        )

    def _numbered(self, kind: Kind, number: int, standing: set[int]) -> Entry:
        """Return entry `number` if it stands. For a redo, return the undo that took it back."""
        entries = {entry.number: entry for entry in self.entries()}
        if number not in entries:
            raise NothingToUndo(f"There is no edit {number} in the journal.", _LIST_HINT)
        is_undo = entries[number].kind == "undo"
        if number in standing and (kind == "edit" or is_undo):
            return entries[number]
        if kind == "edit":
            hint = f"`vivace redo --number {number}` brings it back."
            raise NothingToUndo(f"Edit {number} is undone already.", hint)
        for entry in entries.values():
            if entry.number in standing and number in entry.reverses:
                return entry
        raise NothingToUndo(f"Edit {number} is not undone.", _LIST_HINT)

    def _undamaged(self, path: Path | None) -> Iterator[Entry]:
        """Yield the entries of `path`, the newest first. Raise NothingToUndo at a damaged one."""
        wanted = _real(path)
        for each in self._entries.newest_first():
            if isinstance(each, NothingToUndo):
                raise each
            if each.touches(wanted):
                yield each

    def _reverse(self, entries: Sequence[Entry], kind: Kind, instruction: str) -> Entry | None:
        """Take these entries back, the newest first, in one step. Return None if the files are so already."""
        steps = reversed_steps([(entry, self._entries.steps(entry)) for entry in entries])
        if not steps:
            return None
        return self._carry_out(kind, instruction, steps, tuple(entry.number for entry in entries))

    def _carry_out(
        self, kind: Kind, instruction: str, steps: Sequence[Step], reverses: tuple[int, ...] = ()
    ) -> Entry:
        """Record, write, finish. If a file cannot be written, put the others back and forget the entry."""
        _check_protected(steps)
        entry = self._entries.write_pending(kind, instruction, steps, reverses)
        try:
            replace_files(_replacements(steps, "forward"))
        except WriteProblem as problem:
            try:
                replace_files(_replacements(steps, "back"))
            except WriteProblem:
                problem.hint += " Not all files of the edit are as they were: the next vivace goes on."
            else:
                self._entries.forget(entry.number)
            raise
        self._entries.finish(entry.number)
        return entry

    @contextmanager
    def _locked(self, touching: Sequence[str] | str | None) -> Iterator[None]:
        with self._entries.lock():
            self._heal(touching)
            yield

    def _heal(self, touching: Sequence[str] | str | None) -> list[Entry]:
        """Heal every pending entry. Raise WriteProblem only if one that is of interest cannot be healed."""
        paths = [touching] if touching is None or isinstance(touching, str) else touching
        finished = []
        for entry in self._entries.pending():
            try:
                if self._stands(entry):
                    finished.append(entry)
            except WriteProblem as problem:
                if any(entry.touches(path) for path in paths):
                    message = f"An edit that was cut short cannot be finished: {problem.message}"
                    hint = f"{problem.hint} The edit is in {self._entries.pending_file(entry)}."
                    raise WriteProblem(message, hint) from problem
        return finished

    def _stands(self, entry: Entry) -> bool:
        """Finish a pending entry, or else put its files back and forget it."""
        steps = self._entries.steps(entry, is_pending=True)
        _check_protected(steps)
        if any(read_state(step.path) != step.before for step in steps):
            try:
                replace_files(_replacements(steps, "forward"))
            except WriteProblem:
                replace_files(_replacements(steps, "back"))
            else:
                self._entries.finish(entry.number)
                return True
        self._entries.forget(entry.number)
        return False


def _real(path: Path | None) -> str | None:
    return None if path is None else str(real_path(path))


def _check_protected(steps: Sequence[Step]) -> None:
    """Raise WriteProblem for a file of a task that is protected now."""
    for step in steps:
        if step.root and (name := protecting(locate(Path(step.root), str(step.path)))):
            problem = f"{step.path} is protected: nothing named {name} is ever written for a task."
            raise WriteProblem(problem, "Nothing was written.")


def step_of(change: Change, current: bytes | None, instruction: str, root: Path | None = None) -> Step:
    """Return what is to be done to the file, which is `current` now. Raise EditConflict if it is unclear.

    `root`: the workspace of the task that does it.
    """
    path = change.source.target
    after = rebase(change, current, instruction)
    is_merged = current not in (change.old_bytes, after)
    workspace = "" if root is None else str(real_path(root))
    return Step(path, change.unit_name, current, after, mode_of(path), is_merged, workspace)


def _replacements(steps: Sequence[Step], direction: Literal["forward", "back"]) -> list[Replacement]:
    """Return what leads the files there, wherever they are. What somebody else wrote is merged or left."""
    found = []
    for step in steps:
        start, goal = (step.before, step.after) if direction == "forward" else (step.after, step.before)
        current = read_state(step.path)
        data = goal if current == start else current
        if data != goal and data is not None and start is not None and goal is not None:
            merged = merge(start, goal, data)
            data = data if merged is None else merged
        if data != current:
            sha256 = None if current is None else sha256_of(current)
            found.append(Replacement(step.path, sha256, data, step.mode))
    return found
