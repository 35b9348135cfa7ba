"""One task, answered: through the loop as `vivace edit --yes` would, or by the model alone.

Owns the file that the loop edits, the plain prompt of the comparison, and what is counted. Does not judge the
answer (`scoring`).
"""

import re
import tempfile
import time
from collections.abc import Iterable
from contextlib import aclosing
from pathlib import Path

import msgspec

from vivace.agent.edits.apply.journal import Journal
from vivace.agent.edits.edit import read_scope
from vivace.agent.edits.find.target import Target
from vivace.agent.edits.find.units import Unit
from vivace.agent.edits.flow import EditTask, run_edit
from vivace.agent.edits.proposal import Decision, Proposal, Reject
from vivace.agent.edits.write.answer import fence_for
from vivace.agent.effort import Effort
from vivace.agent.events import AgentEvent, ImportsAdded, UnitLocated
from vivace.agent.model import Model
from vivace.agent.prompting import user
from vivace.errors import EditRejected, UsageError
from vivace.eval.edits.changes import Span, lines_changed, lines_outside
from vivace.eval.edits.results import BARE, Answer, Way
from vivace.eval.edits.tasks import SetName, Task

FILE = "solution.py"
BARE_TOKENS = 1024
_FENCED = re.compile(r"^ {0,3}(`{3,})[^\n`]*\n(.*?)^ {0,3}\1`*[ \t]*$", re.MULTILINE | re.DOTALL)


class Located:
    """A presenter that remembers which units were rewritten. It is never asked: approval is given."""

    def __init__(self) -> None:
        self.units: list[Unit] = []

    def show(self, event: AgentEvent) -> None:
        if isinstance(event, UnitLocated | ImportsAdded):
            self.units.append(event.unit)

    async def decide(self, proposal: Proposal) -> Decision:
        del proposal
        return Reject()


async def answer_task(set_name: SetName, task: Task, effort: Way, model: Model) -> Answer:
    """Answer one task. A refusal of the loop is an answer; errors of the server are raised."""
    turns_before, began_s = len(model.waterfalls), time.perf_counter()
    code, refusal, units = None, "", list[Unit]()
    try:
        if effort == BARE:
            code = await _bare(task, model)
        else:
            code, units = await _edited(task, effort, model)
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
        outside_unit_lines=0 if effort == BARE else lines_outside(task.code, code, _spans(units)),
    )


async def _edited(task: Task, effort: Effort, model: Model) -> tuple[str, list[Unit]]:
    """Let the loop edit a file of its own. Return the file afterwards, and the units that were rewritten."""
    presenter = Located()
    with tempfile.TemporaryDirectory(prefix="vivace-eval-") as folder:
        path = Path(folder) / FILE
        path.write_text(task.code, "utf-8")
        scope = read_scope(Target(path, None), to_write=True)
        await run_edit(
            EditTask((scope,), task.instruction, "always", effort),
            model,
            presenter,
            Journal(Path(folder) / "undo"),
        )
        return path.read_text("utf-8"), presenter.units


async def _bare(task: Task, model: Model) -> str:
    """Ask with one plain prompt and take the first piece of code in the answer."""
    fence = fence_for(task.code)
    asked = f"{task.instruction}\n\n{fence}python\n{task.code}{fence}\n\nAnswer with the whole new code."
    text = ""
    async with aclosing(model.write([user(asked)], max_tokens=BARE_TOKENS, prediction=task.code)) as deltas:
        async for delta in deltas:
            text += delta
    if not (found := _FENCED.search(text)):
        raise EditRejected("The model's answer has no code in it.")
    return found[2]


def _spans(units: Iterable[Unit]) -> list[Span]:
    return [(unit.first_line - 1, unit.last_line) for unit in units]
