"""One unit written anew: the request, the answer as it streams, its checks, and other answers if need be.

Owns the step that every unit of an edit goes through. Takes the file as it stands now and returns what it
would become. Does not choose the unit (`edit`), ask the user or write the file (`flow`).
"""

from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from dataclasses import dataclass, replace
from functools import partial

from vivace.agent.edits.apply.files import DISK, Files
from vivace.agent.edits.apply.source import SourceFile, splice
from vivace.agent.edits.check.choose import Candidate, choose
from vivace.agent.edits.check.parameters import with_new_parameters_last
from vivace.agent.edits.check.part_fit import part_proposal
from vivace.agent.edits.check.substance import WORDS_ALONE, changes_words_alone, is_about_words
from vivace.agent.edits.check.tidy import tidy
from vivace.agent.edits.find.languages import Language
from vivace.agent.edits.find.units import Unit, implementation_of
from vivace.agent.edits.judging import Judge
from vivace.agent.edits.proposal import FileProposal, make_proposal
from vivace.agent.edits.repair.mend import Held, Repair, mend, try_examples
from vivace.agent.edits.repair.told import what_breaks, what_is_wrong
from vivace.agent.edits.write.answer import FenceReader
from vivace.agent.edits.write.branches import Answer, write_others
from vivace.agent.edits.write.live_diff import LiveDiff
from vivace.agent.edits.write.rewrite import Rewrite, rewrite_request
from vivace.agent.effort import Budget
from vivace.agent.events.edit import (
    AnswersCompared,
    ComparingAnswers,
    DiffGrew,
    RepairStarted,
)
from vivace.agent.memory.recall import NOTHING, Recalled
from vivace.agent.model import Model
from vivace.errors import ContextOverflow, EditRejected, FileProblem, RequestRefused

Writing = DiffGrew | ComparingAnswers | AnswersCompared | RepairStarted


@dataclass(frozen=True)
class UnitTask:
    """A unit to rewrite, in a file as it is at that moment."""

    source: SourceFile
    language: Language | None
    units: list[Unit]  # all of the file
    unit: Unit
    instruction: str
    may_stay: bool = False  # an answer that changes nothing is as good as another
    done: str = ""  # what earlier steps of the same edit changed, as a diff
    is_alone: bool = True  # otherwise other units are for other steps
    recalled: Recalled = NOTHING  # instruction files and notes
    files: Files = DISK  # where other files of the project are read


async def rewrite_unit(
    model: Model, task: UnitTask, budget: Budget, request: Rewrite | None = None
) -> AsyncGenerator[Writing | FileProposal]:
    """Yield what happens, and the proposal last. It may have problems, or change nothing.

    `request`: what the model is asked, where that is not the whole unit.
    """
    request = request or unit_request(task)
    first = ""
    async for event in _stream(model, task, request):
        first += event.delta
        yield event
    judge = Judge(task.source, task.files)
    proposal = await _judged(judge, task, _proposal(task, request, first))
    stays = task.may_stay and not proposal.hunks and not proposal.problems
    is_good = is_usable(proposal) and not proposal.faults
    if budget.other_answers and not stays and (budget.always_compares or not is_good):
        async for compared in _compare(model, task, proposal, request, first, budget, judge):
            if isinstance(compared, FileProposal):
                proposal = compared
            else:
                yield compared
    yield proposal


def unit_request(task: UnitTask) -> Rewrite:
    """Return the request for the whole unit; overload signatures above it stay as they are."""
    written = implementation_of(task.source, task.unit)
    request = rewrite_request(
        task.source,
        [each for each in task.units if each is not task.unit],
        written,
        task.instruction,
        done=task.done,
        is_alone=task.is_alone,
        recalled=task.recalled,
    )
    return request if written is task.unit else replace(request, part=replace(written, kind="part"))


async def _stream(model: Model, task: UnitTask, request: Rewrite) -> AsyncGenerator[DiffGrew]:
    """Yield the first answer as it comes. Raise if it is too long, or what it needs is."""
    source, unit = task.source, request.part or task.unit
    reader = FenceReader(request.fence, request.opening)
    diff = LiveDiff(source.lines[unit.first_line - 1 : unit.last_line], unit.first_line)
    diff.feed(reader.lines)
    try:
        text = model.write(
            request.messages,
            max_tokens=request.max_tokens,
            stop=request.stop,
            prediction=request.prediction,
        )
        async with aclosing(text) as deltas:
            async for delta in deltas:
                diff.feed(reader.feed(delta))
                yield DiffGrew(delta, diff, reader.partial, request.opening)
    except RequestRefused as error:
        raise narrowed(error, source, unit) from error
    if model.was_cut:
        raise EditRejected(
            f"The model's answer did not end within {request.max_tokens} tokens; nothing was written.",
            "Name a smaller part, such as PATH:NAME, or say the instruction more simply.",
        )


