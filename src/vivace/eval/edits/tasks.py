"""The tasks of `vivace eval edits`: an instruction, the code before, and the program that judges the result.

Owns the three sets, how their rows are read, and which third of each is held out. The rows are public data
that is not ours to ship: `SOURCES` says where it comes from. Does not run anything.
"""

import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import Literal, TypeVar, get_args

import msgspec

from vivace.errors import FileProblem

SetName = Literal["humanevalfix", "humanevalfix-doc", "editeval"]
SETS: tuple[SetName, ...] = get_args(SetName)
CODE = "{{Code}}"  # where EditEval's `context` wants the answer
LEFT_OUT = {"EditEval/156"}  # fails with its own reference
HELD_OUT = 3  # one task in 3 is not looked at while the loop is tuned

SOURCES: dict[str, str] = {
    "humanevalfix_python.jsonl": "HumanEvalFix, Python, of bigcode-project/octopack (MIT): the dataset "
    "bigcode/humanevalpack of Hugging Face, one row a line",
    "editeval.jsonl": "EditEval of qishenghu/InstructCoder (MIT): edit_eval/edit_eval.jsonl there",
}


class Task(msgspec.Struct, frozen=True):
    name: str
    instruction: str
    code: str  # the file before
    reference: str  # the file as the set's authors would have it
    frame: str  # the program that judges it: the answer goes where CODE stands, once or more

    @property
    def is_held_out(self) -> bool:
        return int(hashlib.sha256(self.name.encode()).hexdigest(), 16) % HELD_OUT == 0

    @property
    def is_timed(self) -> bool:
        """Return whether the test compares times: it gets processor time, which others do not change."""
        return "time.time()" in self.frame

    def program(self, code: str) -> str:
        """Return a program that ends well if `code` does what was asked."""
        return self.frame.replace(CODE, code.removesuffix("\n"))


class _FixRow(msgspec.Struct):
    task_id: str
    declaration: str
    docstring: str
    buggy_solution: str
    canonical_solution: str
    test: str  # ends with the call of its own `check`
    entry_point: str


class _EditRow(msgspec.Struct):
    task_id: str
    instruction: str
    context: str
    input: str
    output: str
    test: str


R = TypeVar("R", _FixRow, _EditRow)


def read_tasks(set_name: SetName, folder: Path) -> list[Task]:
    """Read a set, without the rows that are broken by themselves."""
    if set_name == "editeval":
        tasks = [_edit_task(row) for row in _rows(folder / "editeval.jsonl", _EditRow)]
    else:
        rows = _rows(folder / "humanevalfix_python.jsonl", _FixRow)
        tasks = [_fix_task(row, has_docstring=set_name == "humanevalfix-doc") for row in rows]
    return [task for task in tasks if task.name not in LEFT_OUT]


def choose_tasks(tasks: Iterable[Task], sample: int | None, is_held_out: bool | None) -> list[Task]:
    """Return the tasks to run: all, a sample that is the same every time, one part or both parts."""
    chosen = [task for task in tasks if is_held_out in (None, task.is_held_out)]
    if sample is None or sample >= len(chosen):
        return chosen
    shuffled = sorted(chosen, key=lambda task: hashlib.sha256(f"sample {task.name}".encode()).digest())
    names = {task.name for task in shuffled[:sample]}
    return [task for task in chosen if task.name in names]


def _fix_task(row: _FixRow, *, has_docstring: bool) -> Task:
    instruction = f"Fix the bug in {row.entry_point}."
    if has_docstring:
        instruction += f" It should do this:\n{row.docstring.strip()}"
    return Task(
        name=row.task_id,
        instruction=instruction,
        code=row.declaration + row.buggy_solution,
        reference=row.declaration + row.canonical_solution,
        frame=f"{CODE}\n{row.test}\n",
    )


def _edit_task(row: _EditRow) -> Task:
    return Task(
        name=row.task_id,
        instruction=row.instruction.strip(),
        code=_ended(row.input),
        reference=_ended(row.output),
        frame=f"{row.context or CODE}\n{row.test}\ncheck()\n",
    )


def _ended(text: str) -> str:
    """Return the text with a newline at its end, as files have it."""
    return text if text.endswith("\n") else f"{text}\n"


def _rows(file: Path, kind: type[R]) -> list[R]:
    try:
        lines = file.read_bytes().splitlines()
        return [msgspec.json.decode(line, type=kind) for line in lines if line.strip()]
    except FileNotFoundError as error:
        raise FileProblem(
            f"The tasks are not here: {file} is missing.",
            f"Get {SOURCES[file.name]}; name its folder with --data or the setting `evals_dir`.",
        ) from error
    except (OSError, msgspec.MsgspecError) as error:
        raise FileProblem(
            f"{file} cannot be read: {error}.", f"It should be {SOURCES[file.name]}."
        ) from error
