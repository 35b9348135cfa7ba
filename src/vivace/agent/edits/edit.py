"""One edit, from the user's words to a proposal: plan the units, rewrite one after the other. Writes nothing.

Owns the order of the steps, what becomes of a unit that fails, and that imports are added and the whole is
judged when all units are there. Does not own which units (`plan`), how one is rewritten (`rewriting`), nor
the files (`flow`).
"""

import asyncio
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path

from vivace.agent.edits.apply.source import splice
from vivace.agent.edits.check.stubs import LEFT, with_stubs
from vivace.agent.edits.find.languages import PYTHON, language_for
from vivace.agent.edits.find.units import Unit, implementation_of
from vivace.agent.edits.judging import with_faults
from vivace.agent.edits.part_writing import is_in_parts, rewrite_parts
from vivace.agent.edits.plan.callers import callers_left_behind
from vivace.agent.edits.plan.draft import Draft
from vivace.agent.edits.plan.moving import moved
from vivace.agent.edits.plan.plan import MAX_STEPS, Step, overlap
from vivace.agent.edits.plan.planning import make_plan
from vivace.agent.edits.proposal import FileProposal, Proposal, make_proposal
from vivace.agent.edits.repair.imports.step import add_imports, missing_names
from vivace.agent.edits.rewriting import UnitTask, Writing, is_usable, rewrite_unit
from vivace.agent.edits.scope import EditScope
from vivace.agent.effort import BUDGETS, Budget, Effort
from vivace.agent.events.edit import (
    EditPlanned,
    EditProposed,
    ImportsAdded,
    NamesUndefined,
    PlannedUnit,
    UnitLeft,
    UnitLocated,
)
from vivace.agent.memory.recall import NOTHING, Recalled
from vivace.agent.model import Model
from vivace.errors import EditRejected

Proposing = EditPlanned | UnitLocated | Writing | UnitLeft | ImportsAdded | NamesUndefined | EditProposed


async def propose(
    model: Model,
    scopes: Sequence[EditScope],
    instruction: str,
    effort: Effort,
    recalled: Mapping[Path, Recalled] | None = None,
) -> AsyncGenerator[Proposing]:
    """Yield the events of one edit; the last is the proposal. `recalled` is what is remembered of files."""
    for scope in scopes:
        if proposal := await asyncio.to_thread(moved, scope, instruction):
            for told in _moved(proposal):
                yield told
            return
    steps = await make_plan(model, scopes, instruction)
    if len(steps) > 1:
        yield _planned(steps)
    draft, done, missing = Draft(), list[Step](), list[str]()
    while len(done) < len(steps):
        step = steps[len(done)]
        known = (recalled or {}).get(step.scope.source.path, NOTHING)
        async with aclosing(_carry_out(model, step, draft, instruction, effort, len(steps), known)) as events:
            async for event in events:
                if isinstance(event, UnitLeft) and event.is_failure_of(step.unit) and step.need != "guess":
                    missing.append(f"{step.unit.qualified_name}: {event.problem}")
                yield event
        done.append(step)
        if more := _left_behind(step, draft, steps):
            steps += more
            yield _planned(steps)
    files: list[FileProposal] = []
    for file in draft.proposal(instruction).files:
        if missing:  # a name may be a missing unit's
            files.append(file)
            continue
        if added := await _with_imports(model, file):
            yield added[0]
        files.append(added[1] if added else file)
    if not missing:
        files = list(await with_faults(files, scopes[0].files))
    yield EditProposed(Proposal(tuple(files), tuple(missing)), by="model")


def _moved(proposal: Proposal) -> Iterator[UnitLocated | NamesUndefined | EditProposed]:
    """Yield the events of an edit that no model had to write."""
    for file in proposal.files:
        yield UnitLocated(file.source, file.unit, was_ranked=False)
        if undefined := _undefined(file):
            yield NamesUndefined(file.source.path, undefined)
    yield EditProposed(proposal, by="model")


