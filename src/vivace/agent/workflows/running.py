"""A workflow at work: one step after the other, each logged before it begins and after it ends.

Owns the order, what is passed over because an earlier process has done it, and the end. A command that was
cut off is never run again by itself: a person is asked. Does not own what a step does (`doing`), nor the log
and the face (`TaskPresenter`), which are a task's: in the background this is the work of a task.
"""

import asyncio
import time
from collections.abc import Mapping, Sequence

from vivace.agent.conversation.connection import Connection
from vivace.agent.events.base import Failed
from vivace.agent.events.task import EndReason, Steered, StepBegan, StepEnded, TaskEnded
from vivace.agent.loop.calls import Desk
from vivace.agent.loop.task import EXIT_CODES, TaskLimits
from vivace.agent.tools.bounded import bounded
from vivace.agent.workflows.doing import StepWork
from vivace.agent.workflows.filling import filled
from vivace.agent.workflows.progress import progress_of
from vivace.agent.workflows.recipe import Step, Workflow, parse_workflow
from vivace.errors import (
    ApprovalNeeded,
    EditRejected,
    SandboxUnavailable,
    StepFailed,
    UsageError,
    VivaceError,
)

MAX_OUTPUT_CHARS = 20_000  # of one step, for the steps after it
MAX_ITEMS = 500  # of a for_each
FAILURES = (StepFailed, EditRejected, UsageError)  # others end the workflow whatever the step says


