"""The changes of a task taken over into the user's folder: by hunks, merged with what the user did meanwhile.

Owns what is offered, and that it is one step for `vivace undo`. The user's own changes are never overwritten:
where both changed the same lines, somebody is asked or it is reported (`edits.flow`). Does not own the
comparison (`changes`).
"""

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from vivace.agent.edit_events import EditProposed
from vivace.agent.edits.apply.entries import Entry
from vivace.agent.edits.apply.journal import Change, Journal
from vivace.agent.edits.apply.rebasing import keep_texts
from vivace.agent.edits.apply.replacing import read_state
from vivace.agent.edits.flow import offer
from vivace.agent.edits.proposal import Proposal
from vivace.agent.options import Approval
from vivace.agent.presenter import Presenter
from vivace.agent.tasks.changes import ChangedFile, TaskChanges, proposal_of, read_changes, source_of
from vivace.agent.tasks.log import TaskLog
from vivace.agent.tasks.records import TaskTaken
from vivace.agent.tasks.store import TaskFolder
from vivace.errors import EditConflict, UsageError


@dataclass(frozen=True)
class Taking:
    """What a task has to give."""

    proposal: Proposal  # texts, with hunks
    wholes: tuple[Change, ...]  # files without hunks: binary or empty
    left_out: tuple[str, ...]  # symbolic links
    instruction: str
    changes: TaskChanges

    @property
    def is_empty(self) -> bool:
        return not self.proposal.changed and not self.wholes


def open_taking(task: TaskFolder, paths: Sequence[str] = ()) -> Taking:
    """Return what can be taken over, of all files or of these: as they are named in the user's folder."""
    queued = task.queued()
    changes = read_changes(task)
    if paths:
        changes = replace(changes, files=_chosen(changes, Path(queued.folder), paths))
    missing = [file for file in changes.files if not _is_there(changes.top, file)]
    proposal, wholes = proposal_of(replace(changes, files=tuple(missing)), queued.task)
    return Taking(proposal, tuple(wholes), changes.links, queued.task, changes)


async def take(
    task: TaskFolder, taking: Taking, approval: Approval, presenter: Presenter, journal: Journal
) -> Entry | None:
    """Offer the changes and write what is taken, as one entry. Return it, or None if nothing was taken.

    Raise EditConflict, with nothing written, where the user changed the same and nobody can be asked.
    """
    with task.locked():
        _check_wholes(taking, journal)
        presenter.show(EditProposed(taking.proposal, by="model"))
        entry = await offer(taking.proposal, taking.instruction, approval, presenter, journal, taking.wholes)
        if entry is not None:
            _set_modes(taking, entry)
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


def _is_there(top: Path, file: ChangedFile) -> bool:
    """Return whether the user's file has the new contents already."""
    with contextlib.suppress(Exception):
        return read_state(source_of(top / file.path, file.old).target) == file.new
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
        target = source_of(taking.changes.top / file.path, file.old).target
        if file.mode is not None and file.new is not None and str(target) in written:
            with contextlib.suppress(OSError):
                execution = file.mode & 0o111 if file.mode & 0o100 else 0
                target.chmod(target.stat().st_mode & ~0o111 | execution)