async def _carry_out(
    model: Model,
    step: Step,
    draft: Draft,
    instruction: str,
    effort: Effort,
    step_count: int,
    recalled: Recalled,
) -> AsyncGenerator[UnitLocated | Writing | UnitLeft]:
    """Rewrite one unit in the draft. One of several that fails, or needs no change, stays as it is."""
    scope, path = step.scope, step.scope.source.path
    draft.open(scope.source, scope.units)
    is_alone = step_count == 1
    unit = draft.moved(path, step.unit)
    written = implementation_of(draft.source(path), unit)
    yield UnitLocated(draft.source(path), written, was_ranked=step.was_ranked)
    if step.new_text is not None and is_usable(known := _known(step, draft, unit, instruction)):
        draft.take(step.unit, known)
        return
    task = UnitTask(
        draft.source(path),
        scope.language,
        draft.units(path),
        unit,
        instruction,
        may_stay=step.need != "must",
        done=draft.diff(),
        is_alone=is_alone,
        recalled=recalled,
        files=scope.files,
    )
    budget = BUDGETS[effort] if step.need != "guess" else BUDGETS["low"]
    problem = ""
    try:
        async with aclosing(_writing(model, task, budget)) as events:
            async for event in events:
                if not isinstance(event, FileProposal):
                    yield event
                elif is_alone or (event.hunks and not event.problems):
                    followed = with_stubs(task.source, task.language, unit, event.new_bytes)
                    for stub in followed.left:
                        yield UnitLeft(path, stub, LEFT)
                    draft.take(step.unit, _with_bytes(event, followed.new_bytes))
                    return
                else:
                    problem = " ".join(event.problems)
    except EditRejected as error:
        if is_alone:
            raise
        problem = error.message
    yield UnitLeft(path, step.unit, problem)


def _with_bytes(proposal: FileProposal, new_bytes: bytes) -> FileProposal:
    """Return the proposal with its overload signatures as they are now."""
    if new_bytes == proposal.new_bytes:
        return proposal
    return replace(proposal.with_bytes(new_bytes), others=proposal.others)


def _writing(
    model: Model, task: UnitTask, budget: Budget
) -> AsyncGenerator[UnitLocated | Writing | FileProposal]:
    return rewrite_parts(model, task, budget) if is_in_parts(task) else rewrite_unit(model, task, budget)


def _known(step: Step, draft: Draft, unit: Unit, instruction: str) -> FileProposal:
    """Return what a file becomes with a new text that needs no model."""
    assert step.new_text is not None
    source = draft.source(step.scope.source.path)
    new_bytes = splice(source, unit.first_line, unit.last_line, step.new_text)
    return make_proposal(source, unit, instruction, new_bytes)


async def _with_imports(model: Model, file: FileProposal) -> tuple[ImportsAdded, FileProposal] | None:
    """Return the proposal with the imports that the new text of the file needs, or None if it needs none."""
    if not is_usable(file):
        return None
    added = await add_imports(model, file.source, language_for(file.source.path), file.new_bytes)
    if added is None:
        return None
    whole = make_proposal(file.source, file.unit, file.instruction, added.new_bytes)
    if whole.problems:
        return None
    return ImportsAdded(file.source, added.unit, added.lines), replace(whole, others=file.others)


def _undefined(file: FileProposal) -> tuple[str, ...]:
    """Return the names that nothing in the file defines now, and that it did not lack before."""
    if language_for(file.source.path) is not PYTHON or not is_usable(file):
        return ()
    return tuple(missing_names(file.source, file.source.with_bytes(file.new_bytes).text))


def _left_behind(step: Step, draft: Draft, steps: Sequence[Step]) -> list[Step]:
    """Return steps for callers in the file that do not fit the unit that was just rewritten."""
    scope, path = step.scope, step.scope.source.path
    after = draft.source(path)
    if scope.language is None or not draft.is_usable(path) or step.unit.kind not in ("function", "method"):
        return []
    before, units = scope.source, draft.units(path)
    callers = callers_left_behind(before, after, scope.language, step.unit, units)
    why = f"calls {step.unit.name}"
    found = [Step(scope, draft.as_read(path, unit), why, "must") for unit in callers]
    in_file = [each.unit for each in steps if each.scope.source.path == path]
    fresh = [each for each in found if not any(overlap(each.unit, unit) for unit in in_file)]
    return fresh[: max(0, MAX_STEPS - len(steps))]


def _planned(steps: Sequence[Step]) -> EditPlanned:
    return EditPlanned(tuple(PlannedUnit(step.scope.source.path, step.unit, step.why) for step in steps))
