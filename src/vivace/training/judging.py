"""Verdicts on answers, and whether one adapter's are better than another's.

Owns the counting: right, unchanged, equal to the reference; won and lost against the base with a paired
bootstrap. Programs run in the sandbox only (`eval.edits.scoring`).
"""

import ast
import asyncio
import random
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec

from vivace.eval.edits.scoring import judge
from vivace.eval.edits.tasks import SetName, read_tasks
from vivace.training.questions import Question

SAMPLES = 10_000


class Answered(msgspec.Struct, frozen=True):
    """What a model said to a question, behind the opening."""

    set_name: str
    name: str
    text: str
    was_cut: bool = False  # it ended at the limit of tokens


class Verdict(msgspec.Struct, frozen=True):
    set_name: str
    name: str
    is_right: bool
    is_unchanged: bool
    is_refused: bool


async def judge_tasks(
    set_name: SetName,
    folder: Path,
    questions: Sequence[Question],
    answers: Mapping[str, Answered],
    known: dict[tuple[str, str], bool],
    at_once: int = 2,
) -> list[Verdict]:
    """Run each task's test over what the loop would write. A refused answer is not right.

    `known`: what has been run already, of any adapter's answers; most are alike. It grows.
    """
    tasks = {task.name: task for task in read_tasks(set_name, folder)}
    free = asyncio.Semaphore(at_once)

    async def one(question: Question) -> Verdict:
        answer = answers[question.name]
        after = None if answer.was_cut else question.file_after(answer.text)
        is_unchanged = is_same(question.before, after or "")
        if after is None:
            return Verdict(set_name, question.name, False, _says_nothing(question, answer), True)
        if (key := (question.name, after)) not in known:
            async with free:
                verdict, _ = await judge(tasks[question.name], after)
            known[key] = verdict == "passed"
        return Verdict(set_name, question.name, known[key], is_unchanged, False)

    return list(await asyncio.gather(*map(one, questions)))


def judge_pairs(
    set_name: str, questions: Sequence[Question], answers: Mapping[str, Answered], afters: Mapping[str, str]
) -> list[Verdict]:
    """Compare answers with what the author made of the file. Many other answers may be right too."""
    verdicts = []
    for question in questions:
        answer = answers[question.name]
        after = None if answer.was_cut else question.file_after(answer.text)
        is_right = after is not None and is_same(after, afters[question.name])
        verdicts.append(
            Verdict(set_name, question.name, is_right, _says_nothing(question, answer), after is None)
        )
    return verdicts


def _says_nothing(question: Question, answer: Answered) -> bool:
    """Return whether the answer is the unit as it was."""
    request, unit = question.request, question.unit
    before = question.file.source.text_of(unit.first_line, unit.last_line)
    said = request.opening + answer.text.split(f"\n{request.fence}")[0]
    return not answer.was_cut and said.split() == before.split()


def is_same(one: str, other: str) -> bool:
    """Return whether two files say the same: text without layout, or as Python."""
    if one.split() == other.split():
        return True
    trees = [_dumped(text) for text in (one, other)]
    return trees[0] is not None and trees[0] == trees[1]


def _dumped(text: str) -> str | None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return ast.dump(ast.parse(text))
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return None


# ---- one against the other -------------------------------------------------------------------------


class Comparison(msgspec.Struct, frozen=True):
    of: int
    before: int
    after: int
    won: int
    lost: int
    low: float  # of the difference in points, 95% of paired bootstrap samples lie between
    high: float


def compare(
    before: Sequence[Verdict],
    after: Sequence[Verdict],
    counts: Callable[[Verdict], bool] = lambda verdict: verdict.is_right,
    seed: int = 1,
) -> Comparison:
    """Compare verdicts on the same questions."""
    old, new = ({each.name: counts(each) for each in verdicts} for verdicts in (before, after))
    names = sorted(old.keys() & new.keys())
    steps = [int(new[name]) - int(old[name]) for name in names]
    chance, size = random.Random(seed), len(steps)
    sums = sorted(sum(chance.choices(steps, k=size)) for _ in range(SAMPLES)) if size else [0]
    low, high = (100 * sums[int(share * (len(sums) - 1))] / max(1, size) for share in (0.025, 0.975))
    return Comparison(
        size,
        sum(old[name] for name in names),
        sum(new[name] for name in names),
        steps.count(1),
        steps.count(-1),
        low,
        high,
    )
