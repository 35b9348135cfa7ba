"""One edit from the user's words to the file: locate, write, check, decide, apply.

Owns the order of the steps, for every face. What happens is shown to a `Presenter`, which also answers the
one question. Interrupted at any await, it leaves every file as it was: all are written in one step that
cannot be interrupted (`apply.writing`), and nothing is awaited behind it.
"""

import asyncio
import time
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from pathlib import Path

from vivace.agent.edits.apply.files import DISK, Files
from vivace.agent.edits.apply.journal import Change, Entry, Journal
from vivace.agent.edits.apply.writing import Written, write_changes
from vivace.agent.edits.check.substance import WORDS_ALONE
from vivace.agent.edits.conflict import Stop, TakeFile, TakeText, find_conflict, is_merged
from vivace.agent.edits.edit import propose
from vivace.agent.edits.proposal import Accept, AcceptHunks, Decision, Proposal, Reject, UseText
from vivace.agent.edits.repair.passing import judged_by_tests
from vivace.agent.edits.repair.user_tests import AllowedTests, check_can_run
from vivace.agent.edits.scope import EditScope
from vivace.agent.effort import DEFAULT_EFFORT, Effort
from vivace.agent.events.edit import (
    ConflictResolved,
    DiffGrew,
    EditApplied,
    EditDecided,
    EditNotApplied,
    EditProposed,
    EditStarted,
    Reason,
    UnitLocated,
)
from vivace.agent.events.every import AgentEvent
from vivace.agent.events.turn import TimesMeasured, TurnTimes, WritingEnded
from vivace.agent.memory.recall import Memory, Recalled, joined
from vivace.agent.model import Model
from vivace.agent.options import Approval
from vivace.agent.presenter import Presenter
from vivace.errors import EditConflict, EditRejected
from vivace.protocol.shapes.events import Waterfall


@dataclass(frozen=True)
class EditTask:
    scopes: tuple[EditScope, ...]  # what the user named, in order; of one file at least
    instruction: str
    approval: Approval
    effort: Effort = DEFAULT_EFFORT
    tests: AllowedTests | None = None  # None: the user allowed none to be run
    memory: Memory | None = None  # None: without instruction files and notes
    asked_at_s: float = field(default_factory=time.perf_counter)  # when the user pressed Enter


async def run_edit(task: EditTask, model: Model, presenter: Presenter, journal: Journal) -> Entry | None:
    """Do one edit. Return the journal's entry, or None if no file on disk was changed.

    Raise `EditRejected` if the model's answer cannot be used, `TestsCannotRun` if it cannot be tested.
    """
    if task.tests:
        await check_can_run(task.tests, [scope.source.target for scope in task.scopes])
    proposal = await _write(task, model, presenter)
    files = task.scopes[0].files
    return await offer(proposal, task.instruction, task.approval, presenter, journal, files=files)


async def show_and_offer(
    proposal: Proposal,
    instruction: str,
    approval: Approval,
    presenter: Presenter,
    journal: Journal,
    *,
    files: Files = DISK,
) -> Entry | None:
    """Show a proposal that no model had to write, then let the user decide about it."""
    first = proposal.files[0]
    presenter.show(EditStarted(first.source, first.unit, instruction))
    presenter.show(WritingEnded())
    presenter.show(EditProposed(proposal, by="model"))
    return await offer(proposal, instruction, approval, presenter, journal, files=files)


async def offer(
    proposal: Proposal,
    instruction: str,
    approval: Approval,
    presenter: Presenter,
    journal: Journal,
    wholes: Sequence[Change] = (),
    *,
    files: Files = DISK,
) -> Entry | None:
    """Let the user decide about a proposal, and write what was taken. Return the journal's entry, if any.

    `wholes` are changes without hunks, which go along with whatever is taken. Where the face writes the files
    itself and saves none, there is no entry: the editor's own undo takes that back.
    """
    proposal, decision = await _decide(approval, proposal, presenter)
    presenter.show(EditDecided(proposal, decision))
    changes = [*(file.change for file in proposal.changed), *wholes]
    if isinstance(decision, Reject) or not changes:
        presenter.show(EditNotApplied(proposal, _why_not(approval, proposal)))
        return None
    began_s = time.perf_counter()
    written = await _apply(instruction, approval, changes, presenter, journal, files)
    if written is None:
        presenter.show(EditNotApplied(proposal, "rejected"))
        return None
    presenter.show(EditApplied(proposal, written.entry, (time.perf_counter() - began_s) * 1e3))
    return written.entry


async def _apply(
    instruction: str,
    approval: Approval,
    changes: list[Change],
    presenter: Presenter,
    journal: Journal,
    files: Files,
) -> Written | None:
    """Write the changes. Ask about a file that cannot be merged. Return None if all files are left."""
    while changes:
        await asyncio.sleep(0)  # an interrupt takes effect here, and not behind the write
        try:
            return await write_changes(changes, instruction, journal, files)
        except EditConflict as error:
            if approval != "ask":
                raise
            changes = await _resolve(instruction, changes, presenter, error, files)
    return None