class WorkflowRun:
    """One process's work on one workflow. `steps` are the lines of its log so far, the beginning first."""

    def __init__(
        self, id: str, desk: Desk, connection: Connection, limits: TaskLimits, steps: Sequence[object]
    ) -> None:
        self._id = id
        self._desk = desk
        self._connection = connection
        self._limits = limits
        self._before = progress_of(steps)
        assert self._before.started is not None, "the log of a workflow begins with what runs"
        self._started = self._before.started
        self._work = StepWork(desk, connection, self._before)
        self._began_s = time.monotonic()
        self._count = 0  # of steps that this process did
        self._failed: list[str] = []  # keys of steps that failed in a workflow that goes on
        self._task: asyncio.Task[str] | None = None
        self._is_stopping = False

    # ---- from outside -----------------------------------------------------------------------------

    async def steer(self, text: str) -> bool:
        """Tell it to the model with every step that begins from now on."""
        self._desk.presenter.show(Steered(text=text))
        self._work.steers.append(text)
        return True

    def stop(self) -> None:
        """End it. What was written stays, and can be undone; it can be taken up again."""
        if self._task is not None:
            self._is_stopping = True
            self._task.cancel()

    async def run(self) -> TaskEnded:
        """Run to the end, whatever it is."""
        self._desk.presenter.show(self._desk.started(self._id, self._connection.settings.model))
        text = ""
        reason: EndReason = "completed"
        error: VivaceError | None = None
        self._task = asyncio.create_task(self._run())
        try:
            async with asyncio.timeout(self._limits.seconds):
                text = await self._task
        except TimeoutError:
            reason = "time"
        except asyncio.CancelledError:
            if not self._is_stopping:
                raise
            reason = "stopped"
        except VivaceError as problem:
            reason, error = "failed", problem
        ended = self._ended(reason, text, error)
        self._desk.presenter.show(ended)
        return ended

    # ---- the steps --------------------------------------------------------------------------------

    async def _run(self) -> str:
        workflow = parse_workflow(self._started.name, self._started.text)
        values = dict(self._started.inputs)
        await self._run_steps(workflow.steps, values, "")
        failed = f" These failed: {', '.join(self._failed)}." if self._failed else ""
        return f"The workflow {self._started.name} is done ({self._count} steps).{failed}"

    async def _run_steps(self, steps: Sequence[Step], values: dict[str, str], before: str) -> None:
        for number, step in enumerate(steps, 1):
            key = f"{before}{number}"
            if step.kind == "parallel":
                await self._run_parallel(step, values, key)
            else:
                self._save(step, values, await self._one(step, values, key))

    async def _run_parallel(self, step: Step, values: dict[str, str], key: str) -> None:
        """Run all at once, each to its end. If one fails the workflow ends; the others count as done."""
        if step.when and not filled(step.when, values).strip():
            return
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(self._guarded(inner, dict(values), f"{key}.{number}"))
                for number, inner in enumerate(step.parallel, 1)
            ]
        for inner, task in zip(step.parallel, tasks, strict=True):
            outcome = task.result()
            if isinstance(outcome, VivaceError):
                raise outcome
            self._save(inner, values, outcome)

    async def _guarded(self, step: Step, values: dict[str, str], key: str) -> str | VivaceError:
        try:
            return await self._one(step, values, key)
        except VivaceError as error:
            return error

    async def _one(self, step: Step, values: dict[str, str], key: str) -> str:
        """Do a step, or return what it gave an earlier process."""
        if (before := self._before.ended.get(key)) is not None:
            if before.status == "failed":
                self._failed.append(key)
            return before.output if before.status == "done" else ""
        show = self._desk.presenter.show
        if step.when and not filled(step.when, values).strip():
            show(StepEnded(key=key, status="passed_over"))
            return ""
        show(StepBegan(key=key, kind=step.kind, title=filled(step.title, values)[:300]))
        self._count += 1
        try:
            output = await self._do(step, values, key)
        except FAILURES as error:
            if step.on_fail == "stop":
                show(StepEnded(key=key, output=error.message, status="fatal"))
                raise StepFailed(f"Step {key} failed: {error.message}", error.hint) from error
            self._failed.append(key)
            show(StepEnded(key=key, output=error.message, status="failed"))
            return ""
        except (ApprovalNeeded, SandboxUnavailable) as error:
            if key not in self._before.open:  # nothing of it was done
                show(StepEnded(key=key, output=error.message, status="fatal"))
            raise
        output = bounded(output, MAX_OUTPUT_CHARS)
        show(StepEnded(key=key, output=output))
        return output

    async def _do(self, step: Step, values: dict[str, str], key: str) -> str:
        if step.kind != "for_each":
            return await self._work.do(step, values, key)
        assert step.for_each is not None
        items = self._items(filled(step.for_each, values), key)
        for item in items:
            await self._run_steps(step.steps, {**values, step.item: item}, f"{key}[{item}].")
        return "\n".join(items)

    def _items(self, text: str, key: str) -> list[str]:
        """Return the lines, each once; those that an earlier process began with, if there was one."""
        if (before := self._before.ended.get(f"{key}.items")) is not None:
            return before.output.splitlines()
        items = list(dict.fromkeys(line.strip() for line in text.splitlines() if line.strip()))
        if len(items) > MAX_ITEMS:
            raise StepFailed(f"There are {len(items)} items, and at most {MAX_ITEMS} are done in one go.")
        self._desk.presenter.show(StepEnded(key=f"{key}.items", output="\n".join(items)))
        return items

    @staticmethod
    def _save(step: Step, values: dict[str, str], output: str) -> None:
        if step.save_as:
            values[step.save_as] = output

    # ---- beginning and end ------------------------------------------------------------------------

    def _ended(self, reason: EndReason, text: str, error: VivaceError | None) -> TaskEnded:
        return TaskEnded(
            reason=reason,
            exit_code=error.exit_code if error else EXIT_CODES[reason],
            text=text,
            turns=self._count,
            seconds=round(time.monotonic() - self._began_s, 3),
            entries=tuple(self._before.diffs),
            error=Failed.of(error) if error else None,
        )


def with_defaults(name: str, workflow: Workflow, given: Mapping[str, str]) -> dict[str, str]:
    """Return the values of all inputs. Raise `UsageError` for what is missing or unknown."""
    if unknown := given.keys() - workflow.inputs.keys():
        known = ", ".join(workflow.inputs) or "none"
        raise UsageError(f"{name} has no input {min(unknown)!r}.", f"Its inputs: {known}.")
    values: dict[str, str] = {}
    for key, wanted in workflow.inputs.items():
        if key in given:
            values[key] = given[key]
        elif wanted.default is not None:
            values[key] = filled(wanted.default, values)
        else:
            usage = f"vivace workflow run {name} {key}=…"
            raise UsageError(f"{name} needs {key}: {wanted.description}", usage)
    return values
