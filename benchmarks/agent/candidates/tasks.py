"""Public tasks as requests: the prompts that were tried, and the tokens of each.

Owns what goes from one part to the next (`Plan`, `Found`). Imports the product only where it is needed: the
GPU machine, which reads these shapes, lacks some of its packages.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from vivace.agent.prompting import Message, read_prompt
from vivace.eval.edits.tasks import SetName, Task, read_tasks

if TYPE_CHECKING:
    from vivace.agent.edits.find.units import Unit

SETS: tuple[SetName, ...] = ("humanevalfix", "humanevalfix-doc", "editeval")
SPARE_TOKENS = 560  # of the product's room beyond the old text that is not given here: loops cost time
PLAIN = (
    "You are a careful programmer. You rewrite a piece of a file so that it does what the task says. You "
    "change only what the task needs and keep everything else exactly as it is: names, comments, order and "
    "formatting. You answer with the whole rewritten piece and nothing else."
)


class Prompt(msgspec.Struct, frozen=True):
    """What stands before the request: the product's examples, or a system message, or both."""

    system: str = ""
    has_examples: bool = False


PROMPTS = {
    "instructions": Prompt(PLAIN),
    "examples": Prompt(has_examples=True),
    "both": Prompt(PLAIN, has_examples=True),
}


class Planned(msgspec.Struct, frozen=True):
    """A task as tokens, by prompt."""

    set: str
    name: str
    max_tokens: int
    prompts: dict[str, list[int]]


class Plan(msgspec.Struct, frozen=True):
    stops: list[int]
    tasks: list[Planned]


class Found(msgspec.Struct):
    """One distinct answer to a task."""

    set: str
    name: str
    prompt: str
    text: str  # behind the opening
    tokens: int
    origins: list[tuple[str, float]]  # greedy, sample or branch; and its log-probability
    code: str = ""  # the whole file
    is_usable: bool = False
    held: int = 0  # examples of the instruction that hold
    is_right: bool = False


def prepare(model: Path, data: Path) -> Plan:
    from vivace.agent.edits.apply.source import source_from_bytes
    from vivace.agent.edits.find.languages import PYTHON
    from vivace.agent.edits.find.outline import list_units
    from vivace.agent.edits.write.rewrite import rewrite_request
    from vivace.models.families.choose import family_for
    from vivace.models.tokenizer import GgufTokenizer

    tokenizer = GgufTokenizer(model)
    family = family_for(tokenizer, str(model))

    def render(messages: Iterable[Message]) -> list[int]:
        from vivace.models.families.base import Message as Entry

        entries = [
            Entry(each["role"], each["content"], is_open=each.get("status") == "in_progress")  # type: ignore[arg-type]
            for each in messages
        ]
        return family.render(entries)

    planned = []
    for (set_name, name), task in read_all(data):
        source = source_from_bytes(Path("solution.py"), task.code.encode())
        request = rewrite_request(source, list_units(source, PYTHON), unit_of(task.code), task.instruction)
        asked = request.messages[len(read_prompt("rewrite")) :]
        prompts = {title: render([*begun(prompt), *asked]) for title, prompt in PROMPTS.items()}
        planned.append(Planned(set_name, name, request.max_tokens - SPARE_TOKENS, prompts))
    return Plan(sorted({*tokenizer.end_tokens, *family.stop_tokens}), planned)


def read_all(data: Path) -> list[tuple[tuple[str, str], Task]]:
    """Return all tasks by set and name."""
    return [((set_name, task.name), task) for set_name in SETS for task in read_tasks(set_name, data)]


def begun(prompt: Prompt) -> list[Message]:
    system = [{"role": "system", "content": prompt.system}] if prompt.system else []
    return [*system, *(read_prompt("rewrite") if prompt.has_examples else ())]


def unit_of(code: str) -> "Unit":
    """Return the only function or class of a file, or the whole file if it has several."""
    from vivace.agent.edits.apply.source import source_from_bytes
    from vivace.agent.edits.find.languages import PYTHON
    from vivace.agent.edits.find.outline import list_units
    from vivace.agent.edits.find.units import file_unit

    source = source_from_bytes(Path("solution.py"), code.encode())
    units = [unit for unit in list_units(source, PYTHON) if "." not in unit.qualified_name]
    return units[0] if len(units) == 1 else file_unit(source)
