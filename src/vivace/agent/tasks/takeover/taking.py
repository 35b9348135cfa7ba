"""The changes of a task taken over into the user's folder: by hunks, merged with what the user did meanwhile.

Owns what is offered, and that it is one step for `vivace undo`. The user's own changes are never overwritten:
where both changed the same lines, somebody is asked or it is reported (`edits.flow`). Does not own the
comparison (`changes`).
"""

import contextlib
import stat
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from vivace.agent.door import status_of
from vivace.agent.edits.apply.entries import Entry
from vivace.agent.edits.apply.journal import Change, Journal
from vivace.agent.edits.apply.rebasing import keep_texts
from vivace.agent.edits.apply.replacing import read_state, set_execution
from vivace.agent.edits.flow import offer
from vivace.agent.edits.proposal import Proposal
from vivace.agent.events.edit import EditProposed
from vivace.agent.options import Approval
from vivace.agent.presenter import Presenter
from vivace.agent.tasks.log import TaskLog
from vivace.agent.tasks.records import TaskTaken
from vivace.agent.tasks.store import TaskFolder
from vivace.agent.tasks.takeover.changes import (
    ChangedFile,
    TaskChanges,
    proposal_of,
    read_changes,
    source_of,
    target_of,
)
from vivace.agent.tasks.takeover.links import LinkChange, link_changes
from vivace.errors import EditConflict, UsageError


@dataclass(frozen=True)
class Taking:
    """What a task has to give."""

    proposal: Proposal  # texts, with hunks
    wholes: tuple[Change, ...]  # files without hunks: binary or empty
    links: tuple[LinkChange, ...]  # symbolic links that stay inside of the folder
    modes: tuple[ChangedFile, ...]  # files of which only whether they can be executed has changed
    left_out: tuple[str, ...]  # links that lead elsewhere, and files of folders that do
    instruction: str
    changes: TaskChanges

    @property
    def is_empty(self) -> bool:
        return not self.has_contents and not self.links and not self.modes

    @property
    def has_contents(self) -> bool:
        """Return whether there are files to write, which are a step of undo."""
        return bool(self.proposal.changed or self.wholes)

    @property
    def beside(self) -> list[str]:
        """Return what goes along with the texts, a line each."""
        return [
            *(f"{change.source.path} (no text)" for change in self.wholes),
            *(link.in_words for link in self.links),
            *(f"{self.changes.top / file.path} {file.execution}" for file in self.modes),
        ]


def open_taking(task: TaskFolder, paths: Sequence[str] = ()) -> Taking:
    """Return what can be taken over, of all files or of these: as they are named in the user's folder."""
    queued = task.queued()
    changes = read_changes(task)
    if paths:
        changes = replace(changes, files=_chosen(changes, Path(queued.folder), paths))
    changes, out = _within(changes)
    missing = [file for file in changes.files if not _is_there(changes.top, file)]
    proposal, wholes = proposal_of(replace(changes, files=tuple(missing)), queued.task)
    links, left_out = link_changes(changes)
    modes = [
        file
        for file in changes.files
        if (file.old == file.new or file not in missing) and _needs_mode(changes.top, file)
    ]
    return Taking(proposal, tuple(wholes), links, tuple(modes), (*left_out, *out), queued.task, changes)


async def take(
    task: TaskFolder, taking: Taking, approval: Approval, presenter: Presenter, journal: Journal
) -> Entry | None:
    """Offer the changes and write what is taken, as one entry. Return it, or None if no file was written.

    Links and permissions go along with whatever is taken; they are no part of the entry. Raise EditConflict,
    with nothing written, where the user changed the same and nobody can be asked.
    """
    journal = replace(journal, root=taking.changes.top)
    with task.locked():
        _check_wholes(taking, journal)
        for link in taking.links:
            link.check()
        if not taking.has_contents:
            _take_beside(taking)
            return None
        presenter.show(EditProposed(taking.proposal, by="model"))
        entry = await offer(taking.proposal, taking.instruction, approval, presenter, journal, taking.wholes)
        if entry is not None:
            _set_modes(taking, entry)
            _take_beside(taking)
            with TaskLog(task.log_file) as log:
                log.append(TaskTaken(entry=entry.number, paths=tuple(file.path for file in entry.files)))
    return entry


def _chosen(changes: TaskChanges, folder: Path, paths: Sequence[str]) -> tuple[ChangedFile, ...]:
    wanted = [Path(folder, path).resolve() for path in paths]
    files = [
        file for file in changes.files if any((changes.top / file.path).is_relative_to(w) for w in wanted)
    ]
    if not files:
        names = ", ".join(file.path for file in changes.files) or "nothing"
        raise UsageError("The task has changed none of these files.", f"It changed {names}.")
    return tuple(files)


def _within(changes: TaskChanges) -> tuple[TaskChanges, list[str]]:
    """Return the changes without files that would be written elsewhere or are protected, and those."""
    out = [file.path for file in changes.files if not file.is_link and not target_of(changes.top, file.path)]
    return replace(changes, files=tuple(file for file in changes.files if file.path not in out)), out


def _is_there(top: Path, file: ChangedFile) -> bool:
    """Return whether the user's file has the new contents already."""
    with contextlib.suppress(Exception):
        return read_state(source_of(top, file).target) == file.new
    return False


def _check_wholes(taking: Taking, journal: Journal) -> None:
    """Raise EditConflict for a binary file that the user has changed too: bytes are not merged."""
    for change in taking.wholes:
        if read_state(change.source.target) not in (change.old_bytes, change.new_bytes):
            problem = EditConflict(
                f"{change.source.path} was changed here too, and is no text that could be merged.",
                "Nothing was written. Name the files to take: vivace tasks take ID PATH….",
            )
            keep_texts(journal.folder / "kept", [change], problem)
            raise problem


def _set_modes(taking: Taking, entry: Entry) -> None:
    """Let files that were taken over be executed, or not, as in the workplace."""
    written = {file.path for file in entry.files}
    for file in taking.changes.files:
        target = target_of(taking.changes.top, file.path)
        if file.mode is not None and file.new is not None and target and str(target) in written:
            set_execution(target, file.mode)


def _take_beside(taking: Taking) -> None:
    """Make the links, and let the other files be executed, or not, as in the workplace."""
    for link in taking.links:
        link.carry_out()
    for file in taking.modes:
        assert file.mode is not None
        if target := target_of(taking.changes.top, file.path):
            set_execution(target, file.mode)


def _needs_mode(top: Path, file: ChangedFile) -> bool:
    """Return whether the user's file is there, and can be executed where the task's cannot, or reversed."""
    target = target_of(top, file.path)
    if file.mode is None or file.new is None or file.is_link or target is None:
        return False
    try:
        now = status_of(target).st_mode
    except OSError:
        return False
    return stat.S_ISREG(now) and bool((now ^ file.mode) & stat.S_IXUSR)
