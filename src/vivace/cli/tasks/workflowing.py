"""`vivace workflow` when it runs: lists, and a run in the foreground from the arguments to an exit code.

Owns where the log of such a run is, and how Ctrl-C ends it. Does not own the run (`agent.workflows`), nor
background tasks (`agent.tasks`).
"""

import asyncio
import os
import signal
from pathlib import Path

import click

from vivace.agent.conversation.connection import Connection
from vivace.agent.conversation.transcript.file import new_id
from vivace.agent.edits.apply.journal import Journal
from vivace.agent.events.task import AnyStep, ApprovalAsked, TaskEnded, TaskStarted
from vivace.agent.loop.calls import Approval
from vivace.agent.loop.opening import open_desk
from vivace.agent.loop.task import TaskLimits
from vivace.agent.permissions.policy import Policy
from vivace.agent.tasks.control import start_task
from vivace.agent.tasks.lock import write_holder
from vivace.agent.tasks.log import LogFace, TaskLog
from vivace.agent.tasks.store import TaskFolder
from vivace.agent.tools.bounded import printable
from vivace.agent.workflows.beginning import about, begin_workflow
from vivace.agent.workflows.finding import find_workflow, list_workflows
from vivace.agent.workflows.running import WorkflowRun
from vivace.cli.installation.fetching import with_model_here
from vivace.cli.show.task import TaskFace
from vivace.cli.tasks.task_options import OutputFormat, WorkflowOptions
from vivace.cli.tasks.tasking import say_started
from vivace.config import Settings
from vivace.errors import TaskNotFound, UsageError


def list_here(settings: Settings) -> None:
    for each in list_workflows(settings, Path.cwd()):
        click.echo(printable(f"{each.name:<16} {each.source:<8} {about(each)}"))


def show_one(settings: Settings, name: str) -> None:
    found = find_workflow(settings, Path.cwd(), name)
    workflow = found.parsed()
    lines = [f"{found.name} ({found.source}): {workflow.description}", ""]
    for key, wanted in workflow.inputs.items():
        default = f" [{wanted.default}]" if wanted.default is not None else ""
        lines.append(f"  {key}={default}  {wanted.description}")
    lines += ["", found.text.rstrip()]
    click.echo(printable("\n".join(lines)))


def run_one(settings: Settings, given: WorkflowOptions) -> int:
    """Run a workflow here, or start it in the background. Return the exit code."""
    started = begin_workflow(settings, Path.cwd(), given.name, given.inputs)
    title = " ".join([f"workflow {given.name}", *given.inputs])
    settings = with_model_here(settings)
    policy, limits = Policy(given.access, given.asking), TaskLimits(seconds=given.max_minutes * 60)
    if given.background:
        task = start_task(settings, Path.cwd(), title, policy=policy, limits=limits, workflow=started)
        return say_started(task, given.output_format)
    folder = TaskFolder(_runs(settings) / new_id())
    folder.path.mkdir(mode=0o700, parents=True)
    with TaskLog(folder.log_file) as log:
        log.append(started)
    return _go_on(settings, folder, Path.cwd(), title, policy, limits, given.output_format)


def resume_one(settings: Settings, id: str | None, output_format: OutputFormat) -> int:
    """Go on with a run of the foreground, in the folder where it began."""
    folder = _find_run(settings, id)
    steps = [line.step for line in folder.lines()]
    told = next((step for step in steps if isinstance(step, TaskStarted)), None)
    last = next((step for step in reversed(steps) if isinstance(step, TaskEnded)), None)
    if told is None:
        raise TaskNotFound(f"The workflow {folder.id} never began.", "Run it anew: vivace workflow run.")
    if last is not None and last.reason == "completed":
        raise UsageError(f"The workflow {folder.id} is done.", "Run it anew: vivace workflow run.")
    settings = with_model_here(settings.having(model=told.model))
    policy = Policy(told.access, told.asking)  # type: ignore[arg-type]
    return _go_on(settings, folder, Path(told.folder), told.task, policy, TaskLimits(), output_format)


def _runs(settings: Settings) -> Path:
    return settings.state_dir / "workflows"


def _find_run(settings: Settings, id: str | None) -> TaskFolder:
    paths = sorted(_runs(settings).glob("*/log.jsonl"), reverse=True)
    found = [path.parent for path in paths if id is None or id in path.parent.name]
    if not found:
        what = f"There is no run {id!r} of a workflow." if id else "No workflow was run yet."
        raise TaskNotFound(what, "`vivace tasks` lists those of the background.")
    return TaskFolder(found[0])


def _go_on(
    settings: Settings,
    folder: TaskFolder,
    root: Path,
    title: str,
    policy: Policy,
    limits: TaskLimits,
    output_format: OutputFormat,
) -> int:
    lock = folder.take_lock()
    try:
        write_holder(lock)
        return asyncio.run(_run(settings, folder, root, title, policy, limits, TaskFace(output_format)))
    finally:
        os.close(lock)


async def _run(
    settings: Settings,
    folder: TaskFolder,
    root: Path,
    title: str,
    policy: Policy,
    limits: TaskLimits,
    face: TaskFace,
) -> int:
    connection = Connection(settings, face.progress)
    with TaskLog(folder.log_file) as log:
        try:
            journal = Journal(settings.state_dir / "undo")
            desk = await open_desk(root, title, ShownAndLogged(log, face), policy, journal)
            steps = [line.step for line in folder.lines()]
            run = WorkflowRun(folder.id, desk, connection, limits, steps)
            asyncio.get_running_loop().add_signal_handler(signal.SIGINT, run.stop)
            ended = await run.run()
        finally:
            await connection.close()
    if ended.reason == "completed":
        face.progress(ended.text)
    else:
        face.progress(f"`vivace workflow resume {folder.id}` goes on from here.")
    return ended.exit_code


class ShownAndLogged:
    """The face of a run in the foreground: every step is in the log before it is shown."""

    def __init__(self, log: TaskLog, face: TaskFace) -> None:
        self._log = LogFace(log)
        self._face = face

    def show(self, step: AnyStep) -> None:
        self._log.show(step)
        self._face.show(step)

    async def approve(self, asked: ApprovalAsked) -> Approval:
        return await self._face.approve(asked)
