"""A long unit written part by part: which part, its new text, and whether a further part must change.

Owns the order of these steps, and what is tried when the likeliest part brings nothing. Each part goes
through `rewriting`, as a unit does. Does not own the prompt (`write.part`), nor the scores
(`find.part_ranking`).
"""

import re
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace

from vivace.agent.edits.find.evidence import may_add, nats_for_new
from vivace.agent.edits.find.locate import locate_messages, place_for_new, shortlist
from vivace.agent.edits.find.part_ranking import further_part, rank_parts, shown_parts
from vivace.agent.edits.find.parts import Part, is_long, parts_of
from vivace.agent.edits.find.units import Unit, implementation_of
from vivace.agent.edits.proposal import FileProposal
from vivace.agent.edits.rewriting import UnitTask, Writing, is_usable, narrowed, rewrite_unit, unit_request
from vivace.agent.edits.write.part import PartsRequest, parts_request
from vivace.agent.effort import BUDGETS, Budget
from vivace.agent.events.edit import UnitLocated
from vivace.agent.model import Model
from vivace.agent.prompting import Message
from vivace.errors import EditRejected, RequestRefused

MOST_WRITTEN = 3  # parts of one unit that one edit changes
_SPECIAL = re.compile(r"(?<!\w)__[a-z]+__(?!\w)")

Steps = AsyncGenerator[UnitLocated | Writing | FileProposal]


def is_in_parts(task: UnitTask) -> bool:
    """Return whether a unit is too long to be written whole."""
    return is_long(implementation_of(task.source, task.unit), task.language, task.instruction)


def first_messages(task: UnitTask) -> list[Message]:
    """Return what the model reads of a unit before it writes, without the beginning of its answer."""
    return _asked(task).messages if is_in_parts(task) else unit_request(task).messages[:-1]


async def rewrite_parts(model: Model, task: UnitTask, budget: Budget) -> Steps:
    """Yield what happens, and the proposal for the whole unit last."""
    try:
        place = await _place_for_new_member(model, task)
        steps = _write_parts(model, task, budget) if place is None else _write_new(model, task, place, budget)
        async with aclosing(steps) as events:
            async for event in events:
                yield event
    except RequestRefused as error:  # what it chooses a part of is too large
        raise narrowed(error, task.source, task.unit) from error


async def _write_new(model: Model, task: UnitTask, place: Unit, budget: Budget) -> Steps:
    """Write a new member of a long class, and nothing else of it."""
    yield UnitLocated(task.source, place, was_ranked=True)
    async with aclosing(rewrite_unit(model, replace(task, unit=place), budget)) as events:
        async for event in events:
            yield event


async def _write_parts(model: Model, task: UnitTask, budget: Budget) -> Steps:
    """Write the likeliest part that brings anything, then those that must change with it."""
    work = _Work(model, task)
    likeliest = (await rank_parts(model, work.asked.messages, work.asked.shown))[: budget.parts]
    tries = [(part, BUDGETS["low"] if number else budget, True) for number, part in enumerate(likeliest)]
    if budget.other_answers:
        tries.append((likeliest[0], budget, False))
    for part, budget_of_part, may_stay in tries:
        if not may_stay and work.is_broken:  # other answers were compared already
            break
        async with aclosing(work.write(part, budget_of_part, may_stay=may_stay)) as events:
            async for event in events:
                yield event
        if not work.is_open:
            break
    while further := await work.further():
        async with aclosing(work.write(further, BUDGETS["low"], may_stay=True)) as events:
            async for event in events:
                yield event
    yield work.result()


