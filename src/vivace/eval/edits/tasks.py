"""The tasks of `vivace eval edits`: an instruction, the code before, and the program that judges the result.

Owns the sets, how their rows are read, and which third of each is held out. Three are public data that is not
ours to ship: `SOURCES` says where it comes from. `several` is our own: edits of several units, in one or two
files. Does not run anything.
"""

import hashlib
from collections.abc import Iterable
from importlib.resources import as_file, files
from pathlib import Path
from typing import Literal, Protocol, TypeVar, get_args

import msgspec

from vivace.errors import FileProblem
from vivace.eval.edits.bundle import bundle, unbundle

SetName = Literal["humanevalfix", "humanevalfix-doc", "editeval", "several"]
SETS: tuple[SetName, ...] = get_args(SetName)
FILE = "solution.py"  # the name of a task's only file
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
    code: str  # the file before, or a bundle of several
    reference: str  # the file as the set's authors would have it, or a bundle
    frame: str  # the program that judges it: the answer goes where CODE stands, once or more
    is_bundle: bool = False  # the program imports the files instead

    @property
    def is_held_out(self) -> bool:
        return int(hashlib.sha256(self.name.encode()).hexdigest(), 16) % HELD_OUT == 0

    @property
    def is_timed(self) -> bool:
        """Return whether the test compares times: it gets processor time, which others do not change."""
        return "time.time()" in self.frame

    @property
    def files(self) -> dict[str, str]:
        """Return the files before, by name."""
        return unbundle(self.code) if self.is_bundle else {FILE: self.code}

    def program(self, code: str) -> str:
        """Return a program that ends well if `code` does what was asked."""
        return self.frame.replace(CODE, code.removesuffix("\n"))

    def files_beside(self, code: str) -> dict[str, str]:
        """Return the files that the program finds beside itself."""
        return unbundle(code) if self.is_bundle else {}


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


class _SeveralRow(msgspec.Struct):
    name: str
    instruction: str
    files: dict[str, str]
    reference: dict[str, str]
    test: str


R = TypeVar("R", _FixRow, _EditRow, _SeveralRow)


class Named(Protocol):
    """A task of any set."""

    @property
    def name(self) -> str: ...

    @property
    def is_held_out(self) -> bool: ...


N = TypeVar("N", bound=Named)


def read_tasks(set_name: SetName, folder: Path) -> list[Task]:
    """Read a set, without the rows that are broken by themselves."""
    if set_name == "several":
        with as_file(files("vivace.eval.edits") / "several.jsonl") as file:
            return [_several_task(row) for row in _rows(file, _SeveralRow)]
    if set_name == "editeval":
        tasks = [_edit_task(row) for row in _rows(folder / "editeval.jsonl", _EditRow)]
    else:
        rows = _rows(folder / "humanevalfix_python.jsonl", _FixRow)
        tasks = [_fix_task(row, has_docstring=set_name == "humanevalfix-doc") for row in rows]
    return [task for task in tasks if task.name not in LEFT_OUT]


def choose_tasks(tasks: Iterable[N], sample: int | None, is_held_out: bool | None) -> list[N]:
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


def _several_task(row: _SeveralRow) -> Task:
    code, reference = bundle(row.files), bundle(row.reference)
    return Task(row.name, row.instruction, code, reference, row.test, is_bundle=True)


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
            f"Get {SOURCES.get(file.name, file.name)}; name its folder with --data or set `evals_dir`.",
        ) from error
    except (OSError, msgspec.MsgspecError) as error:
        raise FileProblem(
            f"{file} cannot be read: {error}.", f"It should be {SOURCES.get(file.name, file.name)}."
        ) from error
