"""Any sequence of edits, undos, redos, rewinds, kills and changes by hand, against a model of a few lines.

The model knows slots instead of lines: places in files that are changed and led back each on its own. Slots
of a file stand apart, so what happens to one never touches another. The file `new` is one slot, which may be
absent.
"""

import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from tests.agent.edits.killing import run_killed_at_change
from tests.thorough import examples
from vivace.agent.edits.apply.journal import Change, Journal
from vivace.agent.edits.apply.source import new_source, read_source
from vivace.errors import NothingToUndo

Slot = tuple[str, int]
State = dict[Slot, str | None]
NEW: Slot = ("new", 0)
SLOTS: list[Slot] = [(name, index) for name in "ab" for index in range(3)] + [NEW]
MINE: list[Slot] = [("a", 3), ("b", 3)]  # which no edit touches
VALUES = st.sampled_from("pqr")


@dataclass
class Step:
    changes: dict[Slot, tuple[str | None, str | None]]
    reverses: list[int]  # indices of steps


class Conflict(Exception):
    """Something came after that would be lost."""


def stands(log: list[Step], index: int) -> bool:
    return not any(index in later.reverses and stands(log, n) for n, later in enumerate(log) if n > index)


def led_back(log: list[Step], state: State, reverses: list[int]) -> State:
    """Return the state without these steps, given newest first."""
    state = dict(state)
    for index in reverses:
        for slot, (before, after) in log[index].changes.items():
            if state[slot] == after:
                state[slot] = before
            elif state[slot] != before:
                raise Conflict
    return state


