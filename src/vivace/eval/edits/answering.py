"""One task, answered: through the loop as `vivace edit --yes` would, or by the model alone.

Owns the file that the loop edits, the plain prompt of the comparison, and what is counted. Does not judge the
answer (`scoring`).
"""

import re
import tempfile
import time
from collections.abc import Iterable
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path

import msgspec

from vivace.agent.edits.apply.journal import Journal
from vivace.agent.edits.conflict import Conflict, Resolution, Stop
from vivace.agent.edits.find.languages import fence_tag_for
from vivace.agent.edits.find.parts import LONG_LINES
from vivace.agent.edits.find.target import Target
from vivace.agent.edits.find.units import Unit
from vivace.agent.edits.flow import EditTask, run_edit
from vivace.agent.edits.proposal import Decision, Proposal, Reject
from vivace.agent.edits.scope import read_scope
from vivace.agent.edits.write.answer import fence_for
from vivace.agent.effort import Effort
from vivace.agent.events.edit import EditPlanned, ImportsAdded, UnitLocated
from vivace.agent.events.every import AgentEvent
from vivace.agent.memory.recall import Memory
from vivace.agent.model import Model
from vivace.agent.prompting import user
from vivace.errors import EditRejected, UsageError
from vivace.eval.edits.bundle import bundle, unbundle
from vivace.eval.edits.changes import Span, lines_changed, lines_outside
from vivace.eval.edits.results import BARE, Answer, Way
from vivace.eval.edits.tasks import FILE, SetName, Task

BARE_TOKENS = 1024
_FENCED = re.compile(r"^ {0,3}(`{3,})[^\n`]*\n(.*?)^ {0,3}\1`*[ \t]*$", re.MULTILINE | re.DOTALL)


class Located:
    """A presenter that remembers what may be rewritten. It is never asked: approval is given."""

    def __init__(self) -> None:
        self.units: list[tuple[str, Unit]] = []  # the file's name, and the unit as it was read
        self._is_planned = False

    def show(self, event: AgentEvent) -> None:
        if isinstance(event, EditPlanned):
            self.units = [(each.path.name, each.unit) for each in event.units]
            self._is_planned = True
        elif isinstance(event, ImportsAdded) or (isinstance(event, UnitLocated) and not self._is_planned):
            self.units.append((event.source.path.name, event.unit))

    async def decide(self, proposal: Proposal) -> Decision:
        del proposal
        return Reject()

    async def resolve(self, conflict: Conflict) -> Resolution:
        del conflict
        return Stop()


@dataclass(frozen=True)
class Rules:
    """An AGENTS.md that lies beside the code of every task."""

    name: str  # of the file that it was read from
    text: str
    max_chars: int  # that the model may read of it


async def answer_task(
    set_name: SetName, task: Task, effort: Way, model: Model, rules: Rules | None = None
) -> Answer:
    """Answer one task. A refusal of the loop is an answer; errors of the server are raised."""
    turns_before, began_s = len(model.waterfalls), time.perf_counter()
    code, refusal, units = None, "", list[tuple[str, Unit]]()
    try:
        if effort == BARE:
            code = await _bare(task, model)
        else:
            code, units = await _edited(task, effort, model, rules)
    except (EditRejected, UsageError) as error:
        refusal = error.message
    turns = model.waterfalls[turns_before:]
    answer = Answer(
        set_name,
        model.name,
        effort,
        task.name,
        code,
        refusal,
        seconds=time.perf_counter() - began_s,
        output_tokens=sum(turn.output_tokens for turn in turns),
        prefilled_tokens=sum(turn.new_tokens for turn in turns),
    )
    if code is None:
        return answer
    return msgspec.structs.replace(
        answer,
        lines_changed=lines_changed(task.code, code),
        outside_unit_lines=0 if effort == BARE else _outside(task, code, units),
        has_long_unit=any(_is_long(unit) for _, unit in units),
    )


def _is_long(unit: Unit) -> bool:
    return unit.last_line - unit.first_line >= LONG_LINES


async def _edited(
    task: Task, effort: Effort, model: Model, rules: Rules | None
) -> tuple[str, list[tuple[str, Unit]]]:
    """Let the loop edit files of its own. Return them afterwards, and the units that may be rewritten."""
    presenter = Located()
    with tempfile.TemporaryDirectory(prefix="vivace-eval-") as folder:
        paths = [Path(folder) / name for name in task.files]
        for path in paths:
            path.write_text(task.files[path.name], "utf-8")
        scopes = tuple(read_scope(Target(path, None), to_write=True) for path in paths)
        memory = None
        if rules is not None:
            (Path(folder) / "AGENTS.md").write_text(rules.text, "utf-8")
            memory = Memory(Path(folder), Path(folder) / "state", None, rules.max_chars)
        await run_edit(
            EditTask(scopes, task.instruction, "always", effort, memory=memory),
            model,
            presenter,
            Journal(Path(folder) / "undo"),
        )
        after = {path.name: path.read_text("utf-8") for path in paths}
        return bundle(after) if task.is_bundle else after[FILE], presenter.units


async def _bare(task: Task, model: Model) -> str:
    """Ask with one plain prompt and take the pieces of code in the answer: the first for each file."""
    fence = fence_for(task.code)
    names = list(task.files)
    pieces = [_piece(name, task, fence) for name in names]
    wanted = (
        "the whole new code" if len(names) == 1 else f"the whole new code of {' and then of '.join(names)}"
    )
    asked = "\n\n".join([task.instruction, *pieces, f"Answer with {wanted}."])
    text, prediction = "", "".join(task.files.values())
    max_tokens = BARE_TOKENS * len(names)
    async with aclosing(model.write([user(asked)], max_tokens=max_tokens, prediction=prediction)) as deltas:
        async for delta in deltas:
            text += delta
    found = [match[2] for match in _FENCED.finditer(text)]
    if len(found) < len(names):
        raise EditRejected("The model's answer has no code in it.")
    return bundle(dict(zip(names, found, strict=False))) if task.is_bundle else found[0]


def _piece(name: str, task: Task, fence: str) -> str:
    head = f"{name}\n" if len(task.files) > 1 else ""
    return f"{head}{fence}{fence_tag_for(Path(name))}\n{task.files[name]}{fence}"


def _outside(task: Task, code: str, units: Iterable[tuple[str, Unit]]) -> int:
    """Return how many lines outside of the units were changed, in all files."""
    after = unbundle(code) if task.is_bundle else {FILE: code}
    spans: dict[str, list[Span]] = {name: [] for name in task.files}
    for name, unit in units:
        spans[name].append((unit.first_line - 1, unit.last_line))
    return sum(lines_outside(text, after[name], spans[name]) for name, text in task.files.items())
