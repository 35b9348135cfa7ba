"""`vivace eval edits`: every task through the real loop, several at once, each judged as it is answered.

Owns the order of the work and that what is done is not done again. Runs against a server that is there
already. Does not own the answers (`answering`), the verdicts (`scoring`) or the counting (`report`).
"""

import asyncio
import os
from collections.abc import Callable, Coroutine, Iterable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

import msgspec

from vivace.agent.model import Model
from vivace.client.responses import ResponsesClient
from vivace.client.socket import Address
from vivace.eval.edits.answering import Rules, answer_task
from vivace.eval.edits.results import Answer, Key, Results, Score, Way
from vivace.eval.edits.scoring import judge
from vivace.eval.edits.tasks import SetName, Task, read_tasks

Told = Callable[[Answer, Score | None], None]  # what was finished, and the verdict if it was judged


@dataclass(frozen=True)
class EditsPlan:
    set_name: SetName
    model: str
    efforts: tuple[Way, ...]  # `BARE` among them for the model alone
    tasks: tuple[Task, ...]
    at_once: int = 1
    is_judged: bool = True  # otherwise the verdicts are left to `judge_results`
    rules: Rules | None = None  # an AGENTS.md beside the code

    @property
    def keys(self) -> list[tuple[Key, Task]]:
        """Return all that is to be answered, effort by effort."""
        return [
            ((self.set_name, self.model, effort, task.name), task)
            for effort in self.efforts
            for task in self.tasks
        ]


async def run_edits(address: Address, plan: EditsPlan, results: Results, told: Told) -> None:
    """Answer what has no answer yet, and judge it. Cancelled or failed, what is done stays in the results."""
    waiting = iter([(key, task) for key, task in plan.keys if key not in results.answers])
    async with AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(ResponsesClient(address)) for _ in range(plan.at_once)]
        await _together(_work(client, plan, results, waiting, told) for client in clients)
    if plan.is_judged:
        await judge_results(plan.keys, results, told)


async def judge_results(keys: Iterable[tuple[Key, Task]], results: Results, told: Told) -> None:
    """Judge every answer that has no verdict yet, as many at once as there are cores."""
    waiting = iter([(key, task) for key, task in keys if results.is_unjudged(key)])

    async def work() -> None:
        for key, task in waiting:
            told(results.answers[key], await _judge(task, results.answers[key], results))

    await _together(work() for _ in range(os.cpu_count() or 1))


async def _together(works: Iterable[Coroutine[None, None, None]]) -> None:
    """Run all to the end. The first failure ends the others and is raised."""
    try:
        async with asyncio.TaskGroup() as group:
            for work in works:
                group.create_task(work)
    except BaseExceptionGroup as failures:
        raise failures.exceptions[0] from None


async def _work(
    client: ResponsesClient,
    plan: EditsPlan,
    results: Results,
    waiting: Iterable[tuple[Key, Task]],
    told: Told,
) -> None:
    """Answer one task after the other on one connection."""
    for (_, _, effort, _), task in waiting:
        answer = await answer_task(plan.set_name, task, effort, Model(client, plan.model), plan.rules)
        answer = msgspec.structs.replace(answer, at_once=plan.at_once)
        results.add(answer)
        told(answer, await _judge(task, answer, results) if plan.is_judged else None)


async def _judge(task: Task, answer: Answer, results: Results) -> Score | None:
    """Judge an answer. What was refused needs no verdict."""
    if answer.code is None:
        return None
    verdict, detail = await judge(task, answer.code)
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

    await _together(work() for _ in range(os.cpu_count() or 1))
    return {name: sorted(tasks) for name, tasks in found.items()}


def plans_of(results: Results, folder: Path) -> list[EditsPlan]:
    """Return what a results file has answers to: a plan for each set and model in it."""
    groups: dict[tuple[SetName, str], list[Answer]] = {}
    for answer in results.answers.values():
        groups.setdefault((answer.set, answer.model), []).append(answer)
    plans = []
    for (set_name, model), answers in groups.items():
        efforts = tuple(dict.fromkeys(answer.effort for answer in answers))
        answered = {answer.task for answer in answers}
        tasks = [task for task in read_tasks(set_name, folder) if task.name in answered]
        plans.append(EditsPlan(set_name, model, efforts, tuple(tasks)))
    return plans
