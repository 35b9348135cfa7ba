"""Questions that an adapter is measured with: what the edit loop asks for evaluation tasks at low effort.

Owns how a task becomes one request, and what its answer makes of the file. A task of which words and code do
not say the one unit is left out: the loop would ask the model. Does not answer, and runs nothing.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from vivace.agent.edits.apply.source import splice
from vivace.agent.edits.check.tidy import tidy
from vivace.agent.edits.find.units import Unit
from vivace.agent.edits.plan.planning import plan_by_evidence
from vivace.agent.edits.proposal import make_proposal
from vivace.agent.edits.rewriting import is_usable
from vivace.agent.edits.scope import EditScope
from vivace.agent.edits.write.answer import FenceReader
from vivace.agent.edits.write.rewrite import Rewrite, rewrite_request
from vivace.eval.edits.tasks import FILE, SetName, read_tasks
from vivace.training.data.pairs import Outlined, Pair

SETS_OF_PAIRS = {"commit": "commits", "mutation": "mutations", "edit": "edits", "open": "opens"}
_NAMED = re.compile(r"^Fix the bug in (\w+)\.")


class Question(NamedTuple):
    name: str
    set_name: str
    file: Outlined
    unit: Unit
    instruction: str

    @property
    def request(self) -> Rewrite:
        return rewrite_request(self.file.source, self.file.units, self.unit, self.instruction)

    @property
    def before(self) -> str:
        return self.file.source.text

    def file_after(self, answer: str) -> str | None:
        """Return the file with an answer in it, as the edit loop makes it. None: the loop refuses it."""
        request, source, unit = self.request, self.file.source, self.unit
        reader = FenceReader(request.fence, request.opening)
        reader.feed(answer)
        reader.finish()
        text = tidy(source, self.file.language, unit, reader.text)
        new_bytes = splice(source, unit.first_line, unit.last_line, text)
        proposal = make_proposal(source, unit, self.instruction, new_bytes)
        return new_bytes.decode("utf-8") if is_usable(proposal) else None


def task_questions(set_name: SetName, folder: Path) -> Iterator[Question]:
    """Yield the tasks of a set whose one unit is known without a model."""
    for task in read_tasks(set_name, folder):
        file = Outlined(FILE, task.code)
        if (unit := _only_unit(file, task.instruction)) is not None:
            yield Question(task.name, set_name, file, unit, task.instruction)


def pair_question(pair: Pair) -> Question:
    file = Outlined(pair.path, pair.file)
    return Question(pair.name, SETS_OF_PAIRS[pair.kind], file, file.unit_of(pair), pair.instruction)


def _only_unit(file: Outlined, instruction: str) -> Unit | None:
    steps = plan_by_evidence([EditScope(file.source, file.language, file.units, None)], instruction)
    if len(steps) == 1:
        return steps[0].unit if steps[0].unit.kind != "new" else None
    if found := _NAMED.match(instruction):
        named = [unit for unit in file.units if unit.name == found[1]]
        return named[0] if len(named) == 1 else None
    tops = [unit for unit in file.units if not unit.parent]
    return tops[0] if len(tops) == 1 and not steps else None
