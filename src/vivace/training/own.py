"""Answers of the model itself that are right: what it forgets least by.

Owns the tasks as they lie beside the examples, sampling, and which answers are kept. A function is compared
as a syntax tree with its one right text; where many answers are right, it must parse, differ and stay short.
Nothing that a model wrote is run.
"""

import ast
import textwrap
import warnings
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

import msgspec

from vivace.training.answering import write_answers
from vivace.training.data.changes import changed_tokens
from vivace.training.decoder import Decoder
from vivace.training.examples import Example, Examples

TASKS = "tasks.jsonl"
SPARE_TOKENS = 100  # that an answer may have beyond the old text
MOST_LONGER = 2.0  # times the old text, of an answer to an open request
AT_ONCE = 768


class Task(msgspec.Struct, frozen=True):
    """What is needed to judge an answer without the files that it is from."""

    name: str  # the example's
    kind: str  # a pair's: `data.pairs` needs a parser, and this runs where there is none
    fence: str
    opening: str
    before: str  # the unit
    after: str
    old: list[int]  # tokens that would repeat the old unit as an answer


def read_tasks(data: Path) -> list[Task]:
    return [msgspec.json.decode(line, type=Task) for line in (data / TASKS).read_bytes().splitlines()]


def sample_own(
    decoder: Decoder,
    examples: Examples,
    tasks: Sequence[Task],
    stops: Collection[int],
    text_of: Callable[[Sequence[int]], str],
    *,
    samples: int = 4,
    temperature: float = 0.8,
    keep: int = 2,
    until: float = float("inf"),
) -> tuple[Examples, dict[str, int]]:
    """Return right answers as examples, at most `keep` different ones of a task, and how many there were."""
    order = sorted(range(len(tasks)), key=lambda index: len(tasks[index].old))
    per_call = max(1, AT_ONCE // samples)
    found: list[Example] = []
    counts = {"tasks": 0, "answers": 0, "right": 0, "tasks with a right one": 0}
    for start in range(0, len(order), per_call):
        part = [index for index in order[start : start + per_call] for _ in range(samples)]
        prompts = [examples.prefix + examples.rows[index].prompt for index in part]
        most = len(tasks[part[-1]].old) + SPARE_TOKENS
        said = write_answers(
            *(decoder, None, prompts, stops, most),
            at_once=AT_ONCE,
            until=until,
            temperature=temperature,
            seed=start + 1,
        )
        right: dict[int, dict[tuple[int, ...], None]] = {index: {} for index in part}
        for index, tokens in zip(part, said, strict=True):
            if tokens and tokens[-1] in stops and is_right(tasks[index], text_of(tokens)):
                right[index][tuple(tokens)] = None
                counts["right"] += 1
        counts["tasks"] += len(right)
        counts["answers"] += len(part)
        counts["tasks with a right one"] += sum(map(bool, right.values()))
        for index, answers in right.items():
            for answer in list(answers)[:keep]:
                found.append(_example(examples.rows[index], tasks[index], answer))
    return Examples(examples.prefix, tuple(found)), counts


def is_right(task: Task, answer: str) -> bool:
    """Return whether the unit that an answer makes is what was asked for."""
    said, fence, _ = (task.opening + answer).partition(f"\n{task.fence}")
    new, old = _tree(said), _tree(task.before)
    if not fence or new is None or new == old:
        return False
    if task.kind == "open":
        return len(said) <= MOST_LONGER * len(task.before) and said.count("\ndef ") == task.before.count(
            "\ndef "
        )
    return new == _tree(task.after)


def _example(row: Example, task: Task, answer: tuple[int, ...]) -> Example:
    end = row.answer[-1]
    whole = answer if answer[-1] == end else (*answer, end)
    return Example(row.prompt, whole, row.name, row.group, row.kind, changed_tokens(task.old, whole))


def _tree(text: str) -> str | None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return ast.dump(ast.parse(textwrap.dedent(text)))
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return None