async def _resolve(
    instruction: str, changes: list[Change], presenter: Presenter, error: EditConflict, files: Files
) -> list[Change]:
    """Return the changes as the user wants them now. Raise the error if the user wants none."""
    resolved = []
    written_to = files if files.is_written_by_face else DISK  # the journal writes the disk, whatever is open
    for change in changes:
        conflict = find_conflict(change, instruction, written_to)
        if conflict is None:
            resolved.append(change)
            continue
        resolution = await presenter.resolve(conflict)
        while isinstance(resolution, TakeText) and not is_merged(resolution):
            conflict = replace(conflict, draft=resolution.text)
            resolution = await presenter.resolve(conflict)
        presenter.show(ConflictResolved(conflict.path, resolution))
        if isinstance(resolution, Stop):
            raise error
        if not isinstance(resolution, TakeFile) and (now := conflict.resolved(resolution)):
            resolved.append(now)
    return resolved


async def _write(task: EditTask, model: Model, presenter: Presenter) -> Proposal:
    """Let the model locate and write, and show it as it comes."""
    turns_before, first_token_ms = len(model.waterfalls), 0.0
    located = turns_before  # turns after which the first unit is known
    last: AgentEvent | None = None
    first = task.scopes[0]
    recalled = await asyncio.to_thread(_recall, task)
    if (used := joined(recalled.values()).used()).in_words:
        presenter.show(used)
    presenter.show(EditStarted(first.source, first.unit, task.instruction))
    try:
        async with aclosing(propose(model, task.scopes, task.instruction, task.effort, recalled)) as events:
            async for event in events:
                if isinstance(event, UnitLocated) and not first_token_ms:
                    located = len(model.waterfalls)
                if isinstance(event, DiffGrew) and not first_token_ms:
                    first_token_ms = (time.perf_counter() - task.asked_at_s) * 1e3
                if not isinstance(event, EditProposed):
                    presenter.show(event)
                last = event
    finally:
        presenter.show(WritingEnded())
    assert isinstance(last, EditProposed), "the last event, if nothing was raised"
    if task.tests and last.proposal.hunks and not last.proposal.problems:
        last = EditProposed(
            await judged_by_tests(task.tests, task.effort, last.proposal, presenter), by="model"
        )
    presenter.show(last)
    _check_usable(last.proposal, task.approval)
    times = _named(model.waterfalls[turns_before:], located - turns_before)
    if times:  # the model was needed
        presenter.show(TimesMeasured(model.name, times, first_token_ms))
    return last.proposal


def _recall(task: EditTask) -> dict[Path, Recalled]:
    """Return what is remembered about the instruction, for each file of the edit."""
    memory = task.memory
    if memory is None:
        return {}
    paths = dict.fromkeys(scope.source.path for scope in task.scopes)
    return {path: memory.recall(task.instruction, [path]) for path in paths}


def _named(waterfalls: list[Waterfall], located: int) -> tuple[TurnTimes, ...]:
    """Name the turns. The first `located` of them chose the unit, all others wrote."""
    names = ["locate" if index < located else "rewrite" for index in range(len(waterfalls))]
    return tuple(TurnTimes.of(name, each) for name, each in zip(names, waterfalls, strict=True))


def _check_usable(proposal: Proposal, approval: Approval) -> None:
    """Raise if there is nothing to offer. A part of what was asked for needs the user's own yes."""
    if proposal.problems == (WORDS_ALONE,):
        raise EditRejected(
            "Nothing was found that does what was asked: the nearest try, shown above, changes comments,"
            " docstrings or white space alone.",
            "Nothing was written. Say it in other words, or name the part: PATH:NAME.",
        )
    if proposal.problems:
        raise EditRejected(
            "The model's answer cannot be used: " + " ".join(proposal.problems),
            "Nothing was written. Say it in other words, or name the part: PATH:NAME.",
        )
    if proposal.faults and approval == "always":
        raise EditRejected(
            "The nearest try, shown above, would break something: " + " ".join(proposal.faults),
            "Nothing was written. Say it in other words, or edit without --yes to decide yourself.",
        )
    if proposal.missing and (not proposal.hunks or approval == "always"):
        raise EditRejected(
            "A part of the edit failed: " + "; ".join(proposal.missing),
            "Nothing was written. Say it in other words; where you are asked, you can take the rest alone.",
        )
    if not proposal.hunks:
        raise EditRejected(
            "The model changed nothing.", "Say more exactly what to change, or name the part: PATH:NAME."
        )


async def _decide(approval: Approval, proposal: Proposal, presenter: Presenter) -> tuple[Proposal, Decision]:
    """Return what is to be written, and the decision. Ask again where the user's own choice needs care."""
    if approval != "ask":
        return proposal, Accept() if approval == "always" else Reject()
    while True:
        decision = await presenter.decide(proposal)
        match decision:
            case Accept() | Reject():
                return proposal, decision
            case AcceptHunks(hunks=chosen):
                proposal = proposal.with_hunks(chosen)
                if not proposal.problems:
                    return proposal, decision
            case UseText(texts=texts):
                proposal = proposal.with_texts(texts)
        presenter.show(EditProposed(proposal, by="user"))


def _why_not(approval: Approval, proposal: Proposal) -> Reason:
    if approval == "never":
        return "shown_only"
    return "rejected" if proposal.changed else "nothing_to_change"
