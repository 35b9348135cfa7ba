"""The agent's work for programs: one event a line, as JSON on stdout.

Owns the format. Asks nobody: a program says yes beforehand, with `--yes`.
"""

import sys
from typing import Any

import msgspec

from vivace.agent.conversation.transcript.recording import unified
from vivace.agent.edits.conflict import Conflict, Resolution, Stop
from vivace.agent.edits.proposal import Decision, Proposal, Reject
from vivace.agent.events.base import Failed
from vivace.agent.events.edit import (
    AnswersCompared,
    ComparingAnswers,
    DiffGrew,
    EditApplied,
    EditNotApplied,
    EditPlanned,
    EditProposed,
    ImportsAdded,
    NamesUndefined,
    RepairStarted,
    UnitLeft,
    UnitLocated,
    UserTestsEnded,
    UserTestsStarted,
)
from vivace.agent.events.every import AgentEvent
from vivace.agent.events.talk import ModelProgress
from vivace.agent.events.turn import AnswerGrew, MemoryUsed, TimesMeasured


class JsonPresenter:
    def show(self, event: AgentEvent) -> None:
        match event:
            case EditPlanned(units=units):
                steps = [
                    {
                        "path": str(each.path),
                        "unit": each.unit.qualified_name,
                        "lines": each.unit.lines_text,
                        "why": each.why,
                    }
                    for each in units
                ]
                _emit("planned", units=steps)
            case ModelProgress(progress=progress) if progress:
                _emit("progress", **msgspec.structs.asdict(progress))
            case MemoryUsed(files=files, notes=notes):
                _emit("memory", files=[file.shown for file in files], notes=notes, problem=event.problem)
            case UnitLeft(path=path, unit=unit, problem=problem):
                _emit("left", path=str(path), unit=unit.qualified_name, problem=problem)
            case UnitLocated(source=source, unit=unit, was_ranked=was_ranked):
                by = "model" if was_ranked else "user"
                name, lines = unit.qualified_name, unit.lines_text
                _emit("located", path=str(source.path), unit=name, lines=lines, by=by)
            case DiffGrew(delta=delta) | AnswerGrew(text=delta):
                _emit("delta", text=delta)
            case ComparingAnswers(count=count, problem=problem):
                _emit("comparing", count=count, problem=problem)
            case AnswersCompared(answers=answers, examples=examples, held=held, calls=calls):
                _emit("compared", answers=answers, examples=examples, held=held, calls=calls)
            case RepairStarted(complaint=complaint):
                _emit("repairing", complaint=complaint)
            case ImportsAdded(source=source, unit=unit, lines=lines):
                _emit("imports", path=str(source.path), lines=unit.lines_text, imports=lines)
            case NamesUndefined(path=path, names=names):
                _emit("undefined", path=str(path), names=names)
            case UserTestsStarted(command=command):
                _emit("testing", command=command)
            case UserTestsEnded(has_passed=passed, tried=tried, why_not=why_not, output=output):
                _emit("tested", passed=passed, tried=tried, why_not=why_not, output=output)
            case EditProposed(proposal=proposal):
                problems = [*proposal.problems, *proposal.faults, *proposal.missing]
                _emit("proposal", diff=_unified(proposal), problems=problems)
            case TimesMeasured(model=model, first_token_ms=first_token_ms, turns=turns):
                stages = [msgspec.to_builtins(turn) for turn in turns]
                _emit("waterfall", model=model, first_token_ms=first_token_ms, turns=stages)
            case EditApplied(proposal=proposal, number=number, merged_paths=merged):
                for file in proposal.changed:
                    _emit("written", path=str(file.source.path), number=number, merged=merged)
            case EditNotApplied(proposal=proposal):
                for file in proposal.files:
                    _emit("not_written", path=str(file.source.path))
            case Failed() as error:
                _emit("error", code=error.code, message=error.message, hint=error.hint)

    async def decide(self, proposal: Proposal) -> Decision:
        del proposal
        return Reject()

    async def resolve(self, conflict: Conflict) -> Resolution:
        del conflict
        return Stop()


def _unified(proposal: Proposal) -> str:
    """Return the diff; of several files, with their names."""
    if len(proposal.files) > 1:
        return "".join(map(unified, proposal.files))
    rows = [row for file in proposal.files for row in file.rows]
    return "".join(f"{row.text if row.tag == '@' else row.tag + row.text}\n" for row in rows)


def _emit(kind: str, **fields: Any) -> None:
    sys.stdout.write(msgspec.json.encode({"type": kind, **fields}).decode() + "\n")
    sys.stdout.flush()
