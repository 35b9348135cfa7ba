"""Every task of a plan through the real loop, several at once, each judged as it is answered.

Owns the order of the work and that what is done is not done again, for `vivace eval edits` and `vivace eval
requests`. Runs against a server that is there already. Does not own the answers (`answering`), the verdicts
(`scoring`) or the counting (`report`).
"""

import asyncio
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Iterable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

import msgspec

from vivace.agent.model import Model
from vivace.client.responses import ResponsesClient
from vivace.client.socket import Address
from vivace.eval.edits.answering import Rules, answer_task
from vivace.eval.edits.results import Answer, AnySet, Key, Results, Score, Way
from vivace.eval.edits.scoring import Verdict, judge
from vivace.eval.edits.tasks import Named, Task, read_tasks

Told = Callable[[Answer, Score | None], None]  # what was finished, and the verdict if it was judged


T = TypeVar("T", bound=Named)


@dataclass(frozen=True)
class Plan(ABC, Generic[T]):
    """What is to be answered, how a task is answered, and how the answer is judged."""

    set_name: AnySet
    model: str
    efforts: tuple[Way, ...]  # `BARE` among them for the model alone
    tasks: tuple[T, ...]
    at_once: int = 1
    is_judged: bool = True  # otherwise the verdicts are left to `judge_results`

    @abstractmethod
    async def answer(self, task: T, effort: Way, model: Model) -> Answer:
        """Answer one task. A refusal of the loop is an answer; errors of the server are raised."""

    @abstractmethod
    async def judge(self, task: T, code: str) -> tuple[Verdict, str]:
        """Return the verdict, and the end of what a program that failed said."""

    @property
    def keys(self) -> list[tuple[Key, T]]:
        """Return all that is to be answered, effort by effort."""
        return [
            ((self.set_name, self.model, effort, task.name), task)
            for effort in self.efforts
            for task in self.tasks
        ]


@dataclass(frozen=True)
class EditsPlan(Plan[Task]):
    rules: Rules | None = None  # an AGENTS.md beside the code

    async def answer(self, task: Task, effort: Way, model: Model) -> Answer:
        assert self.set_name != "requests"
        assert self.set_name != "repository"
        return await answer_task(self.set_name, task, effort, model, self.rules)

    async def judge(self, task: Task, code: str) -> tuple[Verdict, str]:
        return await judge(task, code)


async def run_edits(address: Address, plan: Plan[T], results: Results, told: Told) -> None:
    """Answer what has no answer yet, and judge it. Cancelled or failed, what is done stays in the results."""
    waiting = iter([(key, task) for key, task in plan.keys if key not in results.answers])
    async with AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(ResponsesClient(address)) for _ in range(plan.at_once)]
        await together(_work(client, plan, results, waiting, told) for client in clients)
    if plan.is_judged:
        await judge_results(plan, results, told)


async def judge_results(plan: Plan[T], results: Results, told: Told) -> None:
    """Judge every answer that has no verdict yet, as many at once as there are cores."""
    waiting = iter([(key, task) for key, task in plan.keys if results.is_unjudged(key)])

    async def work() -> None:
        for key, task in waiting:
            told(results.answers[key], await _judge(plan, task, results.answers[key], results))

    await together(work() for _ in range(os.cpu_count() or 1))


async def together(works: Iterable[Coroutine[None, None, None]]) -> None:
    """Run all to the end. The first failure ends the others and is raised."""
    try:
        async with asyncio.TaskGroup() as group:
            for work in works:
                group.create_task(work)
    except BaseExceptionGroup as failures:
        raise failures.exceptions[0] from None


async def _work(
    client: ResponsesClient,
    plan: Plan[T],
    results: Results,
    waiting: Iterable[tuple[Key, T]],
    told: Told,
) -> None:
    """Answer one task after the other on one connection."""
    for (_, _, effort, _), task in waiting:
        answer = await plan.answer(task, effort, Model(client, plan.model))
        answer = msgspec.structs.replace(answer, at_once=plan.at_once)
        results.add(answer)
        told(answer, await _judge(plan, task, answer, results) if plan.is_judged else None)


async def _judge(plan: Plan[T], task: T, answer: Answer, results: Results) -> Score | None:
    """Judge an answer. What was refused needs no verdict."""
    if answer.code is None:
        return None
    verdict, detail = await plan.judge(task, answer.code)
    score = Score(answer.set, answer.model, answer.effort, answer.task, verdict, detail)
    results.add(score)
    return score


async def judge_set(tasks: Iterable[Task]) -> dict[str, list[str]]:
    """Judge a set itself. Return the tasks whose reference fails, and those whose unchanged code passes."""
    found: dict[str, list[str]] = {"references_that_fail": [], "unchanged_that_pass": []}
    waiting = iter(tasks)

    async def work() -> None:
        for task in waiting:
            if (await judge(task, task.reference))[0] != "passed":
                found["references_that_fail"].append(task.name)
            if (await judge(task, task.code))[0] == "passed":
                found["unchanged_that_pass"].append(task.name)

    await together(work() for _ in range(os.cpu_count() or 1))
    return {name: sorted(tasks) for name, tasks in found.items()}


def plans_of(results: Results, folder: Path) -> list[EditsPlan]:
    """Return what a results file has answers to: a plan for each set and model in it."""
    plans = []
    for (set_name, model), (efforts, answered) in answered_in(results).items():
        if set_name != "requests" and set_name != "repository":
            tasks = [task for task in read_tasks(set_name, folder) if task.name in answered]
            plans.append(EditsPlan(set_name, model, efforts, tuple(tasks)))
    return plans


def answered_in(results: Results) -> dict[tuple[AnySet, str], tuple[tuple[Way, ...], set[str]]]:
    """Return for each set and model of a results file the efforts and the names of the tasks in it."""
    groups: dict[tuple[AnySet, str], list[Answer]] = {}
    for answer in results.answers.values():
        groups.setdefault((answer.set, answer.model), []).append(answer)
    return {
        group: (tuple(dict.fromkeys(each.effort for each in answers)), {each.task for each in answers})
        for group, answers in groups.items()
    }