async def _compare(
    model: Model,
    task: UnitTask,
    proposal: FileProposal,
    request: Rewrite,
    first: str,
    budget: Budget,
    judge: Judge,
) -> AsyncGenerator[ComparingAnswers | AnswersCompared | RepairStarted | FileProposal]:
    """Write other answers, mend the best one if it is not good enough, and yield the best proposal last."""
    yield ComparingAnswers(budget.other_answers, _what_is_wrong(proposal))
    answers = await write_others(model, request, first, budget.other_answers)
    candidates: list[Candidate] = []
    texts: dict[bytes, str] = {}
    for answer in answers or [Answer(first, 0.0)]:
        with suppress(FileProblem):  # not text
            made = await _judged(judge, task, _proposal(task, request, answer.text))
            candidates.append(Candidate(made, answer.nats_per_token))
            texts.setdefault(made.new_bytes, answer.text)
    choice = await choose(candidates, runs_examples=budget.runs_examples)
    best, others, answered = choice.proposal, choice.others, choice.answers
    runs_examples = budget.runs_examples and not best.problems
    held = Held(choice.examples)  # all of them, unless a look says otherwise
    if runs_examples and (not choice.examples or choice.held < choice.examples):
        held = await try_examples(best)
    complaint = what_is_wrong(best, request.part) or what_breaks(best.faults) or held.complaint
    if budget.repairs and complaint:
        yield RepairStarted(complaint)
        repair = Repair(request, texts.get(best.new_bytes, first), partial(_proposal, task, request))
        mended = await mend(model, repair, complaint)
        mended = await _judged(judge, task, mended) if mended else None
        now_held = await try_examples(mended) if mended and runs_examples else Held()
        answered += mended is not None
        if mended and (not is_usable(best) or _is_better(mended, now_held, best, held)):
            others = (best, *others) if is_usable(best) else others
            best, held = mended, now_held
    yield AnswersCompared(answered, held.examples, held.count, choice.calls)
    yield replace(best, others=others)


async def _judged(judge: Judge, task: UnitTask, proposal: FileProposal) -> FileProposal:
    """Return a proposal with its faults. Of several units another may mend them: they are judged together."""
    return await judge.judged(proposal) if task.is_alone else proposal


def _is_better(mended: FileProposal, now: Held, best: FileProposal, was: Held) -> bool:
    """Return whether a repair breaks less, or as much and more examples hold for it."""
    if len(mended.faults) != len(best.faults):
        return len(mended.faults) < len(best.faults) and now.count >= was.count
    return now.count > was.count


def is_usable(proposal: FileProposal) -> bool:
    return Candidate(proposal, 0.0).is_usable


def _what_is_wrong(proposal: FileProposal) -> str:
    """Return why the first answer cannot be used, in a sentence; empty if it can."""
    if proposal.problems:
        return proposal.problems[0]
    if proposal.faults:
        return proposal.faults[0]
    return "" if proposal.hunks else "The first answer changed nothing."


def _proposal(task: UnitTask, request: Rewrite, answer: str) -> FileProposal:
    """Make a proposal of an answer, which begins behind the request's opening."""
    source, unit = task.source, task.unit
    reader = FenceReader(request.fence, request.opening)
    reader.feed(answer)
    reader.finish()
    if request.part is not None:
        made = part_proposal(source, task.language, unit, request, reader.text, task.instruction)
        return _with_substance(task, made)
    new_text = tidy(source, task.language, unit, reader.text, may_add=task.is_alone)
    new_text = with_new_parameters_last(source, task.language, unit, new_text, task.instruction)
    new_bytes = splice(source, unit.first_line, unit.last_line, new_text)
    return _with_substance(task, make_proposal(source, unit, task.instruction, new_bytes))


def _with_substance(task: UnitTask, proposal: FileProposal) -> FileProposal:
    """Return the proposal with a problem if it changes words alone and more was asked for."""
    if proposal.problems or not proposal.hunks or not task.is_alone or task.unit.kind == "new":
        return proposal
    after = task.source.with_bytes(proposal.new_bytes)
    is_idle = changes_words_alone(task.language, task.source.text, after.text)
    if not is_idle or is_about_words(task.instruction):
        return proposal
    return replace(proposal, problems=(WORDS_ALONE,))


def narrowed(error: RequestRefused, source: SourceFile, unit: Unit) -> Exception:
    """Return a context overflow in terms of the file: how large it is, and how to name less of it."""
    if error.code != ContextOverflow.code:
        return error
    lines = unit.last_line - unit.first_line + 1
    return ContextOverflow(
        f"{unit.qualified_name} of {source.path} ({lines} lines) is too large: {error.message}",
        f"Name a smaller part, such as {source.path}:NAME or {source.path}:1-80.",
    )
