"""Accepted changes written: by the undo journal, or by the face that has the files open.

Owns that the whole edit is written or nothing of it, whoever writes: where the face fails in the middle, what
it wrote is taken back, and the proposed texts are kept. What the face saved to disk becomes an entry of the
journal; what it left in an unsaved buffer is the editor's own to undo. Does not own the journal (`journal`).
"""

import asyncio
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

from vivace.agent.edits.apply.entries import Step
from vivace.agent.edits.apply.files import Files
from vivace.agent.edits.apply.journal import Change, Entry, Journal, step_of
from vivace.agent.edits.apply.replacing import Replacement, read_state, replace_files, sha256_of
from vivace.errors import VivaceError, WriteProblem

STOP_WAIT_S = 10.0  # for a face that writes when the user stops: longer, and it is given up
T = TypeVar("T")


@dataclass(frozen=True)
class Written:
    """An edit that was written."""

    entry: Entry | None  # of the journal; None: the face has it in buffers that are not saved


async def write_changes(
    changes: Sequence[Change], instruction: str, journal: Journal, files: Files
) -> Written:
    """Write an edit of one or several files.

    A file that has changed since it was read is merged. Raise EditConflict where it cannot be merged,
    WriteProblem where it cannot be written. Then every file is as it was, and the proposed texts are saved
    where the error's `kept` says. Once the face writes, a cancellation waits for it and has no effect.
    """
    if not files.is_written_by_face or not all(_is_text(change.new_bytes) for change in changes):
        return Written(journal.apply_all(changes, instruction))
    await files.refresh([change.source.target for change in changes])
    try:
        steps = [
            step_of(change, files.state(change.source.target), instruction, journal.root)
            for change in changes
        ]
        return await _finished(_write(steps, instruction, journal, files))
    except WriteProblem as problem:
        journal.keep(changes, problem)
        raise
    except asyncio.CancelledError:
        journal.keep(changes, WriteProblem("The editor did not answer."))
        raise


def _is_text(data: bytes | None) -> bool:
    """Return whether a face can write this: a removal and other bytes than text are left to the journal."""
    try:
        return data is not None and data.decode("utf-8") is not None
    except UnicodeDecodeError:
        return False


async def _write(steps: Sequence[Step], instruction: str, journal: Journal, files: Files) -> Written:
    on_disk = [read_state(step.path) for step in steps]
    try:
        for step in steps:
            if step.before != step.after:
                assert step.after is not None
                await files.write(step.path, step.after)
        saved = [step for step, before in zip(steps, on_disk, strict=True) if read_state(step.path) != before]
        return Written(journal.record(saved, instruction) if saved else None)
    except Exception:
        for step in reversed(steps):
            with suppress(VivaceError):  # the first problem is the one to tell
                await _put_back(step, files)
        raise


async def _put_back(step: Step, files: Files) -> None:
    """Give a file its old text again, if it has the new one: what the user typed since is not touched."""
    await files.refresh([step.path])
    if step.before == step.after or files.state(step.path) != step.after:
        return
    if step.before is not None:
        await files.write(step.path, step.before)
    elif step.after is not None and read_state(step.path) == step.after:
        replace_files([Replacement(step.path, sha256_of(step.after), None)])


async def _finished(work: Coroutine[Any, Any, T]) -> T:
    """Return what comes of the work, also if the caller is cancelled: an edit is not left half written."""
    task = asyncio.create_task(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task], timeout=STOP_WAIT_S)
        if not task.done():
            task.cancel()
            raise
        current = asyncio.current_task()
        assert current is not None
        current.uncancel()
        return task.result()
