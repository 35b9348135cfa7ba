"""Entries taken back: what their files shall become, given what they are now.

Each file is led from its bytes after an entry to its bytes before it, the newest entry first. Where it is not
as the entry left it, what came after is kept by a merge. Owns that computation and its refusals. Does not
choose the entries and writes nothing (`journal`).
"""

from collections.abc import Sequence
from pathlib import Path

from vivace.agent.edits.apply.entries import Entry, Step
from vivace.agent.edits.apply.merging import merge
from vivace.agent.edits.apply.rebasing import merge_problems
from vivace.agent.edits.apply.replacing import mode_of, read_state
from vivace.errors import NothingToUndo


def reversed_steps(entries: Sequence[tuple[Entry, Sequence[Step]]]) -> list[Step]:
    """Return the steps that take back `entries`, which are given newest first. No file is named twice.

    Files that need no change are left out. Raise NothingToUndo if what came after would be lost.
    """
    files: dict[Path, _File] = {}
    for entry, steps in entries:
        for step in steps:
            file = files.setdefault(step.path, _File(step.path))
            file.step_back(entry, step)
    return [file.as_step() for file in files.values() if file.state != file.current]


class _File:
    """One file on its way back."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.current = self.state = read_state(path)
        self._mode = mode_of(path)
        self._unit = ""
        self._is_merged = False
        self._root = ""

    def step_back(self, entry: Entry, step: Step) -> None:
        self._unit = step.unit
        self._root = self._root or step.root
        if step.is_after(self.state):
            self.state = step.before
        elif self.state != step.before:
            self.state = self._merged(entry, step)
            self._is_merged = True
        if self.current is None:
            self._mode = step.mode

    def _merged(self, entry: Entry, step: Step) -> bytes:
        if self.state is None:
            hint = f"The edit was {entry.instruction!r} in {step.unit}."
            raise NothingToUndo(f"{self.path} is gone.", hint)
        if step.before is None:
            hint = "It was left untouched. Remove it yourself if you do not need it."
            raise NothingToUndo(f"{self.path} has changed since it was made, so it is not removed.", hint)
        merged = None if step.after is None else merge(step.after, step.before, self.state)
        if merged is None:
            raise NothingToUndo(
                f"{self.path} has changed since, in the same lines: what came after would be lost.",
                "It was left untouched. See `vivace undo --list` for edits that can be chosen instead.",
            )
        return merged

    def as_step(self) -> Step:
        if self._is_merged and self.current is not None and self.state is not None:
            problems = merge_problems(self.path, self.current, self.state)
            if problems:
                message = f"{self.path} has changed since, and without this edit it would be broken: "
                raise NothingToUndo(message + " ".join(problems), "It was left untouched.")
        return Step(self.path, self._unit, self.current, self.state, self._mode, self._is_merged, self._root)