class JournalMachine(RuleBasedStateMachine):
    @initialize()
    def begin(self) -> None:
        self.folder = Path(tempfile.mkdtemp())
        self.journal = Journal(self.folder / "undo")
        self.state: State = dict.fromkeys([*SLOTS, *MINE], "p") | {NEW: None}
        self.log: list[Step] = []
        for name in ("a", "b"):
            self.path(name).write_bytes(self.rendered(name, self.state) or b"")

    def path(self, name: str) -> Path:
        return self.folder / f"{name}.txt"

    def rendered(self, name: str, state: State) -> bytes | None:
        if name == "new":
            return None if state[NEW] is None else f"{state[NEW]}".encode()
        slots = [f"{index}: {state[name, index]}\r\n| {index}\n" for index in range(4)]
        return ("\ufeff" + "".join(slots) + "no newline").encode()

    def on_disk(self) -> dict[str, bytes | None]:
        paths = {name: self.path(name) for name in ("a", "b", "new")}
        return {name: path.read_bytes() if path.exists() else None for name, path in paths.items()}

    def expected(self, state: State) -> dict[str, bytes | None]:
        return {name: self.rendered(name, state) for name in ("a", "b", "new")}

    @invariant()
    def files_are_as_the_model_says(self) -> None:
        assert self.on_disk() == self.expected(self.state)

    @invariant()
    def the_journal_stands_as_the_model_says(self) -> None:
        standing = {index + 1 for index in range(len(self.log)) if stands(self.log, index)}
        assert self.journal.standing() == standing

    def edit(self, wanted: State, meanwhile: State | None = None) -> Callable[[], object]:
        """Read the files, let the user change them, and return what writes the edit."""
        changes = []
        for name in dict.fromkeys(slot[0] for slot in wanted):
            path, new = self.path(name), self.rendered(name, self.state | wanted)
            source = read_source(path) if path.exists() else new_source(path)
            if new != (source.raw if source.exists else None):
                changes.append(Change(source, new, "unit"))
        self.change_by_hand(meanwhile or {})
        return lambda: self.journal.apply_all(changes, "edit") if changes else None

    def change_by_hand(self, changes: State) -> None:
        self.state |= changes
        for name, content in self.expected(self.state).items():
            if content is None:
                self.path(name).unlink(missing_ok=True)
            else:
                self.path(name).write_bytes(content)

    def note(self, state: State, reverses: list[int]) -> None:
        changes = {slot: (self.state[slot], state[slot]) for slot in SLOTS if self.state[slot] != state[slot]}
        if changes:
            self.log.append(Step(changes, reverses))
        self.state = state

    @rule(wanted=st.dictionaries(st.sampled_from(SLOTS), VALUES, min_size=1, max_size=3))
    def edits(self, wanted: State) -> None:
        self.edit(wanted)()
        self.note(self.state | wanted, [])

    @rule(
        wanted=st.dictionaries(st.sampled_from(SLOTS), VALUES, min_size=1, max_size=2),
        mine=st.dictionaries(st.sampled_from(MINE), VALUES, min_size=1),
    )
    def edits_while_the_user_types(self, wanted: State, mine: State) -> None:
        self.edit(wanted, mine)()
        self.note(self.state | wanted, [])

    @rule(
        wanted=st.dictionaries(st.sampled_from(SLOTS), VALUES, min_size=2, max_size=4), at=st.integers(0, 30)
    )
    def is_killed_in_an_edit(self, wanted: State, at: int) -> None:
        self.survives(self.edit(wanted), at, self.state | wanted, [])

    @rule(changes=st.dictionaries(st.sampled_from([*SLOTS, *MINE]), VALUES, max_size=2))
    def changes_by_hand(self, changes: State) -> None:
        self.change_by_hand(changes)

    @rule()
    def removes_the_new_file_by_hand(self) -> None:
        self.change_by_hand({NEW: None})

    @rule()
    def undoes(self) -> None:
        self.takes_back(self.journal.undo, is_wanted=self.is_edit)

    @rule()
    def redoes(self) -> None:
        self.takes_back(self.journal.redo, is_wanted=self.is_undo)

    @precondition(lambda self: self.log)
    @rule(data=st.data())
    def undoes_a_number(self, data: st.DataObject) -> None:
        index = data.draw(st.sampled_from(range(len(self.log))))
        self.reverses(lambda: self.journal.undo(number=index + 1), [index] if stands(self.log, index) else [])

    @precondition(lambda self: self.log)
    @rule(data=st.data())
    def rewinds(self, data: st.DataObject) -> None:
        number = data.draw(st.integers(0, len(self.log)))
        later = list(range(len(self.log) - 1, number - 1, -1))
        self.reverses(lambda: self.journal.rewind(number), later)

    @precondition(lambda self: self.log)
    @rule(data=st.data())
    def undoes_several(self, data: st.DataObject) -> None:
        numbers = data.draw(st.sets(st.integers(1, len(self.log))))
        chosen = [
            index for index in sorted((n - 1 for n in numbers), reverse=True) if stands(self.log, index)
        ]

        def undo_all() -> None:
            if self.journal.undo_all(numbers) is None:
                raise NothingToUndo("nothing of it stands")

        self.reverses(undo_all, chosen)

    @precondition(lambda self: self.log)
    @rule(at=st.integers(0, 30))
    def is_killed_in_a_rewind(self, at: int) -> None:
        reverses = list(range(len(self.log) - 1, -1, -1))
        try:
            state = led_back(self.log, self.state, reverses)
        except Conflict:
            return
        if state != self.state:
            self.survives(lambda: self.journal.rewind(0), at, state, reverses)

    def is_edit(self, index: int) -> bool:
        return not self.log[index].reverses

    def is_undo(self, index: int) -> bool:
        return list(self.journal.entries())[-1 - index].kind == "undo"

    def takes_back(self, act: Callable[[], Any], is_wanted: Callable[[int], bool]) -> None:
        """Take back the newest step that is wanted, stands and is not so already."""
        for index in range(len(self.log) - 1, -1, -1):
            if is_wanted(index) and stands(self.log, index):
                try:
                    is_so_already = led_back(self.log, self.state, [index]) == self.state
                except Conflict:
                    is_so_already = False
                if not is_so_already:
                    return self.reverses(act, [index])
        return self.reverses(act, [])

    def reverses(self, act: Callable[[], Any], reverses: list[int]) -> None:
        """Act, and expect what the model makes of it: a new state, or a refusal that changes nothing."""
        try:
            state = led_back(self.log, self.state, reverses)
        except Conflict:
            state = self.state
        if state == self.state:
            with pytest.raises(NothingToUndo):
                act()
        else:
            act()
            self.note(state, reverses)

    def survives(self, act: Callable[[], object], at: int, state: State, reverses: list[int]) -> None:
        """Kill it before a change of the disk. After healing all of it has happened, or nothing of it."""
        run_killed_at_change(at, act)
        self.journal.heal()
        if self.on_disk() == self.expected(state):
            self.note(state, reverses)

    def teardown(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)


@pytest.mark.forks
@pytest.mark.usefixtures("no_fsync")
def test_the_journal_does_what_the_model_says() -> None:
    """Files and standing entries are as the model says, after every step of any sequence."""
    chosen = settings(max_examples=examples(20, times=15), stateful_step_count=20)
    run_state_machine_as_test(JournalMachine, settings=chosen)  # type: ignore[no-untyped-call]
