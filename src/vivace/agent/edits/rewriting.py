"""One unit written anew: the request, the answer as it streams, its checks, and other answers if need be.

Owns the step that every unit of an edit goes through. Takes the file as it stands now and returns what it
would become. Does not choose the unit (`edit`), ask the user or write the file (`flow`).
"""

from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from dataclasses import dataclass

from vivace.agent.edits.apply.source import SourceFile, splice
from vivace.agent.edits.check.choose import Candidate, choose
from vivace.agent.edits.check.tidy import tidy
from vivace.agent.edits.find.languages import Language
from vivace.agent.edits.find.units import Unit
from vivace.agent.edits.proposal import FileProposal, make_proposal
from vivace.agent.edits.write.answer import FenceReader
from vivace.agent.edits.write.branches import Answer, write_others
from vivace.agent.edits.write.live_diff import LiveDiff
from vivace.agent.edits.write.rewrite import Rewrite, rewrite_request
from vivace.agent.effort import Budget
from vivace.agent.events import AnswersCompared, ComparingAnswers, DiffGrew
from vivace.agent.model import Model
from vivace.errors import ContextOverflow, EditRejected, FileProblem, RequestRefused

Writing = DiffGrew | ComparingAnswers | AnswersCompared


@dataclass(frozen=True)
class UnitTask:
    """A unit to rewrite, in a file as it is at that moment."""

    source: SourceFile
    language: Language | None
    units: list[Unit]  # all of the file
    unit: Unit
    instruction: str


async def rewrite_unit(
    model: Model, task: UnitTask, budget: Budget
) -> AsyncGenerator[Writing | FileProposal]:
    """Yield what happens, and the proposal last. It may have problems, or change nothing."""
    request = rewrite_request(task.source, task.units, task.unit, task.instruction)
    first = ""
    async for event in _stream(model, task, request):
        first += event.delta
        yield event
    proposal = _proposal(task, request, first)
    if budget.other_answers and (budget.always_compares or not Candidate(proposal, 0.0).is_usable):
        async for compared in _compare(model, task, proposal, request, first, budget):
            if isinstance(compared, FileProposal):
                proposal = compared
            else:
                yield compared
    yield proposal


async def _stream(model: Model, task: UnitTask, request: Rewrite) -> AsyncGenerator[DiffGrew]:
    """Yield the first answer as it comes. Raise if it is too long, or what it needs is."""
    source, unit = task.source, task.unit
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
                yield DiffGrew(delta, diff, reader.partial)
    except RequestRefused as error:
        raise _narrowed(error, source, unit) from error
    if model.was_cut:
        raise EditRejected(
            f"The model's answer did not end within {request.max_tokens} tokens; nothing was written.",
            "Name a smaller part, such as PATH:NAME, or say the instruction more simply.",
        )


async def _compare(
    model: Model, task: UnitTask, proposal: FileProposal, request: Rewrite, first: str, budget: Budget
) -> AsyncGenerator[ComparingAnswers | AnswersCompared | FileProposal]:
    """Write other answers, and yield the best proposal last."""
    yield ComparingAnswers(budget.other_answers, _what_is_wrong(proposal))
    answers = await write_others(model, request, first, budget.other_answers)
    candidates = []
    for answer in answers or [Answer(first, 0.0)]:
        with suppress(FileProblem):  # not text
            candidates.append(Candidate(_proposal(task, request, answer.text), answer.nats_per_token))
    choice = await choose(candidates, runs_examples=budget.runs_examples)
    yield AnswersCompared(choice.answers, choice.examples, choice.held)
    yield choice.proposal


def _what_is_wrong(proposal: FileProposal) -> str:
    """Return why the first answer cannot be used, in a sentence; empty if it can."""
    if proposal.problems:
        return proposal.problems[0]
    return "" if proposal.hunks else "The first answer changed nothing."


def _proposal(task: UnitTask, request: Rewrite, answer: str) -> FileProposal:
    """Make a proposal of an answer, which begins behind the request's opening."""
    source, unit = task.source, task.unit
    reader = FenceReader(request.fence, request.opening)
    reader.feed(answer)
    reader.finish()
    new_text = tidy(source, task.language, unit, reader.text)
    new_bytes = splice(source, unit.first_line, unit.last_line, new_text)
    return make_proposal(source, unit, task.instruction, new_bytes)


def _narrowed(error: RequestRefused, source: SourceFile, unit: Unit) -> Exception:
    """Return a context overflow in terms of the file: how large it is, and how to name less of it."""
    if error.code != ContextOverflow.code:
        return error
    lines = unit.last_line - unit.first_line + 1
    return ContextOverflow(
        f"{unit.qualified_name} of {source.path} ({lines} lines) is too large: {error.message}",
        f"Name a smaller part, such as {source.path}:NAME or {source.path}:1-80.",
    )