class _Work:
    """A unit, and the parts of it that were written so far."""

    def __init__(self, model: Model, task: UnitTask) -> None:
        self._model, self._task = model, task
        self.asked = _asked(task)
        self._written: list[tuple[Part, str]] = []
        self._proposal: FileProposal | None = None
        self._refusal: EditRejected | None = None
        self.is_open = True  # nothing that is worth keeping was written yet
        self._brings_more = True  # the last part that was written

    @property
    def is_broken(self) -> bool:
        """Return whether the best answer so far has problems, and does not only change nothing."""
        return self._proposal is not None and bool(self._proposal.problems)

    async def write(self, part: Part, budget: Budget, *, may_stay: bool) -> Steps:
        """Write one part, in the file as the parts before it leave it.

        `may_stay`: an answer that changes nothing is taken as one, since another part may be meant.
        """
        request = self.asked.rewrite(part, self._task.instruction, self._written)
        assert request.part is not None
        yield UnitLocated(self._task.source, request.part, was_ranked=True)
        task = replace(self._task, may_stay=may_stay or self._task.may_stay)
        try:
            async with aclosing(rewrite_unit(self._model, task, budget, request)) as events:
                async for event in events:
                    if isinstance(event, FileProposal):
                        self._take(part, event)
                    else:
                        yield event
        except EditRejected as error:  # it did not end: another part may
            self._refusal, self._brings_more = error, not self._written

    async def further(self) -> Part | None:
        """Return the part that must change with those that were written, or None."""
        if not self._brings_more or not 0 < len(self._written) < MOST_WRITTEN:
            return None
        parts = [part for part, _ in self._written]
        answer = self.asked.answered(self._written)
        return await further_part(self._model, self.asked.messages, self.asked.shown, answer, parts)

    def result(self) -> FileProposal:
        if self._proposal is None:
            assert self._refusal is not None
            raise self._refusal
        return self._proposal

    def _take(self, part: Part, proposal: FileProposal) -> None:
        """Keep what was written, if it is better than what is there."""
        before = self._proposal
        if self._written:
            assert before is not None
            self._brings_more = is_usable(proposal) and proposal.new_bytes != before.new_bytes
        if is_usable(proposal) and self._brings_more:
            self.is_open = False
            self._written.append((part, self._text(part, proposal)))
            self._proposal = proposal
            self._brings_more = len(self._written) > 1 or _ends_with_part(part, proposal)
        elif not self._written and (before is None or not before.hunks):
            self._proposal = proposal
            self.is_open = not (self._task.may_stay and not proposal.hunks and not proposal.problems)

    def _text(self, part: Part, proposal: FileProposal) -> str:
        """Return the new text of a part."""
        after = proposal.source.with_bytes(proposal.new_bytes)
        grown = [(each, text.count("\n") - each.lines) for each, text in self._written]
        above = sum(lines for each, lines in grown if each.first_line < part.first_line)
        own = len(after.lines) - len(proposal.source.lines) - sum(lines for _, lines in grown)
        return after.text_of(part.first_line + above, part.last_line + above + own)


def _ends_with_part(part: Part, proposal: FileProposal) -> bool:
    """Return whether all below a part is as it was: an answer that went on below is the last one."""
    after, below = (
        proposal.source.with_bytes(proposal.new_bytes).lines,
        proposal.source.lines[part.last_line :],
    )
    return after[len(after) - len(below) :] == below


def _asked(task: UnitTask) -> PartsRequest:
    unit = implementation_of(task.source, task.unit)
    parts = parts_of(task.source, task.language, unit)
    shown = shown_parts(task.source, task.units, parts, task.instruction)
    others = [each for each in task.units if each is not task.unit]
    return parts_request(
        task.source, others, unit, shown, task.instruction, done=task.done, recalled=task.recalled
    )


async def _place_for_new_member(model: Model, task: UnitTask) -> Unit | None:
    """Return where a new method goes, if the instruction asks a class for one: it alone is written."""
    if task.unit.kind != "class" or not _asks_for_member(task):
        return None
    members = [each for each in task.units if each.parent == task.unit.qualified_name]
    if not members:
        return None
    short = shortlist(task.source, members, task.instruction)
    messages = locate_messages(task.source, short, task.instruction)
    return await place_for_new(model, messages, short, task.instruction)


def _asks_for_member(task: UnitTask) -> bool:
    """Return whether a method is asked for, by that word or by the name of a special one that is missing."""
    if nats_for_new(task.instruction):
        return True
    names = {each.name for each in task.units if each.parent == task.unit.qualified_name}
    special = set(_SPECIAL.findall(task.instruction))
    return may_add(task.instruction) and bool(special) and not special & names
