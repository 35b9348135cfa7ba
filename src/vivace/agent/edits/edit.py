"""One edit, from the user's words to a proposal: read, locate, rewrite, verify, choose. Writes nothing.

`read_scope` needs no model; `propose` goes on in order and yields what happens. Owns the order of these
steps. Does not ask the user and does not write the file (`flow`).
"""

from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from dataclasses import dataclass

from vivace.agent.edits.apply.source import SourceFile, check_writable, read_source, splice
from vivace.agent.edits.check.choose import Candidate, choose
from vivace.agent.edits.check.tidy import tidy
from vivace.agent.edits.find.languages import Language, language_for
from vivace.agent.edits.find.locate import locate
from vivace.agent.edits.find.outline import list_units
from vivace.agent.edits.find.target import Lines, Target
from vivace.agent.edits.find.units import Unit, find_unit, lines_unit
from vivace.agent.edits.proposal import Proposal, make_proposal
from vivace.agent.edits.write.answer import FenceReader
from vivace.agent.edits.write.branches import Answer, write_others
from vivace.agent.edits.write.live_diff import LiveDiff
from vivace.agent.edits.write.rewrite import Rewrite, rewrite_request
from vivace.agent.effort import BUDGETS, Budget, Effort
from vivace.agent.events import AnswersCompared, ComparingAnswers, DiffGrew, EditProposed, UnitLocated
from vivace.agent.model import Model
from vivace.errors import ContextOverflow, EditRejected, FileProblem, RequestRefused, UsageError


@dataclass(frozen=True)
class EditScope:
    """What an edit is about, as far as it is known without a model."""

    source: SourceFile
    language: Language | None
    units: list[Unit]
    unit: Unit | None  # None: the model shall choose


def read_scope(target: Target, *, to_write: bool) -> EditScope:
    """Read the file and find what the user named in it, or raise what is wrong with either."""
    source = read_source(target.path)
    if to_write:
        check_writable(source)
    language = language_for(target.path)
    units = list_units(source, language)
    return EditScope(source, language, units, named_unit(source, units, target))


Proposing = UnitLocated | DiffGrew | ComparingAnswers | AnswersCompared | EditProposed


async def propose(
    model: Model, scope: EditScope, instruction: str, effort: Effort
) -> AsyncGenerator[Proposing]:
    """Yield the events of one edit; the last is the proposal."""
    source = scope.source
    unit = scope.unit or await locate(model, source, scope.units, instruction)
    yield UnitLocated(source, unit, was_ranked=scope.unit is None)
    request = rewrite_request(source, scope.units, unit, instruction)
    reader = FenceReader(request.fence, request.opening)
    diff = LiveDiff(source.lines[unit.first_line - 1 : unit.last_line], unit.first_line)
    diff.feed(reader.lines)
    first = ""
    try:
        text = model.write(
            request.messages,
            max_tokens=request.max_tokens,
            stop=request.stop,
            prediction=request.prediction,
        )
        async with aclosing(text) as deltas:
            async for delta in deltas:
                first += delta
                diff.feed(reader.feed(delta))
                yield DiffGrew(delta, diff, reader.partial)
    except RequestRefused as error:
        raise _narrowed(error, source, unit) from error
    if model.was_cut:
        raise EditRejected(
            f"The model's answer did not end within {request.max_tokens} tokens; nothing was written.",
            "Name a smaller part, such as PATH:NAME, or say the instruction more simply.",
        )
    proposal = _proposal(scope, unit, instruction, request, first)
    budget = BUDGETS[effort]
    if budget.other_answers and (budget.always_compares or not Candidate(proposal, 0.0).is_usable):
        async for event in _compare(model, scope, proposal, request, first, budget):
            if isinstance(event, Proposal):
                proposal = event
            else:
                yield event
    yield EditProposed(proposal, by="model")


async def _compare(
    model: Model, scope: EditScope, proposal: Proposal, request: Rewrite, first: str, budget: Budget
) -> AsyncGenerator[ComparingAnswers | AnswersCompared | Proposal]:
    """Write other answers, and yield the best proposal last."""
    yield ComparingAnswers(budget.other_answers, _what_is_wrong(proposal))
    answers = await write_others(model, request, first, budget.other_answers)
    unit, instruction = proposal.unit, proposal.instruction
    candidates = []
    for answer in answers or [Answer(first, 0.0)]:
        with suppress(FileProblem):  # not text
            other = _proposal(scope, unit, instruction, request, answer.text)
            candidates.append(Candidate(other, answer.nats_per_token))
    choice = await choose(candidates, runs_examples=budget.runs_examples)
    yield AnswersCompared(choice.answers, choice.examples, choice.held)
    yield choice.proposal


def _what_is_wrong(proposal: Proposal) -> str:
    """Return why the first answer cannot be used, in a sentence; empty if it can."""
    if proposal.problems:
        return proposal.problems[0]
    return "" if proposal.hunks else "The first answer changed nothing."


def _proposal(scope: EditScope, unit: Unit, instruction: str, request: Rewrite, answer: str) -> Proposal:
    """Make a proposal of an answer, which begins behind the request's opening."""
    reader = FenceReader(request.fence, request.opening)
    reader.feed(answer)
    reader.finish()
    new_text = tidy(scope.source, scope.language, unit, reader.text)
    new_bytes = splice(scope.source, unit.first_line, unit.last_line, new_text)
    return make_proposal(scope.source, unit, instruction, new_bytes)


def checked_instruction(instruction: str) -> str:
    if not instruction.strip():
        raise UsageError("The instruction is empty.", 'Say what to change: vivace edit PATH "INSTRUCTION".')
    return instruction.strip()


def named_unit(source: SourceFile, units: list[Unit], target: Target) -> Unit | None:
    """Return the unit that the user named, if any."""
    match target.selector:
        case None:
            return None
        case Lines(first=first, last=last):
            return lines_unit(source, first, last)
        case name:
            return find_unit(units, name)


def _narrowed(error: RequestRefused, source: SourceFile, unit: Unit) -> Exception:
    """Return a context overflow in terms of the file: how large it is, and how to name less of it."""
    if error.code != ContextOverflow.code:
        return error
    lines = unit.last_line - unit.first_line + 1
    return ContextOverflow(
        f"{unit.qualified_name} of {source.path} ({lines} lines) is too large: {error.message}",
        f"Name a smaller part, such as {source.path}:NAME or {source.path}:1-80.",
    )
